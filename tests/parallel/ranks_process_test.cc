// Runs the program of the ranks in as many processes as there are ranks. Its tests are those of
// tests/parallel/ranks/.

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sinew/tests/support/processes.h"
#include "sinew/tests/support/temporary_folder.h"

using sinew::testing::ChildProcess;
using sinew::testing::EndedProcess;
using sinew::testing::TemporaryFolder;

namespace {

std::vector<EndedProcess> run_ranks(int size, const std::string& filter) {
  const TemporaryFolder folder;
  std::vector<std::unique_ptr<ChildProcess>> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back(std::make_unique<ChildProcess>(
        std::vector<std::string>{PARALLEL_RANKS, "--gtest_filter=" + filter},
        std::vector<std::string>{"TEST_RANK=" + std::to_string(rank),
                                 "TEST_SIZE=" + std::to_string(size),
                                 "TEST_FOLDER=" + folder.file(""), "OMP_NUM_THREADS=1"}));
  }
  return sinew::testing::run_to_the_end(ranks);
}

void expect_all_well(int size, const std::string& filter) {
  const std::vector<EndedProcess> ended = run_ranks(size, filter);
  for (std::size_t rank = 0; rank < ended.size(); ++rank) {
    EXPECT_EQ(ended[rank].code, 0) << "rank " << rank << " wrote:\n" << ended[rank].output;
    EXPECT_THAT(ended[rank].output, ::testing::HasSubstr("[  PASSED  ]"));
  }
}

TEST(Ranks, Two) { expect_all_well(2, "-Dying*"); }
TEST(Ranks, Four) { expect_all_well(4, "-Dying*"); }

// Its last rank kills itself in the middle of the test, and all others fail with an error.
TEST(Ranks, OneDiesInsideOfBackward) {
  for (const char* test : {"DyingRank.LeavesErrors", "DyingTrainer.LeavesErrors"}) {
    const std::vector<EndedProcess> ended = run_ranks(3, test);
    EXPECT_EQ(ended[0].code, 0) << ended[0].output;
    EXPECT_EQ(ended[1].code, 0) << ended[1].output;
    EXPECT_EQ(ended[2].code, 128 + 9) << ended[2].output;
  }
}

}  // namespace
