// Coroutines of objects that are called by one at a time.

#include <algorithm>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "sinew/rpc/coroutine.h"
#include "sinew/tests/coroutines/signal.h"
#include "sinew/tests/support/cluster.h"

namespace turned {

sinew::testing::Signal signal;

/// Without a mutex. Counts how many are in it at once.
class Lonely {
 public:
  sinew::Future<int> visit(int rounds) {
    int sum = 0;
    for (int i = 0; i < rounds; ++i) {
      look_around();
      if (i % 2 == 0) {
        sum += co_await signal.get();
      } else {
        sum += co_await inner();
      }
    }
    look_around();
    co_return sum;
  }
  int most() const { return most_; }

 private:
  sinew::Future<int> inner() {
    const int value = co_await signal.get();
    look_around();
    co_return value;
  }
  void look_around() {
    most_ = std::max(most_, ++inside_);
    std::this_thread::yield();
    --inside_;
  }

  int inside_ = 0;
  int most_ = 0;
};

}  // namespace turned

SINEW_SERVICE(turned::Lonely, (), visit, most);

namespace sinew {
namespace {

class CoroutineTurns : public testing::ClusterTest {
 protected:
  void TearDown() override {
    turned::signal.take();
    ClusterTest::TearDown();
  }
  Peer callee() const { return worker(0).peer(1); }
  static bool waiting(std::size_t count) {
    return testing::eventually([count] { return turned::signal.size() == count; });
  }
};
SINEW_INSTANTIATE_CLUSTER_TEST(CoroutineTurns);

// One object, by one at a time, on several threads: a coroutine that waits keeps its turn, or not.
TEST_P(CoroutineTurns, KeepTheirTurnWhileTheyWait) {
  start(2, serve<turned::Lonely>(one_at_a_time()),
        [](int, WorkerOptions& options) { options.num_threads = 4; });
  const auto lonely = callee().remote<turned::Lonely>();
  const auto first = lonely.async<&turned::Lonely::visit>(1);
  const auto second = lonely.async<&turned::Lonely::visit>(1);
  ASSERT_TRUE(waiting(1));
  turned::signal.send(1);
  EXPECT_EQ(first.wait(), 1);
  ASSERT_TRUE(waiting(1));
  EXPECT_FALSE(second.done());
  turned::signal.send(2);
  EXPECT_EQ(second.wait(), 2);
  EXPECT_EQ(lonely.call<&turned::Lonely::most>(), 1);
}

TEST_P(CoroutineTurns, GiveUpTheirTurnWhileTheyWait) {
  start(2, serve<turned::Lonely>(one_at_a_time(OneAtATime::kGivesUpTurn)),
        [](int, WorkerOptions& options) { options.num_threads = 4; });
  const auto lonely = callee().remote<turned::Lonely>();
  constexpr int kVisits = 40;
  constexpr int kRounds = 6;
  std::vector<Future<int>> visits;
  for (int i = 0; i < kVisits; ++i) {
    visits.push_back(lonely.async<&turned::Lonely::visit>(kRounds));
  }
  for (int round = 0; round < kRounds; ++round) {
    ASSERT_TRUE(waiting(kVisits));
    turned::signal.send(1);
  }
  for (const Future<int>& visit : visits) EXPECT_EQ(visit.wait(), kRounds);
  EXPECT_EQ(lonely.call<&turned::Lonely::most>(), 1);
}

TEST_P(CoroutineTurns, AWorkerEndsWhileTheyWaitForTheirTurn) {
  start(2, serve<turned::Lonely>(one_at_a_time(OneAtATime::kGivesUpTurn)));
  const auto lonely = callee().remote<turned::Lonely>();
  std::vector<Future<int>> visits;
  for (int i = 0; i < 20; ++i) visits.push_back(lonely.async<&turned::Lonely::visit>(2));
  ASSERT_TRUE(waiting(20));
  turned::signal.send(1);
  abandon();
  for (const Future<int>& visit : visits) EXPECT_THROW(visit.wait(), RpcError);
}

}  // namespace
}  // namespace sinew
