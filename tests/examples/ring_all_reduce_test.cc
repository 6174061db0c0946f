#include "sinew/examples/basics/ring_all_reduce.h"

#include <vector>

#include "ATen/ATen.h"
#include "gtest/gtest.h"
#include "rank_threads.h"

namespace basics {
namespace {

using examples::testing::as_ranks;

/// Small whole numbers, whose sums are exact in all types.
at::Tensor numbers_of(int rank, std::int64_t count, at::ScalarType type) {
  return (at::arange(count, at::kLong) * (rank + 3)).remainder(11).to(type);
}

class RingTest : public ::testing::TestWithParam<int> {};

TEST_P(RingTest, GivesWhatAllReduceGives) {
  as_ranks(GetParam(), [](const sinew::ProcessGroup& group) {
    // More and less elements than ranks, also such that some chunks are empty.
    for (const std::int64_t count : {0, 1, 2, 3, 4, 5, 6, 7, 1000, 100'003}) {
      for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kLong}) {
        const at::Tensor own = numbers_of(group.rank(), count, type);
        const at::Tensor expected = own.clone();
        if (count > 0) group.all_reduce(expected);
        const at::Tensor chunked = own.clone();
        ring_all_reduce(chunked, group);
        EXPECT_TRUE(at::equal(chunked, expected)) << count << " elements of " << type;
        if (count == 0) continue;
        const at::Tensor whole = at::zeros_like(own);
        ring_all_reduce_whole(own, whole, group);
        EXPECT_TRUE(at::equal(whole, expected)) << count << " elements of " << type;
        EXPECT_TRUE(at::equal(own, numbers_of(group.rank(), count, type))) << "was changed";
      }
    }
  });
}

TEST_P(RingTest, FillsTensorsThatAreNotContiguous) {
  as_ranks(GetParam(), [](const sinew::ProcessGroup& group) {
    const at::Tensor all = at::zeros({6, 8});
    const at::Tensor column = all.narrow(1, 2, 3).t();
    column.copy_(numbers_of(group.rank(), 18, at::kFloat).view({3, 6}));
    const at::Tensor expected = column.contiguous();
    group.all_reduce(expected);
    ring_all_reduce(column, group);
    EXPECT_TRUE(at::equal(column, expected));
    EXPECT_EQ(all.narrow(1, 0, 2).abs().sum().item<float>(), 0) << "wrote beside it";
  });
}

TEST_P(RingTest, AllRanksHaveTheSameSumToTheLastDigit) {
  as_ranks(GetParam(), [](const sinew::ProcessGroup& group) {
    const at::Tensor sum = (at::arange(5000, at::kFloat) * (0.1 + group.rank())).sin();
    ring_all_reduce(sum, group);
    const at::Tensor first = sum.clone();
    group.broadcast(first, 0);
    EXPECT_TRUE(at::equal(sum, first));
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, RingTest, ::testing::Values(1, 2, 3, 4, 5));

}  // namespace
}  // namespace basics
