#include "sinew/rpc/base/host_limits.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "sinew/rpc/base/internal/named_line.h"

namespace sinew::internal {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr auto kQuotaInterval = std::chrono::seconds(1);
// Version 1 writes the largest number that it has for none.
constexpr std::uint64_t kNoMemoryLimit = std::uint64_t{1} << 62;

/// Where control groups can be seen.
struct Mount {
  /// The group that stands at `folder`.
  std::string top;
  std::string folder;
  /// Of version 1; none of version 2.
  std::vector<std::string> controllers;
  bool is_second_version = false;

  bool has(absl::string_view controller) const {
    return is_second_version ||
           std::find(controllers.begin(), controllers.end(), controller) != controllers.end();
  }
};

/// The numbers at the beginning of a file; none where it cannot be read or says "max".
std::vector<double> numbers_in(const std::string& file) {
  std::ifstream stream(file);
  return {std::istream_iterator<double>(stream), std::istream_iterator<double>()};
}

std::optional<std::uint64_t> number_in(const std::string& file) {
  std::string word;
  std::string more;
  std::ifstream stream(file);
  std::uint64_t number = 0;
  if (!(stream >> word) || stream >> more || !absl::SimpleAtoi(word, &number)) return std::nullopt;
  return number;
}

/// A line of mountinfo, of proc(5); nullopt for what is no place of control groups.
std::optional<Mount> parse_mount(absl::string_view line) {
  const std::vector<absl::string_view> halves = absl::StrSplit(line, absl::MaxSplits(" - ", 1));
  if (halves.size() != 2) return std::nullopt;
  const std::vector<std::string> where = absl::StrSplit(halves[0], ' ');
  const std::vector<std::string> what = absl::StrSplit(halves[1], ' ');
  if (where.size() < 5 || what.size() < 3) return std::nullopt;
  Mount mount;
  mount.is_second_version = what[0] == "cgroup2";
  if (!mount.is_second_version && what[0] != "cgroup") return std::nullopt;
  // It writes spaces as octal numbers.
  if (!absl::CUnescape(where[3], &mount.top) || !absl::CUnescape(where[4], &mount.folder)) {
    return std::nullopt;
  }
  if (!mount.is_second_version) mount.controllers = absl::StrSplit(what[2], ',');
  return mount;
}

std::vector<Mount> mounts_below(const std::string& root) {
  std::vector<Mount> mounts;
  std::ifstream table(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(table, line);) {
    if (std::optional<Mount> mount = parse_mount(line)) mounts.push_back(*std::move(mount));
  }
  return mounts;
}

/// `group`, as seen below `mount`. A container may be told the path that its group has outside, of
/// which it sees nothing: then all that it can see is the top.
std::string path_below(const Mount& mount, const std::string& group) {
  absl::string_view path = group;
  if (mount.top != "/" && !absl::ConsumePrefix(&path, mount.top)) return "";
  if (absl::StrContains(path, "/..") || (!path.empty() && path.front() != '/')) return "";
  return std::string(absl::StripSuffix(path, "/"));
}

/// A group that the process is in: of version 2, or of one or several controllers of version 1.
struct Group {
  Mount mount;
  std::string path;
};

/// Best the mount below which the group stands.
const Mount* find_mount(const std::vector<Mount>& mounts, const Group& group) {
  const Mount* any = nullptr;
  for (const Mount& mount : mounts) {
    if (mount.is_second_version != group.mount.is_second_version) continue;
    if (!mount.is_second_version && !mount.has(group.mount.controllers.front())) continue;
    if (mount.top == "/" || absl::StartsWith(group.path, mount.top)) return &mount;
    any = &mount;
  }
  return any;
}

std::vector<Group> groups_below(const std::string& root) {
  const std::vector<Mount> mounts = mounts_below(root);
  std::vector<Group> groups;
  std::ifstream table(root + "/proc/self/cgroup");
  for (std::string line; std::getline(table, line);) {
    // Number, controllers of version 1, path.
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    // Where they are mounted unless the table of mounts says otherwise.
    Group group{{"/", absl::StrCat("/sys/fs/cgroup/", fields[1]), absl::StrSplit(fields[1], ','),
                 fields[1].empty()},
                fields[2]};
    if (const Mount* const mount = find_mount(mounts, group)) group.mount = *mount;
    groups.push_back(std::move(group));
  }
  return groups;
}

/// `Visit` is called with the folder and the path of each group that has `controller`, from the
/// lowest up: each limits those below.
template <class Visit>
void each_group(const std::string& root, const std::vector<Group>& groups,
                absl::string_view controller, const Visit& visit) {
  for (const Group& group : groups) {
    if (!group.mount.has(controller)) continue;
    for (std::string path = path_below(group.mount, group.path);; path.resize(path.rfind('/'))) {
      visit(absl::StrCat(root, group.mount.folder, path), path.empty() ? "/" : path);
      if (path.find('/') == std::string::npos) break;
    }
  }
}

std::optional<HostLimits::Bound> memory_below(const std::string& root,
                                              const std::vector<Group>& groups) {
  std::optional<HostLimits::Bound> least;
  const auto add = [&](std::optional<std::uint64_t> most, const std::string& group) {
    if (!most.has_value() || *most == 0 || *most >= kNoMemoryLimit) return;
    if (!least.has_value() || *most < least->most) least = HostLimits::Bound{*most, group};
  };
  if (const auto total = named_line(root + "/proc/meminfo", "MemTotal:")) {
    std::uint64_t kib = 0;
    if (absl::SimpleAtoi(absl::StripSuffix(*total, " kB"), &kib)) add(kib << 10, "");
  }
  each_group(root, groups, "memory", [&](const std::string& folder, const std::string& group) {
    // Beyond the second one the kernel slows a group down until it stands still.
    for (const char* file : {"/memory.max", "/memory.high", "/memory.limit_in_bytes"}) {
      add(number_in(folder + file), group);
    }
  });
  return least;
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

std::optional<double> cpu_quota_below(const std::string& root, const std::vector<Group>& groups) {
  std::optional<double> least;
  each_group(root, groups, "cpu", [&](const std::string& folder, const std::string&) {
    const std::optional<double> quota = quota_of_group(folder);
    if (quota.has_value()) least = std::min(least.value_or(*quota), *quota);
  });
  return least;
}

std::optional<HostLimits::Threads> threads_below(const std::string& root,
                                                 const std::vector<Group>& groups) {
  std::optional<HostLimits::Threads> least;
  each_group(root, groups, "pids", [&](const std::string& folder, const std::string& group) {
    const std::optional<std::uint64_t> most = number_in(folder + "/pids.max");
    if (!most.has_value()) return;
    const HostLimits::Threads threads{*most, number_in(folder + "/pids.current").value_or(0),
                                      group};
    if (!least.has_value() || threads.left() < least->left()) least = threads;
  });
  return least;
}

/// How many a list like "0-3,8" has; nullopt where it is none.
std::optional<int> size_of_list(absl::string_view list) {
  int size = 0;
  for (const absl::string_view part : absl::StrSplit(absl::StripAsciiWhitespace(list), ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(part, '-');
    int first = 0;
    int last = 0;
    if (ends.size() > 2 || !absl::SimpleAtoi(ends.front(), &first) ||
        !absl::SimpleAtoi(ends.back(), &last) || first < 0 || last < first) {
      return std::nullopt;
    }
    size += last - first + 1;
  }
  return size;
}

std::optional<std::uint64_t> soft_limit(__rlimit_resource what) {
  rlimit limits{};
  const bool is_limited = ::getrlimit(what, &limits) == 0 && limits.rlim_cur != RLIM_INFINITY;
  return is_limited ? std::optional<std::uint64_t>(limits.rlim_cur) : std::nullopt;
}

}  // namespace

int HostLimits::cores() const {
  double cores = allowed_cpus.value_or(static_cast<int>(std::thread::hardware_concurrency()));
  if (cpu_quota.has_value()) cores = std::min(cores, std::ceil(*cpu_quota));
  return std::max(1, static_cast<int>(cores));
}

std::optional<std::uint64_t> HostLimits::threads_left() const {
  if (!threads.has_value()) return user_threads;
  return std::min(threads->left(), user_threads.value_or(threads->left()));
}

HostLimits parse_host_limits(const std::string& root) {
  HostLimits limits;
  const std::vector<Group> groups = groups_below(root);
  limits.memory = memory_below(root, groups);
  limits.cpu_quota = cpu_quota_below(root, groups);
  limits.threads = threads_below(root, groups);
  if (const auto list = named_line(root + "/proc/self/status", "Cpus_allowed_list:")) {
    limits.allowed_cpus = size_of_list(*list);
  }
  return limits;
}

HostLimits read_host_limits() {
  HostLimits limits = parse_host_limits("");
  limits.user_threads = soft_limit(RLIMIT_NPROC);
  limits.files = file_limit();
  return limits;
}

std::optional<std::uint64_t> file_limit() { return soft_limit(RLIMIT_NOFILE); }

bool has_core_to_spare(SteadyClock::time_point now) {
  static std::atomic<SteadyClock::rep> next_reading{0};
  static std::atomic<bool> has_one{true};
  SteadyClock::rep due = next_reading.load(std::memory_order_relaxed);
  const SteadyClock::rep at = now.time_since_epoch().count();
  const SteadyClock::rep next = at + SteadyClock::duration(kQuotaInterval).count();
  if (at >= due && next_reading.compare_exchange_strong(due, next, std::memory_order_relaxed)) {
    has_one.store(cpu_quota_below("", groups_below("")).value_or(2) > 1, std::memory_order_relaxed);
  }
  return has_one.load(std::memory_order_relaxed);
}

}  // namespace sinew::internal
