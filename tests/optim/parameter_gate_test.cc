#include "sinew/optim/internal/parameter_gate.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sinew/rpc/base/threads/executor.h"
#include "sinew/testing/eventually.h"

using sinew::internal::Executor;
using sinew::internal::ParameterGate;
using ::testing::ElementsAre;

namespace {

class Gate : public ::testing::Test {
 protected:
  ~Gate() override { executor_.shutdown(); }
  std::vector<const void*> keys(std::initializer_list<int> numbers) {
    std::vector<const void*> result;
    for (const int number : numbers) result.push_back(&places_[number]);
    return result;
  }

  char places_[4] = {};
  // One thread: what is posted runs in order.
  static Executor::Options one_thread() {
    Executor::Options options;
    options.num_threads = 1;
    return options;
  }
  Executor executor_{one_thread()};
  const std::shared_ptr<ParameterGate> gate_ = std::make_shared<ParameterGate>(executor_.runner());
};

TEST_F(Gate, FreeWorkRunsAtOnceEvenWithinOther) {
  std::vector<int> ran;
  gate_->run(keys({0, 1}), [&] {
    gate_->run(keys({2}), [&] { ran.push_back(2); });
    ran.push_back(1);
  });
  EXPECT_THAT(ran, ElementsAre(2, 1));
}

TEST_F(Gate, WorkOnTheSameParameterWaitsItsTurn) {
  std::vector<int> ran;
  // Nothing of Abseil: ThreadSanitizer does not see into the packaged library.
  std::atomic<bool> done{false};
  gate_->run(keys({0, 1}), [&] {
    gate_->run(keys({1, 2}), [&] { ran.push_back(1); });
    // Shares nothing with what runs, but with what waits.
    gate_->run(keys({2}), [&] { ran.push_back(2); });
    gate_->run(keys({3}), [&] { ran.push_back(3); });
    gate_->run(keys({0, 1, 2, 3}), [&] {
      ran.push_back(4);
      done = true;
    });
    EXPECT_THAT(ran, ElementsAre(3));
  });
  ASSERT_TRUE(sinew::testing::eventually([&] { return done.load(); }));
  EXPECT_THAT(ran, ElementsAre(3, 1, 2, 4));
}

TEST_F(Gate, ManyThreadsNeverMeet) {
  constexpr int kThreads = 4;
  constexpr int kEach = 500;
  int unguarded[3] = {};
  std::atomic<int> done{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        const int a = (t + i) % 3;
        const int b = (a + 1) % 3;
        gate_->run(keys({a, b}), [&, a, b] {
          ++unguarded[a];
          ++unguarded[b];
          ++done;
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(sinew::testing::eventually([&] { return done == kThreads * kEach; }));
  // The last work's thread may still be in the gate.
  executor_.shutdown();
  EXPECT_EQ(unguarded[0] + unguarded[1] + unguarded[2], 2 * kThreads * kEach);
}

}  // namespace
