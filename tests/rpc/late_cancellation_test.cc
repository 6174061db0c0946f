#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "sinew/rpc/cancellation.h"

namespace sinew::internal {
namespace {

TEST(LateCancellationTest, TokensOfBeforeAndAfterAreCancelled) {
  LateCancellation cancellation;
  const CancellationToken before = cancellation.token();
  int calls = 0;
  before.notify([&] { ++calls; });
  EXPECT_TRUE(before.can_be_cancelled());
  EXPECT_FALSE(before.is_cancelled());
  EXPECT_FALSE(cancellation.is_cancelled());
  cancellation.cancel();
  cancellation.cancel();
  EXPECT_TRUE(cancellation.is_cancelled());
  EXPECT_TRUE(before.is_cancelled());
  EXPECT_TRUE(cancellation.token().is_cancelled());
  EXPECT_EQ(calls, 1);
}

TEST(LateCancellationTest, TheFirstTokenOfWhatIsCancelledIsCancelled) {
  LateCancellation cancellation;
  cancellation.cancel();
  int calls = 0;
  cancellation.token().notify([&] { ++calls; });
  EXPECT_EQ(calls, 1);
}

TEST(LateCancellationTest, TokensOutliveIt) {
  auto cancellation = std::make_unique<LateCancellation>();
  const CancellationToken token = cancellation->token();
  cancellation.reset();
  EXPECT_FALSE(token.is_cancelled());
}

// Whoever comes first: none is missed, and all share one state.
TEST(LateCancellationTest, NoTokenIsMissedThatIsMadeMeanwhile) {
  for (int round = 0; round < 500; ++round) {
    LateCancellation cancellation;
    std::atomic<int> ready{0};
    std::atomic<int> told{0};
    const auto together = [&](const auto& act) {
      return std::thread([&ready, act] {
        ++ready;
        while (ready < 3) std::this_thread::yield();
        act();
      });
    };
    const auto ask = [&] { cancellation.token().notify([&] { ++told; }); };
    std::vector<std::thread> threads;
    threads.push_back(together(ask));
    threads.push_back(together(ask));
    threads.push_back(together([&] { cancellation.cancel(); }));
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(told, 2);
  }
}

}  // namespace
}  // namespace sinew::internal
