// Collectives of several threads of one rank.

#include "sinew/groups/internal/call_order.h"

#include <future>
#include <string>
#include <thread>
#include <vector>

#include "ATen/ATen.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/rpc/base/error.h"
#include "sinew/tests/groups/ranks.h"

using sinew::ErrorCode;
using sinew::Future;
using sinew::GroupOptions;
using sinew::ProcessGroup;
using sinew::RpcError;
using sinew::internal::CallOrder;
using sinew::internal::CollectiveCaller;
using sinew::testing::error_of;
using sinew::testing::Ranks;
using sinew::testing::run_ranks;
using ::testing::HasSubstr;

namespace {

CollectiveCaller waiting(std::uint64_t thread) { return {thread, true}; }
CollectiveCaller going_on(std::uint64_t thread) { return {thread, false}; }

TEST(CallOrder, OneThreadHasOneByItself) {
  CallOrder order;
  for (const auto& caller : {going_on(1), going_on(1), waiting(1), waiting(1)}) {
    EXPECT_EQ(order.begin(caller, 1), std::nullopt);
  }
}

TEST(CallOrder, ThreadsThatTakeTurnsHaveOne) {
  CallOrder order;
  for (const std::uint64_t thread : {1, 2, 1}) {
    for (const auto& caller : {waiting(thread), going_on(thread)}) {
      EXPECT_EQ(order.begin(caller, thread), std::nullopt);
      order.end(caller);
    }
  }
}

TEST(CallOrder, ACallBesideAThreadThatWaitsHasNone) {
  for (const auto& second : {waiting(2), going_on(2)}) {
    CallOrder order;
    EXPECT_EQ(order.begin(waiting(1), 6), std::nullopt);
    EXPECT_EQ(order.begin(second, 7), 6U);
    order.end(waiting(1));
    EXPECT_EQ(order.begin(second, 7), std::nullopt);
  }
}

// As the threads of a backward pass do, in the order of its buckets.
TEST(CallOrder, CallsThatReturnAtOnceMayTakeTurns) {
  CallOrder order;
  for (const std::uint64_t thread : {1, 2, 1}) {
    EXPECT_EQ(order.begin(going_on(thread), thread), std::nullopt);
  }
}

/// What thread `number` of a rank has got: 2,000 sums, or fewer and an error.
struct Got {
  int right = 0;
  int wrong = 0;
  std::string error;
};

Got sum_often(const ProcessGroup& group, float value) {
  Got got;
  try {
    for (int round = 0; round < 2000; ++round) {
      const at::Tensor sum = at::full({4}, value);
      group.all_reduce(sum);
      ++(sum.equal(at::full({4}, 2 * value)) ? got.right : got.wrong);
    }
  } catch (const RpcError& error) {
    got.error = error.message();
  }
  return got;
}

// Without an order each rank's threads would get each other's sums now and then.
TEST(CallOrder, TwoThreadsOfEachRankAreToldInsteadOfGettingEachOthersValues) {
  std::vector<Got> all(4);
  Ranks(2).run([&](const ProcessGroup& group) {
    group.all_reduce(at::zeros({4}));
    run_ranks(2, [&](int thread) {
      all[static_cast<std::size_t>(2 * group.rank() + thread)] =
          sum_often(group, thread == 0 ? 1 : 10);
    });
  });
  for (const Got& got : all) {
    EXPECT_THAT(got.error, HasSubstr("while another thread waits in its collective"))
        << got.right << " are right, " << got.wrong << " are wrong";
  }
}

// One waits for rank 1, which never comes.
TEST(CallOrder, BothThreadsAndTheOtherRankAreTold) {
  Ranks(2).run([](const ProcessGroup& group) {
    group.all_reduce(at::zeros({2}));
    const auto call = [&] {
      EXPECT_THAT(
          error_of([&] { group.all_reduce(at::zeros({2})); }).message(),
          HasSubstr("rank 0 calls all_reduce(SUM) of float32 [2], collective 3 of the "
                    "group 'default', while another thread waits in its collective 2 there"));
    };
    if (group.rank() == 0) {
      run_ranks(2, [&](int) { call(); });
    } else {
      EXPECT_THAT(error_of([&] { group.recv(at::zeros({1}), 0); }).message(),
                  HasSubstr("rank 0 calls all_reduce(SUM)"));
    }
  });
}

TEST(CallOrder, ThreadsThatWaitForEachOtherAreRight) {
  Ranks(2).run([](const ProcessGroup& group) {
    for (int round = 0; round < 20; ++round) {
      const at::Tensor sum = at::full({2}, group.rank() + round);
      std::thread([&] { group.all_reduce_async(sum).wait(); }).join();
      EXPECT_TRUE(sum.equal(at::full({2}, 2 * round + 1)));
      group.all_reduce(sum);
      EXPECT_TRUE(sum.equal(at::full({2}, 4 * round + 2)));
    }
  });
}

TEST(CallOrder, AGroupForEachThreadIsRight) {
  Ranks(2).run([](const ProcessGroup& group) {
    GroupOptions options;
    options.timeout = std::chrono::seconds(60);
    const ProcessGroup groups[] = {group, group.new_group({0, 1}, options)};
    run_ranks(2, [&](int thread) {
      const Got got = sum_often(groups[thread], thread == 0 ? 1 : 10);
      EXPECT_EQ(got.right, 2000);
    });
  });
}

}  // namespace
