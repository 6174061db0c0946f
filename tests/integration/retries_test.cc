// Calls that are repeated.

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/tests/process/test_methods.h"
#include "sinew/tests/support/open_job_test.h"

using sinew::CallOptions;
using sinew::ErrorCode;
using sinew::Future;
using sinew::Peer;
using sinew::RetryAt;
using sinew::RetryPolicy;
using sinew::RpcError;
using sinew::RRef;
using sinew::Worker;
using sinew::WorkerOptions;
using sinew::testing::error_of;
using sinew::testing::eventually;
using testapp::Counter;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

namespace integration {

/// How often the methods below ran, by a number of the caller's.
std::atomic<int>& runs(int number) {
  static std::mutex mutex;
  static auto& all = *new std::map<int, std::atomic<int>>();
  const std::lock_guard<std::mutex> lock(mutex);
  return all[number];
}

/// Fails so many times with this code, and then tells how often it ran.
int flaky(int number, int failures, int code) {
  const int run = ++runs(number);
  if (run <= failures) throw RpcError(static_cast<ErrorCode>(code), "not this time");
  return run;
}
int flaky_once(int number, int failures, int code) { return flaky(number, failures, code); }
/// As flaky(), but turns the caller away before anything has been done.
int reject(int number, int failures) {
  const int run = ++runs(number);
  if (run <= failures) throw sinew::Rejected(ErrorCode::kUnavailable, "not yet");
  return run;
}
int flaky_sum(int number, const RRef<Counter>& counter, int failures) {
  flaky(number, failures, static_cast<int>(ErrorCode::kUnavailable));
  return counter.call<&Counter::add>(1);
}
int count_bytes(int number, const at::Tensor& tensor, int failures) {
  flaky(number, failures, static_cast<int>(ErrorCode::kUnavailable));
  return static_cast<int>(tensor.numel());
}
/// One at a time.
Future<int> narrow() { return testapp::stall(); }
Future<int> stall_safely() { return testapp::stall(); }

class Flaky {
 public:
  explicit Flaky(int number) : number_(number) {}
  int run(int failures) {
    return flaky(number_, failures, static_cast<int>(ErrorCode::kUnavailable));
  }

 private:
  const int number_;
};

}  // namespace integration
SINEW_METHOD(integration::flaky, integration::flaky_once, integration::reject,
             integration::flaky_sum, integration::count_bytes, integration::narrow,
             integration::stall_safely);
SINEW_SERVICE(integration::Flaky, (int), run);
SINEW_IDEMPOTENT(integration::flaky, integration::flaky_sum, integration::count_bytes,
                 integration::stall_safely, integration::Flaky::run);

namespace {

constexpr int kUnavailable = static_cast<int>(ErrorCode::kUnavailable);

class Retries : public sinew::testing::OpenJobTest {
 protected:
  void start_open(int size) {
    sinew::MethodTable methods = testapp::methods();
    methods
        .add<&integration::flaky, &integration::flaky_once, &integration::reject,
             &integration::flaky_sum, &integration::count_bytes, &integration::stall_safely>()
        .add<&integration::narrow>(sinew::MethodRules().limit_calls(1));
    methods.serve<integration::Flaky>();
    OpenJobTest::start_open(size, std::move(methods));
  }
  /// Of a number of its own.
  int next_number() {
    static std::atomic<int> last{0};
    return ++last;
  }
  /// Short pauses, many attempts.
  static RetryPolicy often() {
    RetryPolicy policy;
    policy.max_attempts = 100000;
    policy.first_pause = policy.longest_pause = 1ms;
    return policy;
  }
  static RetryPolicy next_of_its_name() {
    RetryPolicy policy = often();
    policy.retry_at = RetryAt::kNextOfItsName;
    return policy;
  }
  static std::int64_t retries(const Worker& worker) { return worker.counters()["rpc.retries"]; }
};
SINEW_INSTANTIATE_CLUSTER_TEST(Retries);

// As without a policy, but the error says that there is one which does nothing.
TEST_P(Retries, InAnAutogradContextAFailureSaysThatItIsNotRepeated) {
  start_open(2);
  const Peer peer = worker(0).peer(1).retrying(often());
  const auto not_repeated =
      HasSubstr("; retrying() has not repeated the call: it is of an autograd");
  {
    const sinew::autograd::Context context(worker(0));
    const int number = next_number();
    const RpcError error =
        error_of([&] { peer.call<&integration::flaky>(number, 1, kUnavailable); });
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_EQ(error.origin(), sinew::ErrorOrigin::kHandler);
    EXPECT_THAT(error.message(), ::testing::AllOf(HasSubstr("not this time"), not_repeated));
    EXPECT_EQ(integration::runs(number), 1);
    EXPECT_EQ(peer.call<&integration::flaky>(next_number(), 0, kUnavailable), 1);
    // What would not have been repeated elsewhere either.
    const RpcError other =
        error_of([&] { peer.call<&integration::flaky_once>(next_number(), 1, kUnavailable); });
    EXPECT_THAT(other.message(), ::testing::Not(not_repeated));
    const RpcError plain = error_of(
        [&] { worker(0).peer(1).call<&integration::flaky>(next_number(), 1, kUnavailable); });
    EXPECT_THAT(plain.message(), ::testing::Not(not_repeated));
  }
  EXPECT_EQ(retries(worker(0)), 0);
  EXPECT_EQ(peer.call<&integration::flaky>(next_number(), 1, kUnavailable), 2);
}

TEST_P(Retries, WhatMayHaveRunIsRepeatedIfItIsIdempotent) {
  start_open(2);
  const Peer peer = worker(0).peer(1).retrying(often());
  EXPECT_EQ(peer.call<&integration::flaky>(next_number(), 3, kUnavailable), 4);
  EXPECT_EQ(retries(worker(0)), 3);
  EXPECT_EQ(peer.async<&integration::flaky>(next_number(), 2, kUnavailable).wait(), 3);
  EXPECT_EQ(retries(worker(0)), 5);
  EXPECT_EQ(peer.call<&integration::reject>(next_number(), 2), 3) << "it says that it did not run";
  EXPECT_EQ(retries(worker(0)), 7);
  const int number = next_number();
  EXPECT_EQ(error_of([&] { peer.call<&integration::flaky_once>(number, 1, kUnavailable); }).code(),
            ErrorCode::kUnavailable);
  EXPECT_EQ(integration::runs(number), 1);
  // And only who wants it.
  const int other = next_number();
  EXPECT_EQ(
      error_of([&] { worker(0).peer(1).call<&integration::flaky>(other, 1, kUnavailable); }).code(),
      ErrorCode::kUnavailable);
  EXPECT_EQ(integration::runs(other), 1);
  EXPECT_EQ(retries(worker(0)), 7);
}

TEST_P(Retries, OtherErrorsAreFinal) {
  start_open(2);
  const Peer peer = worker(0).peer(1).retrying(often());
  for (const ErrorCode code : {ErrorCode::kInvalidArgument, ErrorCode::kNotFound,
                               ErrorCode::kInternal, ErrorCode::kAborted, ErrorCode::kCancelled,
                               ErrorCode::kPermissionDenied, ErrorCode::kDeadlineExceeded}) {
    const int number = next_number();
    EXPECT_EQ(
        error_of([&] { peer.call<&integration::flaky>(number, 1, static_cast<int>(code)); }).code(),
        code);
    EXPECT_EQ(integration::runs(number), 1);
  }
  EXPECT_EQ(retries(worker(0)), 0);
}

TEST_P(Retries, AttemptsAndTimeAreBounded) {
  start_open(2);
  RetryPolicy policy = often();
  policy.max_attempts = 3;
  const int number = next_number();
  const RpcError error = error_of([&] {
    worker(0).peer(1).retrying(policy).call<&integration::flaky>(number, 100, kUnavailable);
  });
  EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
  EXPECT_THAT(error.message(), HasSubstr("not this time"));
  EXPECT_EQ(integration::runs(number), 3);
  // The next attempt would begin after the deadline.
  policy.first_pause = policy.longest_pause = 10min;
  const int once = next_number();
  EXPECT_EQ(error_of([&] {
              worker(0).peer(1).within(1min).retrying(policy).call<&integration::flaky>(
                  once, 100, kUnavailable);
            }).code(),
            ErrorCode::kUnavailable);
  EXPECT_EQ(integration::runs(once), 1);
}

// A limit of the method: the call did not run.
TEST_P(Retries, WhatDidNotRunIsRepeated) {
  start_open(2);
  const Future<int> first = worker(0).peer(1).async<&integration::narrow>();
  ASSERT_TRUE(eventually([&] { return worker(1).counters()["rpc.limited_calls"] == 1; }));
  const Future<int> second = worker(0).peer(1).retrying(often()).async<&integration::narrow>();
  ASSERT_TRUE(eventually([&] { return retries(worker(0)) > 2; }));
  EXPECT_FALSE(second.done());
  testapp::release_at(worker(1));
  EXPECT_EQ(first.wait(), 1);
  // It is there as soon as there is room for it.
  ASSERT_TRUE(eventually([&] {
    testapp::release_at(worker(1));
    return second.done();
  }));
  EXPECT_EQ(second.wait(), 1);
  // Its reference has an id that the callee takes once.
  const Future<int> third = worker(0).peer(1).async<&integration::narrow>();
  ASSERT_TRUE(eventually([&] { return worker(1).counters()["rpc.limited_calls"] == 1; }));
  const std::int64_t before = retries(worker(0));
  const auto kept = worker(0).peer(1).retrying(often()).remote<&integration::narrow>();
  EXPECT_EQ(error_of([&] { kept.created().wait(); }).code(), ErrorCode::kResourceExhausted);
  EXPECT_EQ(retries(worker(0)), before);
  testapp::release_at(worker(1));
  EXPECT_EQ(third.wait(), 1);
}

TEST_P(Retries, ReferencesAndTensorsAmongTheArgumentsTravelAgain) {
  start_open(3);
  const RRef<Counter> own = sinew::share_rref(worker(0), std::make_shared<Counter>(10));
  const RRef<Counter> elsewhere = worker(0).peer("worker2").remote<Counter>(20);
  const Peer peer = worker(0).peer(1).retrying(often());
  EXPECT_EQ(peer.call<&integration::flaky_sum>(next_number(), own, 3), 11);
  EXPECT_EQ(peer.call<&integration::flaky_sum>(next_number(), elsewhere, 3), 21);
  const at::Tensor tensor = at::empty({100000});
  EXPECT_EQ(peer.call<&integration::count_bytes>(next_number(), tensor, 3), 100000);
  EXPECT_EQ(retries(worker(0)), 9);
}

TEST_P(Retries, CallsThroughAReferenceAreRepeatedAtItsOwner) {
  start_open(2);
  Worker late = start_late();
  const auto object = worker(0).wait_for("late").remote<integration::Flaky>(next_number());
  EXPECT_EQ(object.retrying(often()).call<&integration::Flaky::run>(2), 3);
  const RpcError refused =
      error_of([&] { object.retrying(next_of_its_name()).call<&integration::Flaky::run>(0); });
  EXPECT_EQ(refused.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("belongs to one incarnation of worker 'late'"));
  late.shutdown({false});
  // At once: it has no time limit.
  CallOptions options;
  options.timeout = sinew::kNoTimeout;
  EXPECT_EQ(error_of([&] {
              object.with(options).retrying(often()).call<&integration::Flaky::run>(0);
            }).code(),
            ErrorCode::kUnavailable);
}

TEST_P(Retries, AServerThatIsRestartedIsCalledAgain) {
  start_open(2);
  Worker late = start_late();
  const Peer server = worker(0).wait_for("late").within(60s);
  const Peer next = server.retrying(next_of_its_name());
  const Future<int> safe = next.async<&integration::stall_safely>();
  const Future<int> unsafe = next.async<&testapp::stall>();
  ASSERT_TRUE(eventually([&] { return server.call<&testapp::stalled>() == 2; }));
  late.shutdown({false});
  testapp::drop_stalled(late);
  EXPECT_EQ(error_of([&] { unsafe.wait(); }).code(), ErrorCode::kUnavailable) << "it may have run";
  // Nobody is there.
  EXPECT_EQ(error_of([&] { server.retrying(often()).call<&testapp::add>(1, 2); }).code(),
            ErrorCode::kUnavailable);
  const Future<int> sum = next.async<&testapp::add>(1, 2);
  EXPECT_FALSE(safe.done());
  late = start_late();
  EXPECT_EQ(sum.wait(), 3);
  ASSERT_TRUE(eventually([&] { return next.call<&testapp::stalled>() == 1; }));
  testapp::release_at(late);
  EXPECT_EQ(safe.wait(), 1);
  late.shutdown();
  const RpcError nobody = error_of([&] { next.within(1s).call<&testapp::add>(1, 2); });
  EXPECT_EQ(nobody.code(), ErrorCode::kDeadlineExceeded);
  EXPECT_THAT(nobody.message(), HasSubstr("has not come back"));
}

// More of them than the worker has threads.
TEST_P(Retries, PausesHoldNoThreadAndCanBeCancelled) {
  start_open(2);
  RetryPolicy policy = often();
  policy.first_pause = policy.longest_pause = 10min;
  const sinew::CancellationSource source;
  CallOptions options;
  options.timeout = sinew::kNoTimeout;
  options.cancellation = source.token();
  const Peer peer = worker(0).peer(1).with(options).retrying(policy);
  std::vector<int> numbers;
  std::vector<Future<int>> pausing;
  for (int i = 0; i < 100; ++i) {
    numbers.push_back(next_number());
    pausing.push_back(peer.async<&integration::flaky>(numbers.back(), 1, kUnavailable));
  }
  for (const int number : numbers) EXPECT_EVENTUALLY(integration::runs(number).load(), 1);
  EXPECT_EQ(worker(0).peer(1).call<&testapp::add>(1, 2), 3);
  EXPECT_GE(worker(0).counters()["rpc.client_active_calls"], 100) << "they are under way";
  source.cancel();
  for (const Future<int>& call : pausing) {
    EXPECT_EQ(error_of([&] { call.wait(); }).code(), ErrorCode::kCancelled);
  }
  EXPECT_TRUE(eventually([&] { return worker(0).counters()["rpc.client_active_calls"] == 0; }));
}

TEST_P(Retries, APauseEndsWithItsWorker) {
  start_open(2);
  const Worker late = start_late();
  RetryPolicy policy = often();
  policy.first_pause = policy.longest_pause = 10min;
  CallOptions options;
  options.timeout = sinew::kNoTimeout;
  const int number = next_number();
  const Future<int> pausing =
      late.peer("worker1").with(options).retrying(policy).async<&integration::flaky>(number, 1,
                                                                                     kUnavailable);
  ASSERT_TRUE(eventually([&] { return integration::runs(number) == 1; }));
  late.shutdown({false});
  EXPECT_EQ(error_of([&] { pausing.wait(); }).code(), ErrorCode::kCancelled);
}

TEST_P(Retries, WrongPoliciesAreRefused) {
  start_open(1);
  RetryPolicy policy;
  policy.max_attempts = 0;
  EXPECT_EQ(error_of([&] { worker(0).self().retrying(policy); }).code(),
            ErrorCode::kInvalidArgument);
  CallOptions options;
  options.retry = policy;
  EXPECT_EQ(error_of([&] { worker(0).self().with(options).call<&testapp::add>(1, 2); }).code(),
            ErrorCode::kInvalidArgument);
}

}  // namespace
