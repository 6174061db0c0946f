#include "sinew/rpc/base/internal/launch_environment.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "sinew/rpc/base/internal/job_port.h"
#include "sinew/rpc/base/internal/written_values.h"

namespace sinew::internal {
namespace {

using absl::InvalidArgumentError;
using absl::NotFoundError;

// What a user who has started a program by hand, or in the script of a job, is to do.
absl::Status missing(const EnvironmentReader& environment, absl::string_view name) {
  const bool in_slurm = environment("SLURM_JOB_ID").has_value();
  return NotFoundError(absl::StrCat(
      "the environment variable ", name, " is not set; set it, or start the program with ",
      in_slurm ? "srun (the script of a job and a shell on a node are none of its tasks)"
               : "sinew-run, torchrun, srun or mpirun"));
}

absl::Status contradiction(absl::string_view what, absl::string_view variable, int value,
                           const NamedNumber& scheduler) {
  return InvalidArgumentError(absl::StrCat(
      "the ", what, " (", variable, ", or an argument) is ", value,
      " but the environment variable ", scheduler.variable, " is ", scheduler.value,
      "; set RANK and WORLD_SIZE both, or neither (a world size of 0 is open membership)"));
}

absl::Status check_at_least(absl::string_view name, std::optional<int> value, int least) {
  if (!value || *value >= least) return absl::OkStatus();
  return InvalidArgumentError(absl::StrCat("the environment variable ", name, " is ", *value,
                                           "; it is ", least, " at least"));
}

// The variables that have a scheduler's value for a default.
absl::StatusOr<LaunchPlace> with_local_variables(const EnvironmentReader& environment,
                                                 LaunchPlace place) {
  struct Local {
    const char* name;
    int least;
    std::optional<int>& value;
  };
  const Local locals[] = {{"LOCAL_RANK", 0, place.local_rank},
                          {"LOCAL_WORLD_SIZE", 1, place.local_world_size},
                          {"GROUP_RANK", 0, place.node_rank}};
  for (const Local& local : locals) {
    const absl::StatusOr<std::optional<int>> value = integer_variable(environment, local.name);
    if (!value.ok()) return value.status();
    const absl::Status fits = check_at_least(local.name, *value, local.least);
    if (!fits.ok()) return fits;
    if (*value) local.value = *value;
  }
  if (place.local_rank && place.local_world_size && *place.local_rank >= *place.local_world_size) {
    return InvalidArgumentError(absl::StrCat("the local rank (LOCAL_RANK) is ", *place.local_rank,
                                             " but the local world size (LOCAL_WORLD_SIZE) is ",
                                             *place.local_world_size, "; local ranks go from 0 to ",
                                             *place.local_world_size - 1));
  }
  return place;
}

}  // namespace

absl::StatusOr<LaunchEnvironment> LaunchEnvironment::read(EnvironmentReader environment,
                                                          std::optional<int> rank,
                                                          std::optional<int> world_size) {
  LaunchEnvironment launch(std::move(environment));
  launch.rank_ = rank;
  launch.world_size_ = world_size;
  const absl::Status completed = launch.complete();
  if (!completed.ok()) return completed;
  return launch;
}

absl::Status LaunchEnvironment::complete() {
  if (!world_size_) {
    const absl::StatusOr<std::optional<int>> size = integer_variable(environment_, "WORLD_SIZE");
    if (!size.ok()) return size.status();
    world_size_ = *size;
  }
  if (!rank_) {
    const absl::StatusOr<std::optional<int>> rank = integer_variable(environment_, "RANK");
    if (!rank.ok()) return rank.status();
    rank_ = *rank;
  }
  if (world_size_ == 0 || (rank_ && world_size_)) return absl::OkStatus();
  const absl::StatusOr<std::optional<SchedulerTask>> found = find_scheduler_task(environment_);
  if (!found.ok()) return found.status();
  if (!*found) return absl::OkStatus();
  const SchedulerTask& task = **found;
  if (rank_ && *rank_ != task.rank.value) {
    return contradiction("rank", "RANK", *rank_, task.rank);
  }
  if (world_size_ && task.world_size && *world_size_ != task.world_size->value) {
    return contradiction("world size", "WORLD_SIZE", *world_size_, *task.world_size);
  }
  if (!world_size_ && !task.world_size) {
    return NotFoundError(absl::StrCat("the environment variable ", task.rank.variable,
                                      " is set but none says how many processes there are; set "
                                      "WORLD_SIZE"));
  }
  if (!rank_) rank_ = task.rank.value;
  if (!world_size_) world_size_ = task.world_size->value;
  return absl::OkStatus();
}

absl::StatusOr<std::optional<SchedulerTask>> LaunchEnvironment::matching_task() const {
  if (!rank_ || !world_size_) return std::optional<SchedulerTask>();
  absl::StatusOr<std::optional<SchedulerTask>> task = find_scheduler_task(environment_);
  if (!task.ok() || !*task) return task;
  const std::optional<NamedNumber>& size = (*task)->world_size;
  const bool matches = (*task)->rank.value == *rank_ && (!size || size->value == *world_size_);
  if (!matches) return std::optional<SchedulerTask>();
  return task;
}

absl::StatusOr<std::string> LaunchEnvironment::master_address() const {
  const std::optional<std::string> variable = environment_("MASTER_ADDR");
  if (!variable) {
    const absl::StatusOr<std::optional<SchedulerTask>> task = matching_task();
    if (!task.ok()) return task.status();
    if (!*task) return missing(environment_, "MASTER_ADDR");
    return (*task)->master_address;
  }
  std::string host = *variable;
  if (absl::StartsWith(host, "[") && absl::EndsWith(host, "]")) {
    host = host.substr(1, host.size() - 2);
  }
  if (host.empty()) {
    return InvalidArgumentError(
        "the environment variable MASTER_ADDR is empty; set it to the host of rank 0");
  }
  const absl::Status fits = check_host("the environment variable MASTER_ADDR", host);
  if (!fits.ok()) return fits;
  return host;
}

absl::StatusOr<int> LaunchEnvironment::master_port() const {
  if (const std::optional<std::string> variable = environment_("MASTER_PORT")) {
    const absl::StatusOr<int> port =
        parse_port_of("the environment variable MASTER_PORT", *variable);
    // There torchrun itself listens at it, for PyTorch's processes to meet.
    const bool is_taken = environment_("TORCHELASTIC_USE_AGENT_STORE") == "True";
    if (!port.ok() || !is_taken) return port;
    return job_port(absl::StrCat("torchrun ", environment_("MASTER_ADDR").value_or(""), " ", *port,
                                 " ", environment_("TORCHELASTIC_RUN_ID").value_or("")));
  }
  const absl::StatusOr<std::optional<SchedulerTask>> task = matching_task();
  if (!task.ok()) return task.status();
  if (!*task) return missing(environment_, "MASTER_PORT");
  return (*task)->master_port;
}

absl::StatusOr<LaunchPlace> LaunchEnvironment::place() const {
  if (!world_size_ || *world_size_ == 0) return missing(environment_, "WORLD_SIZE");
  if (!rank_) return missing(environment_, "RANK");
  if (*rank_ < 0 || *rank_ >= *world_size_) {
    return InvalidArgumentError(absl::StrCat("the rank (RANK) is ", *rank_,
                                             " but the world size (WORLD_SIZE) is ", *world_size_,
                                             "; ranks go from 0 to one less than the world size"));
  }
  LaunchPlace place;
  place.rank = *rank_;
  place.world_size = *world_size_;
  const absl::StatusOr<std::optional<SchedulerTask>> task = matching_task();
  if (task.ok() && *task) {
    place.local_rank = (*task)->local_rank;
    place.local_world_size = (*task)->local_world_size;
    place.node_rank = (*task)->node_rank;
  }
  absl::StatusOr<LaunchPlace> found = with_local_variables(environment_, std::move(place));
  if (!found.ok()) return found;
  const absl::StatusOr<std::string> address = master_address();
  if (!address.ok() && !absl::IsNotFound(address.status())) return address.status();
  const absl::StatusOr<int> port = master_port();
  if (!port.ok() && !absl::IsNotFound(port.status())) return port.status();
  if (address.ok()) found->master_address = *address;
  if (port.ok()) found->master_port = *port;
  return found;
}

}  // namespace sinew::internal
