#include "sinew/rpc/base/internal/scheduler_task.h"

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "sinew/rpc/base/internal/job_port.h"
#include "sinew/rpc/base/internal/slurm_lists.h"
#include "sinew/rpc/base/internal/written_values.h"

namespace sinew::internal {
namespace {

using absl::InvalidArgumentError;
using absl::NotFoundError;
using Found = absl::StatusOr<std::optional<SchedulerTask>>;

constexpr char kLoopback[] = "127.0.0.1";

absl::StatusOr<NamedNumber> require_number(const EnvironmentReader& environment,
                                           const std::string& name, absl::string_view beside) {
  const absl::StatusOr<std::optional<int>> value = integer_variable(environment, name);
  if (!value.ok()) return value.status();
  if (*value) return NamedNumber{name, **value};
  return NotFoundError(absl::StrCat("the environment variable ", name, " is not set, although ",
                                    beside, " is; set RANK and WORLD_SIZE, or unset that"));
}

absl::Status check_range(const NamedNumber& number, int first, std::optional<int> end) {
  if (number.value >= first && (!end || number.value < *end)) return absl::OkStatus();
  return InvalidArgumentError(
      absl::StrCat("the environment variable ", number.variable, " is ", number.value,
                   end ? absl::StrCat("; it goes from ", first, " to ", *end - 1)
                       : absl::StrCat("; it is ", first, " at least")));
}

struct Names {
  std::string rank;
  std::string world_size;
  std::string local_rank;
  /// Empty: no variable says it in one number.
  std::string local_world_size;
};

absl::StatusOr<std::optional<int>> optional_number(const EnvironmentReader& environment,
                                                   const std::string& name, int first,
                                                   std::optional<int> end) {
  if (name.empty()) return std::optional<int>();
  absl::StatusOr<std::optional<int>> value = integer_variable(environment, name);
  if (!value.ok() || !*value) return value;
  const absl::Status fits = check_range({name, **value}, first, end);
  if (!fits.ok()) return fits;
  return value;
}

absl::StatusOr<SchedulerTask> read_numbers(const EnvironmentReader& environment,
                                           const Names& names) {
  absl::StatusOr<NamedNumber> size = require_number(environment, names.world_size, names.rank);
  if (!size.ok()) return size.status();
  if (absl::Status fits = check_range(*size, 1, std::nullopt); !fits.ok()) return fits;
  absl::StatusOr<NamedNumber> rank = require_number(environment, names.rank, names.world_size);
  if (!rank.ok()) return rank.status();
  if (absl::Status fits = check_range(*rank, 0, size->value); !fits.ok()) return fits;
  const absl::StatusOr<std::optional<int>> local_rank =
      optional_number(environment, names.local_rank, 0, size->value);
  if (!local_rank.ok()) return local_rank.status();
  const absl::StatusOr<std::optional<int>> local_size =
      optional_number(environment, names.local_world_size, 1, size->value + 1);
  if (!local_size.ok()) return local_size.status();
  SchedulerTask task;
  task.rank = *std::move(rank);
  task.world_size = *std::move(size);
  task.local_rank = *local_rank;
  task.local_world_size = *local_size;
  return task;
}

absl::StatusOr<SchedulerTask> slurm_task(const EnvironmentReader& environment,
                                         const std::string& node_list) {
  absl::StatusOr<SchedulerTask> task =
      read_numbers(environment, {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ""});
  if (!task.ok()) return task;
  const absl::StatusOr<std::optional<int>> node =
      optional_number(environment, "SLURM_NODEID", 0, std::nullopt);
  if (!node.ok()) return node.status();
  task->node_rank = *node;
  const std::string tasks_name = environment("SLURM_STEP_TASKS_PER_NODE")
                                     ? "SLURM_STEP_TASKS_PER_NODE"
                                     : "SLURM_TASKS_PER_NODE";
  if (const std::optional<std::string> tasks = environment(tasks_name); tasks && *node) {
    const absl::StatusOr<int> size = parse_slurm_tasks_of_node(*tasks, **node);
    if (!size.ok()) {
      return InvalidArgumentError(absl::StrCat("the environment variable ", tasks_name,
                                               " is wrong: ", size.status().message()));
    }
    task->local_world_size = *size;
  }
  const absl::StatusOr<SlurmNodes> nodes = parse_slurm_nodes(node_list);
  if (!nodes.ok()) {
    task->master_address = InvalidArgumentError(absl::StrCat(
        "the environment variable SLURM_STEP_NODELIST is wrong: ", nodes.status().message(),
        "; set MASTER_ADDR"));
  } else {
    // The names of one node need not be known to it.
    task->master_address = nodes->count == 1 ? std::string(kLoopback) : nodes->first;
  }
  const std::optional<std::string> job = environment("SLURM_JOB_ID");
  task->master_port = job_port(
      job ? absl::StrCat("slurm ", *job, ".", environment("SLURM_STEP_ID").value_or("")) : "");
  return task;
}

// The job's id is what the first of those variables that is set says.
int port_of(const EnvironmentReader& environment, const std::vector<std::string>& variables) {
  for (const std::string& variable : variables) {
    if (const auto job = environment(variable)) return job_port(absl::StrCat("mpi ", *job));
  }
  return job_port("");
}

absl::StatusOr<SchedulerTask> mpi_task(const EnvironmentReader& environment,
                                       absl::string_view launcher, const Names& names,
                                       const std::vector<std::string>& jobs) {
  absl::StatusOr<SchedulerTask> task = read_numbers(environment, names);
  if (!task.ok()) return task;
  task->master_port = port_of(environment, jobs);
  if (task->local_world_size == task->world_size->value) {
    // All are on one node, so it is this one.
    task->node_rank = 0;
    task->master_address = kLoopback;
  } else {
    task->master_address = NotFoundError(
        absl::StrCat("the environment variable MASTER_ADDR is not set, and ", launcher,
                     " does not say on which of its nodes rank 0 runs; set it to that host"));
  }
  return task;
}

absl::StatusOr<SchedulerTask> open_mpi_task(const EnvironmentReader& environment) {
  return mpi_task(environment, "Open MPI",
                  {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                   "OMPI_COMM_WORLD_LOCAL_SIZE"},
                  {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"});
}

absl::StatusOr<SchedulerTask> pmi_task(const EnvironmentReader& environment) {
  return mpi_task(environment, "PMI",
                  {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"}, {"PMI_JOBID"});
}

absl::StatusOr<SchedulerTask> pmix_task(const EnvironmentReader& environment) {
  const absl::StatusOr<std::optional<int>> rank =
      optional_number(environment, "PMIX_RANK", 0, std::nullopt);
  if (!rank.ok()) return rank.status();
  SchedulerTask task;
  task.rank = {"PMIX_RANK", rank->value_or(0)};
  task.master_address = NotFoundError(
      "the environment variable MASTER_ADDR is not set, and PMIX_RANK alone does not say where "
      "rank 0 runs; set it to that host");
  task.master_port = port_of(environment, {"PMIX_NAMESPACE"});
  return task;
}

// Which sets of variables are there, and whose they are.
class Traces {
 public:
  explicit Traces(const EnvironmentReader& environment) : environment_(environment) {}

  /// The step's list of nodes, which the script of a job does not have.
  std::optional<std::string> slurm_nodes() const {
    if (!is_set("SLURM_PROCID") || is_set("SLURM_PTY_PORT")) return std::nullopt;
    const std::optional<std::string> step = environment_("SLURM_STEP_ID");
    // The step of a shell that salloc opens on a node.
    if (step == "4294967290") return std::nullopt;
    return environment_("SLURM_STEP_NODELIST");
  }
  bool pmix_is_slurms() const {
    return absl::StartsWith(environment_("PMIX_NAMESPACE").value_or(""), "slurm.pmix.");
  }
  /// Slurm's PMI starts no tasks of its own.
  bool has_pmi() const {
    const bool is_slurms = environment_("PMI_RANK") == environment_("SLURM_PROCID") &&
                           environment_("PMI_SIZE") == environment_("SLURM_NTASKS");
    return is_set("PMI_RANK") && !is_slurms;
  }
  bool has_pmix() const { return is_set("PMIX_RANK") && !pmix_is_slurms(); }
  bool has_open_mpi() const {
    return (is_set("OMPI_COMM_WORLD_RANK") || is_set("OMPI_COMM_WORLD_SIZE")) && !pmix_is_slurms();
  }

  /// kInvalidArgument when `other`, if it is set, is not what `number` is.
  absl::Status check_same(const NamedNumber& number, const std::string& other) const {
    const absl::StatusOr<std::optional<int>> value = integer_variable(environment_, other);
    if (!value.ok()) return value.status();
    if (!*value || **value == number.value) return absl::OkStatus();
    return InvalidArgumentError(
        absl::StrCat("the environment variables ", number.variable, " (", number.value, ") and ",
                     other, " (", **value,
                     ") contradict each other: one launcher was started within another; set RANK, "
                     "WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or unset those of the outer one"));
  }

 private:
  bool is_set(const std::string& name) const { return environment_(name).has_value(); }

  const EnvironmentReader& environment_;
};

absl::Status check_open_mpi(const SchedulerTask& task, const Traces& traces) {
  absl::Status same = traces.check_same(task.rank, "PMIX_RANK");
  if (same.ok() && traces.has_pmi()) same = traces.check_same(task.rank, "PMI_RANK");
  if (same.ok() && traces.has_pmi()) same = traces.check_same(*task.world_size, "PMI_SIZE");
  return same;
}

Found found(absl::StatusOr<SchedulerTask> task) {
  if (!task.ok()) return task.status();
  return std::optional<SchedulerTask>(*std::move(task));
}

}  // namespace

Found find_scheduler_task(const EnvironmentReader& environment) {
  const Traces traces(environment);
  if (traces.has_open_mpi()) {
    absl::StatusOr<SchedulerTask> task = open_mpi_task(environment);
    if (!task.ok()) return task.status();
    if (absl::Status fits = check_open_mpi(*task, traces); !fits.ok()) return fits;
    return found(std::move(task));
  }
  if (traces.has_pmi()) return found(pmi_task(environment));
  if (const std::optional<std::string> nodes = traces.slurm_nodes()) {
    return found(slurm_task(environment, *nodes));
  }
  if (traces.has_pmix()) return found(pmix_task(environment));
  return std::optional<SchedulerTask>();
}

}  // namespace sinew::internal
