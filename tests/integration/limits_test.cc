// What is too large for either end fails at once, says by how much, and harms nothing else.

#include <cctype>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/tests/process/link_methods.h"
#include "sinew/tests/process/test_methods.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/faulty_transport.h"
#include "sinew/tests/support/gather.h"

using sinew::ErrorCode;
using sinew::Execution;
using sinew::Future;
using sinew::RpcError;
using sinew::internal::FaultPlan;
using sinew::internal::FaultRule;
using sinew::internal::FaultyFrame;
using sinew::testing::error_of;
using sinew::testing::eventually;
using sinew::testing::gather;
using ::testing::Contains;
using ::testing::Ge;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kLimit = kMiB;
constexpr std::uint64_t kTooMuch = 2 * kMiB;
constexpr std::uint64_t kMostTensors = 65536;
// What an error may take that has nothing to wait for. Calls have minutes.
constexpr auto kAtOnce = 30s;

/// The numbers in a text.
std::vector<std::uint64_t> numbers_in(const std::string& text) {
  std::vector<std::uint64_t> numbers;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end])) != 0) ++end;
    std::uint64_t number = 0;
    if (absl::SimpleAtoi(absl::string_view(text).substr(at, end - at), &number)) {
      numbers.push_back(number);
    }
    at = end + 1;
  }
  return numbers;
}

/// The error with which the call ends at once.
template <class T>
RpcError error_at_once(const Future<T>& call) {
  const RpcError error = error_of([&] { call.wait_for(kAtOnce); });
  EXPECT_TRUE(call.done()) << "nothing was heard of it for " << kAtOnce / 1s << " s";
  return error;
}

void expect_too_large(const RpcError& error, Execution execution, std::uint64_t size,
                      std::uint64_t limit) {
  EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted) << error.what();
  EXPECT_EQ(error.execution(), execution) << error.what();
  const std::vector<std::uint64_t> numbers = numbers_in(error.message());
  EXPECT_THAT(numbers, Contains(limit)) << error.what();
  EXPECT_THAT(numbers, Contains(Ge(size))) << error.what();
}

class Limits : public sinew::testing::ClusterTest {
 protected:
  void TearDown() override {
    // What has failed already would only wait for what hangs.
    HasFailure() ? abandon() : finish();
  }

  /// `plan_` hurts worker `faulty`.
  void start_workers(int size, int faulty,
                     const std::function<void(int rank, sinew::WorkerOptions&)>& tweak) {
    sinew::testing::ClusterOptions options;
    options.names = sinew::testing::worker_names(size);
    options.methods = testapp::methods();
    testapp::add_link_methods(options.methods);
    options.tweak = [&tweak](int rank, sinew::WorkerOptions& worker) {
      worker.default_timeout = 5min;
      if (tweak) tweak(rank, worker);
    };
    sinew::testing::wrap_transports(
        options, [this, faulty](int rank, std::unique_ptr<sinew::internal::Transport> inner) {
          return rank == faulty ? sinew::internal::make_faulty_transport(std::move(inner), plan_)
                                : std::move(inner);
        });
    FaultRule listens;
    listens.matches = [this](const FaultyFrame& frame) {
      const std::lock_guard<std::mutex> lock(mutex_);
      connections_.insert(frame.connection);
      return false;
    };
    plan_->add(std::move(listens));
    start(std::move(options));
  }

  /// Two workers, of which those `limited` take no message over kLimit. A call is under way.
  void start_limited(const std::set<int>& limited) {
    start_workers(2, 0, [&limited](int rank, sinew::WorkerOptions& options) {
      if (limited.count(rank) > 0) options.max_message_bytes = kLimit;
    });
    EXPECT_EQ(worker(0).peer(1).call<&testapp::add>(1, 2), 3);
    EXPECT_EQ(worker(1).peer(0).call<&testapp::add>(1, 2), 3);
    waiting_ = worker(0).peer(1).async<&testapp::stall>();
    EXPECT_TRUE(eventually([this] { return worker(0).peer(1).call<&testapp::stalled>() == 1; }));
    connections_before_ = connections();
  }
  /// The link between them is as it was.
  void expect_unharmed() {
    EXPECT_EQ(worker(0).peer(1).async<&testapp::add>(1, 2).wait_for(kAtOnce), 3);
    EXPECT_EQ(worker(1).peer(0).async<&testapp::add>(1, 2).wait_for(kAtOnce), 3);
    EXPECT_EQ(connections(), connections_before_) << "another connection was opened";
    testapp::release_at(worker(1));
    EXPECT_EQ(waiting_.wait_for(kAtOnce), 1);
  }
  std::set<std::uint64_t> connections() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return connections_;
  }
  std::map<int, int> executions_at(int rank) const {
    testapp::State& state = testapp::state_of(worker(rank));
    const std::lock_guard<std::mutex> lock(state.mutex);
    return state.executions;
  }

  const std::shared_ptr<FaultPlan> plan_ = std::make_shared<FaultPlan>(/*seed=*/1);
  Future<int> waiting_;

 private:
  mutable std::mutex mutex_;
  std::set<std::uint64_t> connections_;
  std::set<std::uint64_t> connections_before_;
};
SINEW_INSTANTIATE_CLUSTER_TEST(Limits);

TEST_P(Limits, AnArgumentOverTheLimitOfBothDoesNotLeave) {
  start_limited({0, 1});
  const at::Tensor large = testapp::filled(kTooMuch, 1);
  expect_too_large(error_at_once(worker(0).peer(1).async<&testapp::count_with>(1, large)),
                   Execution::kDidNotRun, kTooMuch, kLimit);
  expect_too_large(
      error_at_once(worker(0).peer(1).async<&testapp::echo>(std::string(kTooMuch, 'x'))),
      Execution::kDidNotRun, kTooMuch, kLimit);
  EXPECT_TRUE(executions_at(1).empty());
  expect_unharmed();
}

TEST_P(Limits, AResultOverTheLimitOfBothIsAnError) {
  start_limited({0, 1});
  const auto result = worker(0).peer(1).async<&testapp::filled>(std::int64_t{kTooMuch}, 1);
  expect_too_large(error_at_once(result), Execution::kMayHaveRun, kTooMuch, kLimit);
  expect_unharmed();
}

TEST_P(Limits, AnArgumentOverTheReceiversLimitDoesNotLeave) {
  start_limited({1});
  const at::Tensor large = testapp::filled(kTooMuch, 1);
  expect_too_large(error_at_once(worker(0).peer(1).async<&testapp::count_with>(1, large)),
                   Execution::kDidNotRun, kTooMuch, kLimit);
  expect_too_large(
      error_at_once(worker(0).peer(1).async<&testapp::echo>(std::string(kTooMuch, 'x'))),
      Execution::kDidNotRun, kTooMuch, kLimit);
  EXPECT_TRUE(executions_at(1).empty());
  expect_unharmed();
}

TEST_P(Limits, AResultOverTheReceiversLimitIsAnError) {
  start_limited({0});
  const auto result = worker(0).peer(1).async<&testapp::filled>(std::int64_t{kTooMuch}, 1);
  expect_too_large(error_at_once(result), Execution::kMayHaveRun, kTooMuch, kLimit);
  expect_unharmed();
}

TEST_P(Limits, WhatIsUnderTheLimitPasses) {
  start_limited({0, 1});
  const at::Tensor most = testapp::filled(kLimit - 4096, 1);
  EXPECT_EQ(worker(0).peer(1).async<&testapp::count_with>(1, most).wait_for(kAtOnce), 1);
  const auto result = worker(0).peer(1).async<&testapp::filled>(std::int64_t{kLimit - 4096}, 1);
  EXPECT_TRUE(testapp::is_filled(result.wait_for(kAtOnce), kLimit - 4096, 1));
  expect_unharmed();
}

TEST_P(Limits, TooManyTensorsInArgumentsDoNotLeave) {
  start_limited({});
  const std::vector<at::Tensor> tensors = testapp::make_tensors(kMostTensors + 1);
  // Refused where the call is made, or by its future.
  const RpcError error = error_of([&] {
    const auto call = worker(0).peer(1).async<&testapp::count_tensors>(tensors);
    call.wait_for(kAtOnce);
  });
  expect_too_large(error, Execution::kDidNotRun, kMostTensors + 1, kMostTensors);
  expect_unharmed();
}

TEST_P(Limits, TooManyTensorsInAResultAreAnError) {
  start_limited({});
  const auto call = worker(0).peer(1).async<&testapp::make_tensors>(std::int64_t{kMostTensors + 1});
  expect_too_large(error_at_once(call), Execution::kMayHaveRun, kMostTensors + 1, kMostTensors);
  expect_unharmed();
}

TEST_P(Limits, AGatherOfTooMuchFailsAtAllAndNamesTheMember) {
  start_workers(3, 0, nullptr);
  constexpr std::uint64_t kOwn = 17 * kMiB;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      const std::string own(rank == 1 ? kOwn : 10, 'x');
      const RpcError error = error_of([&] { gather(worker(rank), own); });
      EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted) << error.what();
      EXPECT_THAT(error.message(), HasSubstr("worker1"));
      EXPECT_THAT(numbers_in(error.message()), Contains(Ge(kOwn))) << error.what();
    });
  }
  for (std::thread& thread : threads) thread.join();
  // The next one is another one.
  threads.clear();
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      EXPECT_EQ(gather(worker(rank), std::string(kMiB, 'x')).at("worker1").size(), kMiB);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(Limits, AFirstBurstOverTheWindowRunsOrFailsAtOnce) {
  start_workers(3, 1,
                [](int, sinew::WorkerOptions& options) { options.send_window_bytes = 8 * kMiB; });
  // Those two have not met yet, and will not for a moment.
  const std::string target = worker(2).address();
  plan_->fail_connects([target](const std::string& address) { return address == target; },
                       absl::UnavailableError("no route for now"), 4);
  std::vector<Future<int>> calls;
  constexpr int kCalls = 40;
  std::vector<at::Tensor> arguments;  // Before the burst: they take longer than to meet.
  for (int i = 0; i < kCalls; ++i) arguments.push_back(testapp::filled(std::int64_t{kMiB}, i));
  for (int i = 0; i < kCalls; ++i) {
    calls.push_back(
        worker(1).peer(2).async<&testapp::count_with>(i, arguments[static_cast<std::size_t>(i)]));
  }
  std::set<int> answered;
  int silent = 0;
  for (int i = 0; i < kCalls; ++i) {
    const auto& call = calls[static_cast<std::size_t>(i)];
    // Of those that hang all hang together.
    try {
      EXPECT_EQ(call.wait_for(silent == 0 ? kAtOnce : 1ms), 1);
      answered.insert(i);
    } catch (const RpcError& error) {
      if (!call.done()) {
        ++silent;
        continue;
      }
      EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted) << error.what();
      EXPECT_EQ(error.execution(), Execution::kDidNotRun) << error.what();
    }
  }
  EXPECT_EQ(silent, 0) << "calls wait for their deadline";
  EXPECT_GE(answered.size(), 4u) << "the window holds more";
  EXPECT_LT(answered.size(), static_cast<std::size_t>(kCalls)) << "the window holds less";
  std::set<int> ran;
  for (const auto& [number, times] : executions_at(2)) {
    EXPECT_EQ(times, 1);
    ran.insert(number);
  }
  EXPECT_EQ(ran, answered);
}

TEST_P(Limits, ACallThatThereIsNoMemoryForFailsAlone) {
  start_limited({});
  // What arrives at worker0, whose transport it is.
  FaultRule rule;
  rule.action = sinew::internal::FaultAction::kNoMemory;
  rule.matches = [](const FaultyFrame& frame) {
    return frame.direction == sinew::internal::FaultDirection::kIncoming &&
           frame.lane == sinew::internal::Lane::kCalls && frame.frame.size_bytes() >= kTooMuch;
  };
  plan_->add(std::move(rule));
  const at::Tensor large = testapp::filled(kTooMuch, 1);
  RpcError error = error_at_once(worker(1).peer(0).async<&testapp::count_with>(1, large));
  EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted) << error.what();
  EXPECT_EQ(error.execution(), Execution::kDidNotRun) << error.what();
  EXPECT_THAT(error.message(), HasSubstr("no memory, as the test wants"));
  EXPECT_THAT(numbers_in(error.message()), Contains(Ge(kTooMuch))) << error.what();
  EXPECT_TRUE(executions_at(0).empty());
  // An answer that there is no memory for.
  error = error_at_once(
      worker(0).peer(1).async<&testapp::filled>(static_cast<std::int64_t>(kTooMuch), 1));
  EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted) << error.what();
  EXPECT_EQ(error.execution(), Execution::kMayHaveRun) << error.what();
  EXPECT_THAT(error.message(), HasSubstr("no memory, as the test wants"));
  expect_unharmed();
}

// As much as fits in the window of requests, several times: each gives its room back.
TEST_P(Limits, CallsThatThereIsNoMemoryForGiveTheirRoomBack) {
  start_workers(
      2, 0, [](int, sinew::WorkerOptions& options) { options.receive_window_bytes = 3 * kMiB; });
  FaultRule rule;
  rule.action = sinew::internal::FaultAction::kNoMemory;
  rule.limit = 8;
  rule.matches = [](const FaultyFrame& frame) {
    return frame.direction == sinew::internal::FaultDirection::kIncoming &&
           frame.frame.size_bytes() >= kTooMuch;
  };
  plan_->add(std::move(rule));
  const at::Tensor large = testapp::filled(kTooMuch, 1);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(error_at_once(worker(1).peer(0).async<&testapp::count_with>(1, large)).code(),
              ErrorCode::kResourceExhausted);
  }
  EXPECT_EQ(worker(1).peer(0).async<&testapp::count_with>(1, large).wait_for(kAtOnce), 1);
}

// Nobody would hear that it was refused: it is sent again.
TEST_P(Limits, WhatWorkersSayToRunTheJobIsSentAgain) {
  start_workers(2, 0, nullptr);
  FaultRule rule;
  rule.action = sinew::internal::FaultAction::kNoMemory;
  rule.limit = 1;
  rule.matches = [](const FaultyFrame& frame) {
    return frame.direction == sinew::internal::FaultDirection::kIncoming &&
           frame.lane == sinew::internal::Lane::kControl && frame.frame.size_bytes() >= kMiB;
  };
  const auto id = plan_->add(std::move(rule));
  std::thread other([this] { EXPECT_EQ(gather(worker(1), std::string(kMiB, 'x')).size(), 2u); });
  EXPECT_EQ(gather(worker(0), "small").at("worker1").size(), kMiB);
  other.join();
  EXPECT_EQ(plan_->hits(id), 1u);
}

}  // namespace
