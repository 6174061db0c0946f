#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sinew/launch/ctl/job_view.h"

namespace sinew::internal {

/// Something that does not go on, and why.
struct Finding {
  enum class Kind {
    /// Calls that wait for each other.
    kCycle,
    /// A call that others wait for, and that itself waits for nothing.
    kRoot,
    /// Calls that no thread has begun.
    kQueue,
    /// A barrier or gather at which a worker is missing.
    kGather,
    /// A collective that a rank has not called.
    kCollective,
    /// A connection that carries nothing, or too little.
    kLink,
    /// The registrar does not answer.
    kRegistry,
    /// A worker says nothing.
    kSilent,
  };
  Kind kind;
  /// The first line says what, the others show it.
  std::vector<std::string> lines;
};

/// What is stuck in a job, by what its workers said twice, some time apart (the lists made_calls,
/// served_calls, links, gathers and groups). Calls and barriers count that are as old as
/// `patience`. Pure. The order: causes first.
std::vector<Finding> find_stuck(const JobView& before, const JobView& now,
                                std::chrono::microseconds patience);

/// Asks the workers twice, and says what find_stuck() finds.
absl::StatusOr<std::vector<Finding>> look_for_stuck(const JobAccess& access,
                                                    std::chrono::microseconds patience);

}  // namespace sinew::internal
