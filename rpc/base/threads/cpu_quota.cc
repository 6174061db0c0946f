#include "sinew/rpc/base/threads/cpu_quota.h"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace sinew::internal {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr auto kQuotaInterval = std::chrono::seconds(1);

/// The numbers in a file; none where it cannot be read or says "max".
std::vector<double> numbers_in(const std::string& file) {
  std::ifstream stream(file);
  return {std::istream_iterator<double>(stream), std::istream_iterator<double>()};
}

/// Of one control group, in cores.
std::optional<double> quota_of_group(const std::string& folder) {
  std::vector<double> quota_and_period = numbers_in(folder + "/cpu.max");
  if (quota_and_period.empty()) {
    quota_and_period = numbers_in(folder + "/cpu.cfs_quota_us");
    const std::vector<double> period = numbers_in(folder + "/cpu.cfs_period_us");
    quota_and_period.insert(quota_and_period.end(), period.begin(), period.end());
  }
  // Version 1 has a quota of -1 for none.
  if (quota_and_period.size() != 2 || quota_and_period[0] <= 0 || quota_and_period[1] <= 0) {
    return std::nullopt;
  }
  return quota_and_period[0] / quota_and_period[1];
}

}  // namespace

std::optional<double> cpu_quota(const std::string& root) {
  std::optional<double> least;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    // Number, controllers of version 1, path.
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    const std::vector<std::string> controllers = absl::StrSplit(fields[1], ',');
    const bool is_second_version = fields[1].empty();
    if (!is_second_version &&
        std::find(controllers.begin(), controllers.end(), "cpu") == controllers.end()) {
      continue;
    }
    const std::string top = absl::StrCat(root, "/sys/fs/cgroup/", fields[1]);
    // Each limits those below. In a container the lower ones may not be there.
    for (std::string path = fields[2];; path.resize(path.rfind('/'))) {
      const std::optional<double> quota = quota_of_group(top + path);
      if (quota.has_value()) least = std::min(least.value_or(*quota), *quota);
      if (path.find('/') == std::string::npos) break;
    }
  }
  return least;
}

bool has_core_to_spare(SteadyClock::time_point now) {
  static std::atomic<SteadyClock::rep> next_reading{0};
  static std::atomic<bool> has_one{true};
  SteadyClock::rep due = next_reading.load(std::memory_order_relaxed);
  const SteadyClock::rep at = now.time_since_epoch().count();
  const SteadyClock::rep next = at + SteadyClock::duration(kQuotaInterval).count();
  if (at >= due && next_reading.compare_exchange_strong(due, next, std::memory_order_relaxed)) {
    has_one.store(cpu_quota().value_or(2) > 1, std::memory_order_relaxed);
  }
  return has_one.load(std::memory_order_relaxed);
}

}  // namespace sinew::internal
