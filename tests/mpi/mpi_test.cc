#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/groups/internal/backend.h"
#include "sinew/rpc/base/error.h"
#include "sinew/tests/support/processes.h"

// The mpi backend under a real mpirun. What its ranks do is in mpi_ranks.
namespace sinew::testing {
namespace {

struct Ended {
  int status = 0;
  std::vector<std::string> lines;
};

// Of three ranks on this host. They must have ended before ctest's patience does.
Ended run_job(const std::string& name) {
  ChildProcess mpirun(
      {SINEW_MPIRUN, "--allow-run-as-root", "--oversubscribe", "--mca", "oob_tcp_if_include", "lo",
       "--mca", "btl", "self,vader", "-n", "3", SINEW_MPI_RANKS, name},
      {"OMP_NUM_THREADS=1"});
  Ended ended;
  const std::optional<int> status = mpirun.finish(std::chrono::minutes(2));
  if (!status) {
    ADD_FAILURE() << "the job \"" << name << "\" does not end";
    mpirun.signal(SIGTERM);  // mpirun ends its ranks, which SIGKILL would not
    mpirun.finish();
    return ended;
  }
  ended.status = *status;
  try {
    for (;;) ended.lines.push_back(mpirun.receive());
  } catch (const std::runtime_error&) {
  }
  return ended;
}

class MpiOperations : public ::testing::TestWithParam<const char*> {};

TEST_P(MpiOperations, AreThoseOfLibTorch) { EXPECT_EQ(run_job(GetParam()).status, 0); }

INSTANTIATE_TEST_SUITE_P(All, MpiOperations,
                         ::testing::Values("reductions", "bitwise", "nan", "movements",
                                           "uneven_parts", "sums_in_parts", "messages", "mistakes",
                                           "in_flight", "several_groups"),
                         [](const auto& parameter) { return std::string(parameter.param); });

class MpiGroup : public ::testing::TestWithParam<const char*> {};

TEST_P(MpiGroup, AreWhatUsersSee) { EXPECT_EQ(run_job(GetParam()).status, 0); }

INSTANTIATE_TEST_SUITE_P(All, MpiGroup,
                         ::testing::Values("all_functions", "truth", "mixed", "subgroups",
                                           "disagreement", "time_limit_of_recv",
                                           "destroyed_meanwhile", "wrong_place"),
                         [](const auto& parameter) { return std::string(parameter.param); });

TEST(MpiGroups, DoWhatTheTableSays) {
  const Ended ended = run_job("table");
  EXPECT_EQ(ended.status, 0);
  const std::string text = absl::StrCat(absl::StrJoin(ended.lines, "\n"), "\n");
  std::ifstream file(SINEW_SOURCE_DIR "/docs/groups.md");
  std::stringstream document;
  document << file.rdbuf();
  EXPECT_NE(document.str().find(text), std::string::npos)
      << "docs/groups.md has another table. It should have this:\n"
      << text;
}

TEST(MpiEnds, ATimeLimitFailsTheGroupAndEndsTheJobWithTheProcess) {
  const Ended ended = run_job("time_limit");
  EXPECT_NE(ended.status, 0);
  EXPECT_FALSE(ended.lines.empty());
}

TEST(MpiEnds, AReceiveIsTakenBackAndNothingRemains) {
  EXPECT_EQ(run_job("abort_receive").status, 0);
}

TEST(MpiEnds, ACollectiveThatFailsEndsTheJobWithTheProcess) {
  const Ended ended = run_job("abort_collective");
  EXPECT_NE(ended.status, 0);
  EXPECT_FALSE(ended.lines.empty());
}

TEST(MpiEnds, AKilledRankEndsTheJob) { EXPECT_EQ(run_job("killed").status, 128 + SIGKILL); }

TEST(MpiEnds, ARankThatIsDoneLetsOthersGoOn) {
  const Ended ended = run_job("early_end");
  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.lines, ::testing::UnorderedElementsAre("rank 1 is done", "rank 2 is done"));
}

TEST(MpiEnds, ARankThatFailsEndsTheJobWithItsStatus) { EXPECT_EQ(run_job("failed_end").status, 3); }

TEST(MpiEnds, AGroupWithoutAllItsMembersDoesNotStart) {
  const Ended ended = run_job("late_member");
  EXPECT_NE(ended.status, 0);
  EXPECT_FALSE(ended.lines.empty());
}

TEST(MpiEnds, ARankThatIsAnotherOneForMpiIsRefused) { EXPECT_EQ(run_job("other_place").status, 0); }

TEST(MpiEnds, AForkedProcessHasNoMpi) { EXPECT_EQ(run_job("forked").status, 0); }

TEST(MpiEnds, AProgramMayBeginAndEndMpiItself) { EXPECT_EQ(run_job("begun_by_program").status, 0); }

TEST(MpiEnds, AProgramThatBeginsMpiForOneThreadIsTold) {
  EXPECT_EQ(run_job("begun_for_one_thread").status, 0);
}

TEST(MpiEnds, AProgramThatHasEndedMpiIsTold) { EXPECT_EQ(run_job("ended_by_program").status, 0); }

TEST(MpiEnds, AProcessThatMpirunHasNotStartedIsTold) {
  try {
    internal::mpi_place(std::chrono::seconds(10));
    FAIL() << "it has a place";
  } catch (const RpcError& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
    EXPECT_THAT(error.message(), ::testing::HasSubstr("mpirun -n N"));
  }
}

}  // namespace
}  // namespace sinew::testing
