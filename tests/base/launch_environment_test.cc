#include "sinew/rpc/base/internal/launch_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {
namespace {

using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

EnvironmentReader reader(Variables variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

Variables without(Variables variables, const std::vector<std::string>& names) {
  for (const std::string& name : names) variables.erase(name);
  return variables;
}

std::string shown(const std::optional<int>& number) {
  return number ? std::to_string(*number) : "?";
}

// A port that comes of the job's id; another test looks at its number.
std::string shown_port(const Variables& variables, const std::optional<int>& port) {
  const bool is_derived = port && *port != 29500 && variables.count("MASTER_PORT") == 0;
  return is_derived ? "derived" : shown(port);
}

// "rank/world size local rank/local world size @node rank address:port", or the error's text.
std::string place_of(const Variables& variables, std::optional<int> rank = {},
                     std::optional<int> world_size = {}) {
  const auto environment = LaunchEnvironment::read(reader(variables), rank, world_size);
  if (!environment.ok()) return std::string(environment.status().message());
  const auto place = environment->place();
  if (!place.ok()) return std::string(place.status().message());
  return absl::StrCat(place->rank, "/", place->world_size, " ", shown(place->local_rank), "/",
                      shown(place->local_world_size), " @", shown(place->node_rank), " ",
                      place->master_address.value_or("?"), ":",
                      shown_port(variables, place->master_port));
}

// What `torchrun --nnodes 2 --nproc_per_node 3` sets, on the second node.
Variables torchrun() {
  return {{"RANK", "4"},        {"WORLD_SIZE", "6"},       {"LOCAL_RANK", "1"},
          {"GROUP_RANK", "1"},  {"LOCAL_WORLD_SIZE", "3"}, {"ROLE_RANK", "4"},
          {"MASTER_ADDR", "a"}, {"MASTER_PORT", "29400"}};
}

// What `srun -N3 -n5` sets in the job 17, for the task 3.
Variables srun() {
  return {{"SLURM_PROCID", "3"},
          {"SLURM_NTASKS", "5"},
          {"SLURM_LOCALID", "1"},
          {"SLURM_NODEID", "1"},
          {"SLURM_JOB_ID", "17"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_NNODES", "3"},
          {"SLURM_STEP_NODELIST", "gpu[07-09]"},
          {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
          {"SLURM_TASKS_PER_NODE", "8(x3)"}};
}

// What the script of a job has that asks for three nodes and five tasks.
Variables sbatch() {
  return {{"SLURM_PROCID", "0"},  {"SLURM_NTASKS", "5"},
          {"SLURM_LOCALID", "0"}, {"SLURM_NODEID", "0"},
          {"SLURM_JOB_ID", "17"}, {"SLURM_JOB_NODELIST", "gpu[07-09]"},
          {"SLURM_NNODES", "3"},  {"SLURM_NODELIST", "gpu[07-09]"}};
}

// What Open MPI's `mpirun -n 3` sets on one node.
Variables mpirun() {
  return {{"OMPI_COMM_WORLD_RANK", "2"},       {"OMPI_COMM_WORLD_SIZE", "3"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
          {"OMPI_COMM_WORLD_NODE_RANK", "2"},  {"PMIX_RANK", "2"},
          {"PMIX_NAMESPACE", "1748828161"},    {"OMPI_MCA_ess_base_jobid", "1748828161"}};
}

// What MPICH's `mpiexec -n 2` (Hydra) sets on one node.
Variables hydra() {
  return {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
}

TEST(LaunchEnvironmentTest, EachLauncher) {
  EXPECT_EQ(place_of(torchrun()), "4/6 1/3 @1 a:29400");
  EXPECT_EQ(place_of({{"RANK", "0"}, {"WORLD_SIZE", "1"}}), "0/1 ?/? @? ?:?");
  EXPECT_EQ(place_of(srun()), "3/5 1/2 @1 gpu07:derived");
  EXPECT_EQ(place_of(mpirun()), "2/3 2/3 @0 127.0.0.1:derived");
  EXPECT_EQ(place_of(hydra()), "1/2 1/2 @0 127.0.0.1:29500");
}

TEST(LaunchEnvironmentTest, VariablesOfTorchrunWin) {
  const Variables master = {{"MASTER_ADDR", "[::1]"}, {"MASTER_PORT", "7"}};
  EXPECT_EQ(place_of(with(srun(), torchrun())), "4/6 1/3 @1 a:29400");
  EXPECT_EQ(place_of(with(mpirun(), torchrun())), "4/6 1/3 @1 a:29400");
  EXPECT_EQ(place_of(with(srun(), master)), "3/5 1/2 @1 ::1:7");
  EXPECT_EQ(place_of(with(mpirun(), master)), "2/3 2/3 @0 ::1:7");
  EXPECT_EQ(place_of(with(srun(), {{"MASTER_PORT", "8"}})), "3/5 1/2 @1 gpu07:8");
  EXPECT_EQ(place_of(with(srun(), {{"MASTER_ADDR", "b"}})), "3/5 1/2 @1 b:derived");
  EXPECT_EQ(place_of(with(srun(), {{"LOCAL_RANK", "0"}, {"GROUP_RANK", "2"}})),
            "3/5 0/2 @2 gpu07:derived");
  // The same place, said twice.
  EXPECT_EQ(place_of(with(srun(), {{"RANK", "3"}, {"WORLD_SIZE", "5"}})), place_of(srun()));
  // Another place: nothing of the scheduler's holds for it.
  EXPECT_EQ(place_of(with(srun(), {{"RANK", "2"}, {"WORLD_SIZE", "5"}})), "2/5 ?/? @? ?:?");
  EXPECT_EQ(place_of(with(srun(), {{"RANK", "3"}, {"WORLD_SIZE", "6"}})), "3/6 ?/? @? ?:?");
}

TEST(LaunchEnvironmentTest, HalfOfAPlace) {
  EXPECT_EQ(place_of(with(srun(), {{"RANK", "3"}})), place_of(srun()));
  EXPECT_EQ(place_of(with(srun(), {{"WORLD_SIZE", "5"}})), place_of(srun()));
  EXPECT_THAT(place_of(with(srun(), {{"RANK", "2"}})),
              HasSubstr("the rank (RANK, or an argument) is 2 but the environment variable "
                        "SLURM_PROCID is 3"));
  EXPECT_THAT(place_of(with(srun(), {{"WORLD_SIZE", "4"}})),
              HasSubstr("the world size (WORLD_SIZE, or an argument) is 4 but the environment "
                        "variable SLURM_NTASKS is 5"));
  EXPECT_THAT(place_of(with(mpirun(), {{"WORLD_SIZE", "4"}})), HasSubstr("OMPI_COMM_WORLD_SIZE"));
  EXPECT_THAT(place_of({{"RANK", "0"}}), HasSubstr("WORLD_SIZE is not set"));
  EXPECT_THAT(place_of({{"WORLD_SIZE", "2"}}), HasSubstr("RANK is not set"));
  EXPECT_THAT(place_of({}), HasSubstr("start the program with sinew-run, torchrun, srun or mpi"));
  // Arguments stand for the variables.
  EXPECT_EQ(place_of(srun(), 3), place_of(srun()));
  EXPECT_THAT(place_of(srun(), 0), HasSubstr("SLURM_PROCID"));
  EXPECT_THAT(place_of(with(srun(), {{"WORLD_SIZE", "5"}}), {}, 4), HasSubstr("SLURM_NTASKS"));
  EXPECT_EQ(place_of(srun(), 0, 2), "0/2 ?/? @? ?:?");
}

TEST(LaunchEnvironmentTest, OpenMembershipTakesNothingOfASchedulers) {
  const auto open =
      LaunchEnvironment::read(reader(with(srun(), {{"WORLD_SIZE", "0"}, {"MASTER_ADDR", "a"}})));
  ASSERT_TRUE(open.ok()) << open.status();
  EXPECT_EQ(open->rank(), std::nullopt);
  EXPECT_EQ(open->world_size(), 0);
  EXPECT_EQ(open->master_address().value_or("?"), "a");
  EXPECT_EQ(open->master_port().status().code(), absl::StatusCode::kNotFound);
  const auto alone = LaunchEnvironment::read(reader({{"RANK", "0"}}));
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_EQ(alone->rank(), 0);
  EXPECT_EQ(alone->world_size(), std::nullopt);
}

TEST(LaunchEnvironmentTest, TasksOfAJobAgreeOnAPort) {
  const auto port = [](const Variables& variables) {
    return LaunchEnvironment::read(reader(variables))->master_port().value_or(-1);
  };
  const int of_step = port(srun());
  EXPECT_GE(of_step, 20000);
  EXPECT_LT(of_step, 32000);
  const Variables other_task = {
      {"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}, {"SLURM_NODEID", "0"}};
  EXPECT_EQ(port(with(srun(), other_task)), of_step);
  EXPECT_NE(port(with(srun(), {{"SLURM_STEP_ID", "1"}})), of_step);
  EXPECT_NE(port(with(srun(), {{"SLURM_JOB_ID", "18"}})), of_step);
  EXPECT_EQ(port(without(srun(), {"SLURM_JOB_ID"})), 29500);
  const int of_mpirun = port(mpirun());
  EXPECT_EQ(port(with(mpirun(), {{"OMPI_COMM_WORLD_RANK", "0"}, {"PMIX_RANK", "0"}})), of_mpirun);
  EXPECT_EQ(port(without(mpirun(), {"PMIX_NAMESPACE"})), of_mpirun);
  EXPECT_NE(port(with(mpirun(), {{"PMIX_NAMESPACE", "1748893697"}})), of_mpirun);
  EXPECT_NE(port(with(hydra(), {{"PMI_JOBID", "7.0"}})), 29500);
}

// Its processes cannot listen there then.
TEST(LaunchEnvironmentTest, TorchrunThatListensAtTheMasterPort) {
  const auto port = [](const Variables& variables) {
    return LaunchEnvironment::read(reader(variables))->master_port().value_or(-1);
  };
  const Variables taken = with(torchrun(), {{"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  EXPECT_NE(port(taken), 29400);
  EXPECT_EQ(port(with(taken, {{"RANK", "0"}, {"GROUP_RANK", "0"}})), port(taken));
  EXPECT_NE(port(with(taken, {{"MASTER_PORT", "29401"}})), port(taken));
  EXPECT_EQ(port(with(taken, {{"MASTER_PORT", "x"}})), -1);
  EXPECT_EQ(port(with(torchrun(), {{"TORCHELASTIC_USE_AGENT_STORE", "False"}})), 29400);
}

TEST(LaunchEnvironmentTest, OneNodeMeetsOnLoopback) {
  const Variables one_node = {
      {"SLURM_STEP_NODELIST", "gpu07"}, {"SLURM_STEP_TASKS_PER_NODE", "5"}, {"SLURM_NODEID", "0"}};
  EXPECT_EQ(place_of(with(srun(), one_node)), "3/5 1/5 @0 127.0.0.1:derived");
  EXPECT_EQ(place_of(with(srun(), {{"SLURM_STEP_NODELIST", "gpu[7-7]"}})),
            "3/5 1/2 @1 127.0.0.1:derived");
  // Neither MPI says which host rank 0 is on.
  for (const auto& [variables, local_size] :
       {std::pair(mpirun(), "OMPI_COMM_WORLD_LOCAL_SIZE"), std::pair(hydra(), "MPI_LOCALNRANKS")}) {
    const auto environment = LaunchEnvironment::read(
        reader(with(variables, {{local_size, "1"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}})));
    ASSERT_TRUE(environment.ok()) << environment.status();
    const absl::Status status = environment->master_address().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(std::string(status.message()), HasSubstr("set it to that host")) << local_size;
  }
}

TEST(LaunchEnvironmentTest, OneLauncherWithinAnother) {
  // mpirun within a job of Slurm: Slurm's variables are those of the script, or of the daemons.
  EXPECT_EQ(place_of(with(sbatch(), mpirun())), place_of(mpirun()));
  EXPECT_EQ(place_of(with(srun(), mpirun())), place_of(mpirun()));
  EXPECT_EQ(place_of(with(srun(), hydra())), place_of(hydra()));
  // Slurm's own PMI and PMIx.
  EXPECT_EQ(place_of(with(srun(), {{"PMI_RANK", "3"}, {"PMI_SIZE", "5"}, {"PMI_JOBID", "17.0"}})),
            place_of(srun()));
  const Variables pmix = {{"PMIX_RANK", "3"}, {"PMIX_NAMESPACE", "slurm.pmix.17.0"}};
  EXPECT_EQ(place_of(with(srun(), pmix)), place_of(srun()));
  EXPECT_EQ(place_of(with(with(mpirun(), srun()), pmix)), place_of(srun()));
  // mpirun in a shell that srun --mpi=pmi2 gave.
  const Variables shell = with(
      srun(), {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"PMI_RANK", "0"}, {"PMI_SIZE", "1"}});
  EXPECT_EQ(place_of(with(shell, mpirun())), place_of(mpirun()));
  // Two of which nobody can say which is the inner one.
  EXPECT_THAT(place_of(with(mpirun(), {{"PMIX_RANK", "1"}})),
              HasSubstr("OMPI_COMM_WORLD_RANK (2) and PMIX_RANK (1) contradict each other"));
  EXPECT_THAT(place_of(with(mpirun(), hydra())), HasSubstr("PMI_RANK (1) contradict"));
  EXPECT_THAT(place_of(with(mpirun(), {{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}})),
              HasSubstr("PMI_SIZE (4) contradict"));
  EXPECT_EQ(place_of(with(mpirun(), {{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}})), place_of(mpirun()));
}

TEST(LaunchEnvironmentTest, ScriptsAndShellsOfSlurmAreNoTasks) {
  const std::string what_to_do = "start the program with srun";
  EXPECT_THAT(place_of(sbatch()), HasSubstr(what_to_do));
  EXPECT_THAT(place_of(with(srun(), {{"SLURM_PTY_PORT", "39221"}})), HasSubstr(what_to_do));
  EXPECT_THAT(place_of(with(srun(), {{"SLURM_STEP_ID", "4294967290"}})), HasSubstr(what_to_do));
  EXPECT_EQ(place_of(with(sbatch(), {{"RANK", "0"}, {"WORLD_SIZE", "1"}})), "0/1 ?/? @? ?:?");
}

TEST(LaunchEnvironmentTest, PmixRankAloneNeedsTheRest) {
  const Variables pmix = {{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "prterun-a-1@1"}};
  EXPECT_THAT(place_of(pmix), HasSubstr("PMIX_RANK is set but none says how many processes"));
  EXPECT_EQ(place_of(with(pmix, {{"WORLD_SIZE", "2"}})), "1/2 ?/? @? ?:derived");
  const auto sized = LaunchEnvironment::read(reader(with(pmix, {{"WORLD_SIZE", "2"}})));
  EXPECT_THAT(std::string(sized->master_address().status().message()), HasSubstr("PMIX_RANK"));
}

TEST(LaunchEnvironmentTest, ErrorsNameTheVariable) {
  struct Case {
    Variables variables;
    std::string text;
  };
  const Case cases[] = {
      {with(srun(), {{"SLURM_PROCID", "three"}}), "SLURM_PROCID is 'three'"},
      {with(srun(), {{"SLURM_PROCID", "5"}}), "SLURM_PROCID is 5; it goes from 0 to 4"},
      {with(srun(), {{"SLURM_PROCID", "-1"}}), "SLURM_PROCID is -1"},
      {with(srun(), {{"SLURM_NTASKS", "0"}}), "SLURM_NTASKS is 0; it is 1 at least"},
      {with(srun(), {{"SLURM_NTASKS", ""}}), "SLURM_NTASKS is ''"},
      {with(srun(), {{"SLURM_NTASKS", "99999999999"}}), "SLURM_NTASKS is '99999999999'"},
      {with(srun(), {{"SLURM_LOCALID", "x"}}), "SLURM_LOCALID is 'x'"},
      {with(srun(), {{"SLURM_NODEID", "x"}}), "SLURM_NODEID is 'x'"},
      {with(srun(), {{"SLURM_NODEID", "7"}}), "SLURM_STEP_TASKS_PER_NODE"},
      {with(srun(), {{"SLURM_STEP_TASKS_PER_NODE", "2(x"}}), "'2(x' is none as Slurm writes it"},
      {with(srun(), {{"SLURM_STEP_NODELIST", "gpu[7-"}}), "'gpu[7-' is none as Slurm writes it"},
      {without(srun(), {"SLURM_NTASKS"}), "SLURM_NTASKS is not set, although SLURM_PROCID is"},
      {with(mpirun(), {{"OMPI_COMM_WORLD_RANK", "3"}}), "OMPI_COMM_WORLD_RANK is 3"},
      {without(mpirun(), {"OMPI_COMM_WORLD_RANK"}), "OMPI_COMM_WORLD_RANK is not set, although"},
      {without(mpirun(), {"OMPI_COMM_WORLD_SIZE"}), "OMPI_COMM_WORLD_SIZE is not set, although"},
      {with(mpirun(), {{"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}), "LOCAL_SIZE is 4; it goes"},
      {with(mpirun(), {{"PMIX_RANK", "?"}}), "PMIX_RANK is '?'"},
      {without(hydra(), {"PMI_SIZE"}), "PMI_SIZE is not set, although PMI_RANK is"},
      {with(hydra(), {{"MPI_LOCALRANKID", "2"}}), "MPI_LOCALRANKID is 2; it goes from 0 to 1"},
      {with(torchrun(), {{"RANK", "6"}}), "ranks go from 0"},
      {with(torchrun(), {{"RANK", "six"}}), "RANK is 'six'"},
      {with(torchrun(), {{"WORLD_SIZE", "-6"}}), "WORLD_SIZE"},
      {with(torchrun(), {{"LOCAL_RANK", "-1"}}), "LOCAL_RANK is -1"},
      {with(torchrun(), {{"LOCAL_RANK", "3"}}), "LOCAL_RANK) is 3"},
      {with(torchrun(), {{"LOCAL_WORLD_SIZE", "0"}}), "LOCAL_WORLD_SIZE is 0"},
      {with(torchrun(), {{"GROUP_RANK", "a"}}), "GROUP_RANK is 'a'"},
      {with(torchrun(), {{"MASTER_ADDR", ""}}), "MASTER_ADDR is empty"},
      {with(torchrun(), {{"MASTER_ADDR", "a b"}}), "MASTER_ADDR is 'a b'"},
      {with(torchrun(), {{"MASTER_PORT", "65536"}}), "MASTER_PORT is '65536'"},
  };
  for (const Case& each : cases) EXPECT_THAT(place_of(each.variables), HasSubstr(each.text));
}

TEST(LaunchPlaceTest, ReadsTheProcess) {
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK"}) ::unsetenv(name);
  EXPECT_THROW(launch_place(), RpcError);
  EXPECT_FALSE(find_launch_place().has_value());
  ::setenv("RANK", "1", 1);
  EXPECT_THROW(launch_place(), RpcError);
  EXPECT_THROW(find_launch_place(), RpcError) << "half a place";
  ::setenv("WORLD_SIZE", "2", 1);
  ::setenv("LOCAL_RANK", "1", 1);
  EXPECT_EQ(launch_place().local_rank, 1);
  EXPECT_EQ(find_launch_place()->rank, 1);
  ::setenv("RANK", "2", 1);
  EXPECT_THROW(launch_place(), RpcError);
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK"}) ::unsetenv(name);
}

}  // namespace
}  // namespace sinew::internal
