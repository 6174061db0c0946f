#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace sinew::internal {

/// What this process may use of its host: the least of what the machine has, of what its control
/// groups and those above them leave, and of its resource limits. What has no limit, or a limit
/// that makes no sense, is absent.
struct HostLimits {
  /// Of a control group, with its path; of the machine, without.
  struct Bound {
    std::uint64_t most = 0;
    std::string group;
  };
  /// pids.max of the control group that has the least room left.
  struct Threads {
    std::uint64_t most = 0;
    std::uint64_t used = 0;
    std::string group;

    std::uint64_t left() const { return most > used ? most - used : 0; }
  };

  /// In bytes: memory.max and memory.high, memory.limit_in_bytes, or all that the machine has.
  std::optional<Bound> memory;
  /// In cores: cpu.max, or cpu.cfs_quota_us.
  std::optional<double> cpu_quota;
  /// The CPUs that it may run on: its affinity, which keeps within its cpusets.
  std::optional<int> allowed_cpus;
  std::optional<Threads> threads;
  /// RLIMIT_NPROC: threads of all processes of the user together. Does not hold for root.
  std::optional<std::uint64_t> user_threads;
  /// RLIMIT_NOFILE.
  std::optional<std::uint64_t> files;

  /// The cores that it may keep busy, rounded up; at least 1.
  int cores() const;
  /// Threads that may still be started, as far as that is known.
  std::optional<std::uint64_t> threads_left() const;
};

/// What the files below `root` say, which stands for /: /proc and /sys/fs/cgroup, versions 1 and 2
/// (the kernel's Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/). Without the resource
/// limits.
HostLimits parse_host_limits(const std::string& root);

/// Those of this process, now. Takes some 0.1 ms.
HostLimits read_host_limits();

/// RLIMIT_NOFILE now, without opening a file.
std::optional<std::uint64_t> file_limit();

/// Whether more than one core is left to the process by its control groups. Reads that once a
/// second at most, and does not fail. Thread-safe.
bool has_core_to_spare(std::chrono::steady_clock::time_point now);

}  // namespace sinew::internal
