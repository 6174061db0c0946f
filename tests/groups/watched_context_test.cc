// Gloo's connections that the other end has closed, between contexts of one process.

#include "sinew/groups/internal/gloo/watched_context.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gloo/common/error.h"
#include "gloo/transport/address.h"
#include "gloo/transport/pair.h"
#include "gloo/transport/tcp/device.h"
#include "gloo/transport/unbound_buffer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {

using sinew::internal::await_on_broken;
using sinew::internal::make_watched_context;
using sinew::internal::OnBroken;

// Only a failing test waits so long.
constexpr std::chrono::minutes kLongest{2};

/// Three ranks; each calls its own OnBroken.
class WatchedContext : public ::testing::Test {
 protected:
  static constexpr int kSize = 3;

  void connect(const std::vector<OnBroken>& on_broken) {
    // Whatever the test was started with.
    std::signal(SIGPIPE, SIG_DFL);
    for (int rank = 0; rank < kSize; ++rank) {
      contexts_.push_back(make_watched_context(gloo::transport::tcp::CreateDevice("127.0.0.1"),
                                               rank, kSize,
                                               on_broken[static_cast<std::size_t>(rank)]));
      contexts_.back()->setTimeout(kLongest);
      for (int peer = 0; peer < kSize; ++peer) {
        if (peer != rank) contexts_.back()->createPair(peer);
      }
    }
    // All before any: a pair that connects has another address.
    std::vector<std::function<void()>> connects;
    for (int rank = 0; rank < kSize; ++rank) {
      for (int peer = 0; peer < kSize; ++peer) {
        if (peer == rank) continue;
        connects.push_back([this, rank, peer, address = pair(peer, rank).address().bytes()] {
          pair(rank, peer).connect(address);
        });
      }
    }
    std::vector<std::thread> threads;
    for (auto& connect : connects) threads.emplace_back(std::move(connect));
    for (std::thread& thread : threads) thread.join();
  }

  gloo::transport::Pair& pair(int rank, int peer) {
    return *contexts_[static_cast<std::size_t>(rank)]->getPair(peer);
  }

  std::vector<std::shared_ptr<gloo::transport::Context>> contexts_;
};

TEST_F(WatchedContext, WritesToAClosedConnectionAreNoEndOfTheProcess) {
  std::promise<void> first;
  std::promise<void> second;
  std::promise<void> goes_on;
  std::vector<int> broken;
  connect({[&](int rank) {
             broken.push_back(rank);
             if (broken.size() == 2) return second.set_value();
             // As long as Gloo's thread is here it notices nothing else.
             first.set_value();
             goes_on.get_future().wait_for(kLongest);
           },
           [](int) {}, [](int) {}});
  pair(2, 0).close();
  ASSERT_EQ(first.get_future().wait_for(kLongest), std::future_status::ready);
  contexts_[1].reset();
  int data = 0;
  const auto buffer = contexts_[0]->createUnboundBuffer(&data, sizeof data);
  // This thread writes to the connection until it hears that it is closed, then Gloo's does.
  for (std::uint64_t slot = 0; slot < 3; ++slot) buffer->send(1, slot, 0, sizeof data);
  goes_on.set_value();
  ASSERT_EQ(second.get_future().wait_for(kLongest), std::future_status::ready);
  EXPECT_THAT(broken, ::testing::ElementsAre(2, 1));
  EXPECT_THROW(buffer->waitSend(kLongest), gloo::IoException);
  // Others see the signal as before.
  EXPECT_EXIT(std::raise(SIGPIPE), ::testing::KilledBySignal(SIGPIPE), "");
}

// Gloo wakes who waits for data before it closes the connection.
TEST_F(WatchedContext, WhoHearsOfABrokenConnectionCanWaitUntilItIsSaid) {
  std::promise<void> thrown;
  std::future<void> has_thrown = thrown.get_future();
  std::atomic<bool> said{false};
  connect({[&](int) {
             has_thrown.wait_for(kLongest);
             // Who does not wait looks first; who waits passes however long it takes.
             std::this_thread::sleep_for(std::chrono::milliseconds(20));
             said = true;
           },
           [](int) {}, [](int) {}});
  int data = 0;
  const auto buffer = contexts_[0]->createUnboundBuffer(&data, sizeof data);
  buffer->recv(1, 0, 0, sizeof data);
  pair(1, 0).close();
  EXPECT_THROW(buffer->waitRecv(kLongest), gloo::IoException);
  thrown.set_value();
  await_on_broken(*contexts_[0]);
  EXPECT_TRUE(said);
  // The callback's variables end here.
  contexts_.clear();
}

TEST_F(WatchedContext, WhatIsClosedHereIsNotBroken) {
  std::promise<int> broken_at_0;
  std::promise<int> broken_at_1;
  connect({[&](int rank) { broken_at_0.set_value(rank); },
           [&](int rank) { broken_at_1.set_value(rank); }, [](int) {}});
  pair(0, 1).close();
  std::future<int> there = broken_at_1.get_future();
  ASSERT_EQ(there.wait_for(kLongest), std::future_status::ready);
  EXPECT_EQ(there.get(), 0);
  // A later one is heard of, and is the first.
  pair(2, 0).close();
  std::future<int> here = broken_at_0.get_future();
  ASSERT_EQ(here.wait_for(kLongest), std::future_status::ready);
  EXPECT_EQ(here.get(), 2);
}

}  // namespace
