#include "sinew/tests/launch/spawn_checks.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace sinew::testing {

std::string contents(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<pid_t> announced(const std::string& folder) {
  std::vector<pid_t> result;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename().string().front() == '.') continue;
    result.push_back(std::stoi(contents(entry.path().string())));
  }
  return result;
}

bool is_running(pid_t pid) {
  const std::string status = contents(absl::StrCat("/proc/", pid, "/stat"));
  const std::size_t end = status.rfind(')');
  return end != std::string::npos && status.at(end + 2) != 'Z';
}

std::size_t count_with(const std::string& variable) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string environment = contents(entry.path().string() + "/environ");
    if (environment.find(variable) != std::string::npos && is_running(std::stoi(name))) ++count;
  }
  return count;
}

SpawnError failure_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const SpawnError& error) {
    return error;
  }
  ADD_FAILURE() << "nothing failed";
  return SpawnError({}, -1, -1, {}, SpawnError::Cause::kEnd);
}

std::string own_path() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

}  // namespace sinew::testing
