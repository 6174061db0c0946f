#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "sinew/rpc/base/environment.h"

namespace sinew::internal {

/// A number, and the environment variable that says it.
struct NamedNumber {
  std::string variable;
  int value = 0;
};

/// What the environment says of this process as one of the processes (tasks) that Slurm, Open MPI
/// or another MPI has started together.
struct SchedulerTask {
  NamedNumber rank;
  /// At least 1. Unset where only PMIX_RANK is there.
  std::optional<NamedNumber> world_size;
  std::optional<int> local_rank;
  std::optional<int> local_world_size;
  std::optional<int> node_rank;
  /// Where rank 0 runs. kNotFound when the environment does not say, kInvalidArgument when what it
  /// says is wrong.
  absl::StatusOr<std::string> master_address;
  /// The same for all tasks, and most likely another one for other jobs of the host.
  int master_port = 0;
};

/// The task that this process is; nullopt when it was not started as one. Where the variables of
/// several are there, since one was started within another:
///
///     mpirun in a job of Slurm       the MPI's, since Slurm's are those of the MPI's daemons
///     srun --mpi=pmi2, --mpi=pmix    Slurm's, whose PMI it is
///     one MPI's in another one's     kInvalidArgument names the variables, unless they agree
///
/// The script of a job, and a shell on a node (salloc, srun --pty), are no tasks, although Slurm
/// sets the variables there too. kNotFound names a variable that is missing while others are set,
/// kInvalidArgument one that is wrong.
absl::StatusOr<std::optional<SchedulerTask>> find_scheduler_task(
    const EnvironmentReader& environment);

}  // namespace sinew::internal
