#include "sinew/benchmarks/apart.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <system_error>

namespace sinew::bench {
namespace {

[[noreturn]] void run_child(pid_t parent, int to_parent,
                            const std::function<std::vector<double>()>& measure) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it died before the line above could take effect
  try {
    const std::vector<double> values = measure();
    const std::size_t size = values.size() * sizeof(double);
    _exit(write(to_parent, values.data(), size) == static_cast<ssize_t>(size) ? 0 : 1);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "the measuring process failed: %s\n", error.what());
  }
  _exit(1);
}

std::vector<double> read_all(int from_child) {
  std::vector<double> values;
  double value = 0;
  while (read(from_child, &value, sizeof value) == sizeof value) values.push_back(value);
  return values;
}

void write_line(const std::filesystem::path& file, const std::string& line) {
  std::ofstream stream(file);
  if (!(stream << line << std::endl)) {
    throw std::runtime_error("cannot write '" + line + "' to " + file.string());
  }
}

}  // namespace

std::vector<double> measure_apart(const std::function<std::vector<double>()>& measure) {
  int ends[2];
  if (pipe(ends) != 0)
    throw std::system_error(errno, std::generic_category(), "cannot make a pipe");
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) throw std::system_error(errno, std::generic_category(), "cannot fork");
  if (child == 0) {
    close(ends[0]);
    run_child(parent, ends[1], measure);
  }
  close(ends[1]);
  std::vector<double> values = read_all(ends[0]);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) throw std::runtime_error("a measuring process failed");
  return values;
}

HalfCore::HalfCore() {
  namespace fs = std::filesystem;
  // cgroup v1 has a tree for each controller.
  const fs::path first = "/sys/fs/cgroup/cpu";
  const bool is_first = fs::exists(first / "cpu.cfs_quota_us");
  const fs::path folder =
      (is_first ? first : fs::path("/sys/fs/cgroup")) / ("sinew-bench-" + std::to_string(getpid()));
  std::error_code error;
  if (!fs::create_directory(folder, error)) {
    throw std::runtime_error("cannot make the cgroup " + folder.string() + ": " + error.message());
  }
  folder_ = folder.string();
  try {
    if (is_first) {
      write_line(folder / "cpu.cfs_period_us", "100000");
      write_line(folder / "cpu.cfs_quota_us", "50000");
    } else {
      write_line(folder / "cpu.max", "50000 100000");
    }
  } catch (...) {
    fs::remove(folder, error);
    throw;
  }
}

HalfCore::~HalfCore() {
  std::error_code ignored;
  std::filesystem::remove(folder_, ignored);
}

void HalfCore::enter() const {
  write_line(std::filesystem::path(folder_) / "cgroup.procs", std::to_string(getpid()));
}

}  // namespace sinew::bench
