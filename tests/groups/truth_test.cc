// The table of small programs whose right results are known: ranks that are threads; in processes,
// see group_process_test, and over MPI, tests/mpi.

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/tests/groups/ranks.h"
#include "sinew/tests/groups/truth_table.h"

using sinew::ProcessGroup;
using sinew::testing::Ranks;

namespace {

class Truth : public ::testing::TestWithParam<int> {};

TEST_P(Truth, IsWhatComesOut) {
  Ranks(GetParam()).run([](const ProcessGroup& group) {
    EXPECT_THAT(sinew::testing::wrong_rows(group), ::testing::IsEmpty());
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Truth, ::testing::Values(2, 3));

}  // namespace
