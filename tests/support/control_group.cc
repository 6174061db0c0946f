#include "sinew/tests/support/control_group.h"

#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <stdexcept>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sinew/testing/eventually.h"

namespace sinew::testing {
namespace {

namespace fs = std::filesystem;

constexpr char kTop[] = "/sys/fs/cgroup";
constexpr int kPeriodUs = 100000;

std::string text_of(const fs::path& file) {
  std::string line;
  std::getline(std::ifstream(file), line);
  return line;
}

bool is_given_to_groups(const std::string& controller) {
  for (const auto& each : absl::StrSplit(text_of(fs::path(kTop) / "cgroup.subtree_control"), ' ')) {
    if (each == controller) return true;
  }
  return false;
}

}  // namespace

ControlGroup::ControlGroup(const std::string& controller) {
  static std::atomic<int> number{0};
  const fs::path first = fs::path(kTop) / controller;
  is_first_version_ = fs::exists(first / "cgroup.procs");
  if (!is_first_version_ && !is_given_to_groups(controller)) {
    obstacle_ = absl::StrCat("the controller ", controller, " is not given to groups below ", kTop);
    return;
  }
  folder_ = (is_first_version_ ? first : fs::path(kTop)) /
            absl::StrCat("sinew-test-", ::getpid(), "-", number++);
  std::error_code error;
  if (!fs::create_directory(folder_, error)) {
    obstacle_ =
        absl::StrCat("cannot make the control group ", folder_.string(), ": ", error.message());
  }
}

ControlGroup::~ControlGroup() {
  if (!obstacle_.empty()) return;
  // What was killed is in it for a moment yet.
  eventually([this] {
    std::error_code error;
    return fs::remove(folder_, error);
  });
}

void ControlGroup::limit_memory(std::size_t bytes) const {
  write(is_first_version_ ? "memory.limit_in_bytes" : "memory.max", absl::StrCat(bytes));
}

void ControlGroup::limit_threads(int most) const { write("pids.max", absl::StrCat(most)); }

void ControlGroup::limit_cores(double cores) const {
  const auto quota = static_cast<int>(cores * kPeriodUs);
  if (is_first_version_) {
    write("cpu.cfs_period_us", absl::StrCat(kPeriodUs));
    write("cpu.cfs_quota_us", absl::StrCat(quota));
  } else {
    write("cpu.max", absl::StrCat(quota, " ", kPeriodUs));
  }
}

void ControlGroup::limit_to_one_cpu() const {
  // Version 1 has none of either before.
  if (is_first_version_) write("cpuset.mems", text_of(folder_.parent_path() / "cpuset.mems"));
  cpu_set_t cpus;
  ::sched_getaffinity(0, sizeof cpus, &cpus);
  int first = 0;
  while (!CPU_ISSET(first, &cpus)) ++first;
  write("cpuset.cpus", absl::StrCat(first));
}

std::vector<std::string> ControlGroup::entered_by(const std::vector<std::string>& command) const {
  std::vector<std::string> through = {
      "/bin/sh", "-c",
      absl::StrCat("echo $$ > ", (folder_ / "cgroup.procs").string(), " && exec \"$@\""), "sh"};
  through.insert(through.end(), command.begin(), command.end());
  return through;
}

void ControlGroup::write(const std::string& file, const std::string& text) const {
  std::ofstream stream(folder_ / file);
  if (!(stream << text << std::endl)) {
    throw std::runtime_error(absl::StrCat("cannot write '", text, "' to ", file));
  }
}

}  // namespace sinew::testing
