#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "sinew/rpc/base/environment.h"
#include "sinew/rpc/base/internal/scheduler_task.h"
#include "sinew/rpc/base/launch_place.h"

namespace sinew::internal {

/// What the environment says of a program's place among its like. The variables of torchrun
/// (RANK, WORLD_SIZE, ...) win over those of a scheduler (SchedulerTask), which fill in what is not
/// set as long as they do not contradict it. For one thread.
class LaunchEnvironment {
 public:
  /// `rank` and `world_size` stand for RANK and WORLD_SIZE where they are given. A scheduler's
  /// place is not looked for when both are there, or with a world size of 0 (open membership).
  /// kInvalidArgument when a number is none, or one that is set alone contradicts the scheduler's;
  /// kNotFound when a variable of a scheduler is missing while others of it are set.
  static absl::StatusOr<LaunchEnvironment> read(EnvironmentReader environment,
                                                std::optional<int> rank = std::nullopt,
                                                std::optional<int> world_size = std::nullopt);

  /// Unset when nothing says it. Not checked further when it comes from an argument or RANK.
  std::optional<int> rank() const { return rank_; }
  std::optional<int> world_size() const { return world_size_; }

  /// MASTER_ADDR, without brackets, or where the scheduler has put rank 0: 127.0.0.1 when all are
  /// on one node. kNotFound when nothing says it.
  absl::StatusOr<std::string> master_address() const;
  /// MASTER_PORT, or one that the scheduler's tasks agree on; so do processes of a torchrun that
  /// listens at MASTER_PORT itself. kNotFound when nothing says it.
  absl::StatusOr<int> master_port() const;

  /// All of it. kNotFound when there is no rank or no world size, kInvalidArgument when something
  /// does not fit.
  absl::StatusOr<LaunchPlace> place() const;

 private:
  explicit LaunchEnvironment(EnvironmentReader environment)
      : environment_(std::move(environment)) {}

  /// Takes from the scheduler what the arguments and RANK and WORLD_SIZE lack.
  absl::Status complete();
  /// The scheduler's task if it is the place that this has.
  absl::StatusOr<std::optional<SchedulerTask>> matching_task() const;

  EnvironmentReader environment_;
  std::optional<int> rank_;
  std::optional<int> world_size_;
};

}  // namespace sinew::internal
