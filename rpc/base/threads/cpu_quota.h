#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace sinew::internal {

/// How many cores' worth of CPU time the control groups of this process let it use, versions 1 and
/// 2, those above its own too (the kernel's Documentation/admin-guide/cgroup-v2.rst, "cpu.max", and
/// Documentation/scheduler/sched-bwc.rst). Nothing where there is no limit, or the system does not
/// say. `root` is where /proc and /sys are, for tests.
std::optional<double> cpu_quota(const std::string& root = "");

/// Whether that is more than one core. With less, time spent on polling is missing elsewhere in
/// the process: the kernel stops all of its threads when it is used up. Read again once a second;
/// costs next to nothing otherwise. Thread-safe.
bool has_core_to_spare(std::chrono::steady_clock::time_point now);

}  // namespace sinew::internal
