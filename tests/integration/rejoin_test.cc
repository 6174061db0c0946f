// An evicted worker comes back as a new one, when it is told to or by itself.

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/tests/process/test_methods.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/faulty_transport.h"

using sinew::ErrorCode;
using sinew::Future;
using sinew::MembershipState;
using sinew::RpcError;
using sinew::Worker;
using sinew::WorkerOptions;
using sinew::internal::FaultPlan;
using sinew::testing::error_of;
using sinew::testing::eventually;
using testapp::Counter;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

namespace {

/// The new workers that on_rejoined was given, in their order.
class Arrivals {
 public:
  void add(const Worker& worker) {
    const std::lock_guard<std::mutex> lock(mutex_);
    workers_.push_back(worker);
  }
  bool wait_for(std::size_t count) {
    return eventually([&] { return this->count() >= count; });
  }
  std::size_t count() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return workers_.size();
  }
  Worker at(std::size_t index) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return workers_.at(index);
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Worker> workers_;
};

class Rejoin : public sinew::testing::ClusterTest {
 protected:
  void TearDown() override { HasFailure() ? abandon() : finish(); }

  /// `plan_` hurts worker2 when it comes back.
  void start_three(std::function<void(int rank, WorkerOptions& options)> tweak = nullptr) {
    sinew::testing::ClusterOptions options;
    options.names = sinew::testing::worker_names(3);
    options.methods = testapp::methods();
    options.tweak = std::move(tweak);
    const auto starts = std::make_shared<std::atomic<int>>(0);
    sinew::testing::wrap_transports(
        options,
        [plan = plan_, starts](int rank, std::unique_ptr<sinew::internal::Transport> inner) {
          return rank == 2 && ++*starts > 1
                     ? sinew::internal::make_faulty_transport(std::move(inner), plan)
                     : std::move(inner);
        });
    start(std::move(options));
  }
  /// Worker2 rejoins by itself.
  void start_three_with_arrivals(std::chrono::nanoseconds join_timeout = 60s) {
    start_three([this, join_timeout](int rank, WorkerOptions& options) {
      if (rank != 2) return;
      options.join_timeout = join_timeout;
      options.on_rejoined = [arrivals = arrivals_](const Worker& next) { arrivals->add(next); };
    });
  }
  /// When worker2 comes back it finds nobody until this is taken back.
  FaultPlan::RuleId isolate() {
    return plan_->fail_connects([](const std::string&) { return true; },
                                absl::UnavailableError("as the test wants"));
  }
  void expect_all_call_all() const {
    for (int from = 0; from < 3; ++from) {
      EXPECT_TRUE(eventually([&] { return worker(from).workers().size() == 3; })) << from;
      for (int to = 0; to < 3; ++to) {
        EXPECT_EQ(worker(from).peer(to).call<&testapp::add>(1, 2), 3) << from << to;
      }
    }
  }
  static void expect_aborted(const std::function<void()>& call) {
    const RpcError error = error_of(call);
    EXPECT_EQ(error.code(), ErrorCode::kAborted) << error.what();
    EXPECT_THAT(error.message(), HasSubstr("'worker2' was evicted from the job"));
  }

  const std::shared_ptr<FaultPlan> plan_ = std::make_shared<FaultPlan>(/*seed=*/1);
  const std::shared_ptr<Arrivals> arrivals_ = std::make_shared<Arrivals>();
};
SINEW_INSTANTIATE_CLUSTER_TEST(Rejoin);

TEST_P(Rejoin, AnEvictedWorkerComesBackAsANewOne) {
  start_three();
  const Worker old = worker(2);
  old.set_default_timeout(42s);
  evict(2);
  const Worker next = old.rejoin();
  replace(2, next);
  EXPECT_FALSE(next == old);
  EXPECT_EQ(next.name(), "worker2");
  EXPECT_EQ(next.rank(), 2);
  EXPECT_NE(next.info().incarnation, old.info().incarnation);
  EXPECT_EQ(next.default_timeout(), 42s);
  EXPECT_EQ(next.membership_state(), MembershipState::kMember);
  expect_all_call_all();
  // With all layers.
  const auto held = next.peer(0).remote<Counter>(1);
  EXPECT_EQ(held.call<&Counter::add>(1), 2);
  // As often as one likes, it is the same.
  EXPECT_EQ(old.rejoin(), next);
  EXPECT_EQ(old.membership_state(), MembershipState::kEvicted);
  EXPECT_FALSE(old.is_running());
  EXPECT_NO_THROW(old.shutdown());
  EXPECT_EQ(old.membership_state(), MembershipState::kEvicted);
  EXPECT_TRUE(next.is_running());
}

TEST_P(Rejoin, WhatWasOfTheOldOneFailsOnceAndForAll) {
  start_three();
  const Worker old = worker(2);
  const auto held = old.peer(0).remote<Counter>(1);
  const auto tensor = old.peer(1).remote<&testapp::make_pattern>(100, 1);
  held.created().wait();
  tensor.created().wait();
  const Future<int> unread = old.peer(0).async<&testapp::stall>();
  std::atomic<int> ends{0};
  unread.on_done([&ends](const Future<int>&) { ++ends; });
  std::thread waits([&] { expect_aborted([&] { old.barrier(60s); }); });
  const sinew::Peer peer = old.peer(1);
  const auto expect_over = [&] {
    expect_aborted([&] { unread.wait(); });
    expect_aborted([&] { held.call<&Counter::add>(1); });
    expect_aborted([&] { tensor.to_here(); });
    expect_aborted([&] { peer.call<&testapp::add>(1, 2); });
    expect_aborted([&] { old.peer(1).call<&testapp::add>(1, 2); });
    expect_aborted([&] { old.peer("worker0").call<&testapp::add>(1, 2); });
    expect_aborted([&] { peer.remote<Counter>(1).created().wait(); });
    expect_aborted([&] { old.barrier(60s); });
  };
  evict(2);
  waits.join();
  expect_over();
  replace(2, old.rejoin());
  expect_over();
  EXPECT_EQ(ends, 1);
  expect_all_call_all();
  testapp::release_at(worker(0));
}

TEST_P(Rejoin, WhatOutlivesTheOldOneFailsLikewise) {
  start_three();
  const auto held = worker(2).peer(0).remote<Counter>(1);
  held.created().wait();
  const auto own = sinew::share_rref(worker(2), std::make_shared<Counter>(0));
  evict(2);
  // No handle to the old one is left.
  replace(2, worker(2).rejoin());
  expect_aborted([&] { held.call<&Counter::add>(1); });
  expect_aborted([&] { worker(2).peer(0).call<&testapp::add_to>(own, 1); });
}

TEST_P(Rejoin, OnlyAnEvictedWorkerCan) {
  start_three();
  const Worker old = worker(2);
  RpcError error = error_of([&] { old.rejoin(); });
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(error.message(), HasSubstr("worker 'worker2' is not evicted"));
  EXPECT_EQ(error_of([] { Worker().rejoin(); }).code(), ErrorCode::kFailedPrecondition);
  const Future<int> failed = old.peer(0).async<&testapp::stall>();
  evict(2);
  // In a continuation, which runs on its own executor.
  const Future<ErrorCode> inside =
      failed.then([old](const Future<int>&) { return error_of([&] { old.rejoin(); }).code(); });
  EXPECT_EQ(inside.wait(), ErrorCode::kFailedPrecondition);
  old.shutdown({false});
  EXPECT_EQ(old.membership_state(), MembershipState::kLeft);
  error = error_of([&] { old.rejoin(); });
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(error.message(), HasSubstr("worker 'worker2' was shut down"));
  expect_aborted([&] { old.peer(0); });
  abandon();
}

TEST_P(Rejoin, ThreadsThatDoSoAtOnceGetTheSameWorker) {
  start_three();
  const Worker old = worker(2);
  evict(2);
  std::vector<Worker> next(4);
  std::vector<std::thread> threads;
  for (Worker& each : next) threads.emplace_back([&each, &old] { each = old.rejoin(); });
  for (std::thread& thread : threads) thread.join();
  for (const Worker& each : next) EXPECT_EQ(each, next.front());
  replace(2, next.front());
  expect_all_call_all();
}

TEST_P(Rejoin, WhatFailedMayBeTriedAgain) {
  start_three([](int rank, WorkerOptions& options) {
    if (rank == 2) options.join_timeout = 3s;
  });
  const Worker old = worker(2);
  evict(2);
  const auto rule = isolate();
  EXPECT_EQ(error_of([&] { old.rejoin(); }).code(), ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(old.membership_state(), MembershipState::kEvicted);
  expect_aborted([&] { old.peer(0).call<&testapp::add>(1, 2); });
  plan_->remove(rule);
  // A machine with much to do may need more than that.
  Worker next;
  EXPECT_TRUE(eventually([&] {
    try {
      next = old.rejoin();
    } catch (const RpcError&) {
    }
    return next.valid();
  }));
  replace(2, next);
  expect_all_call_all();
}

TEST_P(Rejoin, AShutdownEndsOneThatIsUnderWay) {
  start_three();
  const Worker old = worker(2);
  evict(2);
  isolate();
  std::thread rejoins([&] {
    const RpcError error = error_of([&] { old.rejoin(); });
    // The shutdown may have come first.
    EXPECT_TRUE(error.code() == ErrorCode::kCancelled ||
                error.code() == ErrorCode::kFailedPrecondition)
        << error.what();
    EXPECT_THAT(error.message(), HasSubstr("was shut down"));
  });
  EXPECT_TRUE(eventually([&] {
    return error_of([&] { old.peer(0).ready(1).wait(); }).code() == ErrorCode::kAborted;
  }));
  old.shutdown({false});
  rejoins.join();
  EXPECT_EQ(old.membership_state(), MembershipState::kLeft);
  abandon();
}

// The one in whose place others would found a job.
TEST_P(Rejoin, WhoCoordinatesComesBackToo) {
  start_three();
  evict(0);
  replace(0, worker(0).rejoin());
  EXPECT_EQ(worker(0).rank(), 0);
  expect_all_call_all();
}

// One of them answers where others look for the job, or is the only one in the file.
TEST_P(Rejoin, InOpenMembershipNobodyFoundsAnotherJob) {
  start_three([](int, WorkerOptions& options) { options.world_size.reset(); });
  for (int rank = 0; rank < 3; ++rank) {
    expect_all_call_all();
    evict(rank);
    replace(rank, worker(rank).rejoin());
  }
  expect_all_call_all();
}

// ---- By itself.

TEST_P(Rejoin, ByItselfAgainAndAgain) {
  start_three_with_arrivals();
  const Worker first = worker(2);
  for (std::size_t time = 0; time < 2; ++time) {
    expect_all_call_all();
    evict(2);
    ASSERT_TRUE(arrivals_->wait_for(time + 1));
    replace(2, arrivals_->at(time));
  }
  EXPECT_EQ(first.membership_state(), MembershipState::kEvicted);
  // By hand that is nothing else.
  EXPECT_EQ(first.rejoin(), arrivals_->at(0));
  expect_all_call_all();
}

TEST_P(Rejoin, ByItselfUntilItSucceeds) {
  start_three_with_arrivals(3s);
  const auto rule = isolate();
  evict(2);
  const Worker old = worker(2);
  EXPECT_NE(error_of([&] { old.rejoin(); }).code(), ErrorCode::kOk);
  EXPECT_EQ(arrivals_->count(), 0u);
  plan_->remove(rule);
  ASSERT_TRUE(arrivals_->wait_for(1));
  replace(2, arrivals_->at(0));
  expect_all_call_all();
}

TEST_P(Rejoin, ByItselfUntilItIsShutDown) {
  start_three_with_arrivals();
  const Worker old = worker(2);
  isolate();
  evict(2);
  old.shutdown({false});
  EXPECT_EQ(arrivals_->count(), 0u);
  EXPECT_EQ(old.membership_state(), MembershipState::kLeft);
  EXPECT_EQ(error_of([&] { old.rejoin(); }).code(), ErrorCode::kFailedPrecondition);
  abandon();
}

TEST_P(Rejoin, ByItselfUntilItsLastHandleGoes) {
  auto token = std::make_shared<int>(0);
  const std::weak_ptr<int> watched = token;
  start_three([&](int rank, WorkerOptions& options) {
    if (rank == 2) options.on_rejoined = [token](const Worker&) {};
  });
  token.reset();
  isolate();
  evict(2);
  EXPECT_FALSE(watched.expired());
  replace(2, Worker());
  EXPECT_TRUE(eventually([&] { return watched.expired(); }));
  abandon();
}

// A user who forgets the new worker, or fails with it, does no harm to anybody else.
TEST_P(Rejoin, WhatTheCallbackThrowsIsLogged) {
  start_three([this](int rank, WorkerOptions& options) {
    if (rank != 2) return;
    options.on_rejoined = [arrivals = arrivals_](const Worker& next) {
      arrivals->add(next);
      // It may block, and use the worker and the old one.
      EXPECT_EQ(next.peer(0).call<&testapp::add>(1, 2), 3);
      throw std::runtime_error("as the test wants");
    };
  });
  evict(2);
  ASSERT_TRUE(arrivals_->wait_for(1));
  replace(2, arrivals_->at(0));
  expect_all_call_all();
  evict(2);
  ASSERT_TRUE(arrivals_->wait_for(2));
  replace(2, arrivals_->at(1));
  expect_all_call_all();
}

}  // namespace
