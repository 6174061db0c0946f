// Calls of clients that open no connection.

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "gmock/gmock.h"
#include "sinew/tests/transport/station.h"

namespace sinew::internal {
namespace {

using testing::HasSubstr;

/// Does one thing with every call.
class UnaryActor : public UnaryHandler {
 public:
  explicit UnaryActor(std::function<void(std::unique_ptr<UnaryCall>)> act) : act_(std::move(act)) {}
  void on_unary_call(std::unique_ptr<UnaryCall> call) override { act_(std::move(call)); }

 private:
  const std::function<void(std::unique_ptr<UnaryCall>)> act_;
};

/// Keeps one call for whoever takes it.
class UnaryKeeper : public UnaryHandler {
 public:
  void on_unary_call(std::unique_ptr<UnaryCall> call) override {
    MutexLock lock(mutex_);
    kept_ = std::move(call);
    changed_.notify_all();
  }
  /// Waits for it. Null when none came.
  std::unique_ptr<UnaryCall> take() {
    MutexLock lock(mutex_);
    wait_patiently(mutex_, changed_,
                   [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return kept_ != nullptr; });
    return std::move(kept_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::unique_ptr<UnaryCall> kept_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

TEST_P(TransportConformance, AnswersUnaryCalls) {
  UnaryActor echo([](std::unique_ptr<UnaryCall> call) {
    EXPECT_GT(call->time_left().count(), 0);
    Frame& request = call->request();
    call->reply(make_frame(request.envelope, std::move(request.payloads)));
  });
  Station a(*fixture_);
  a.unary = &echo;
  a.start();
  // Field 1 of Call, a varint: transports that parse requests need valid ones.
  const std::string call("\x08\x07", 2);
  const absl::Cord payload(pattern(100'000, 8));
  const absl::StatusOr<Frame> answer = fixture_->unary_call(
      a.address(), make_frame(call, {payload, absl::Cord()}), std::chrono::seconds(30));
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->envelope, call);
  ASSERT_EQ(answer->payloads.size(), 2U);
  EXPECT_TRUE(answer->payloads[0] == payload);
  EXPECT_EQ(answer->payloads[1], "");
}

TEST_P(TransportConformance, FailedUnaryCallsReachTheClient) {
  UnaryActor fails([](std::unique_ptr<UnaryCall> call) {
    call->fail(absl::NotFoundError("no method \"nothing\""));
  });
  Station a(*fixture_);
  a.unary = &fails;
  a.start();
  const absl::StatusOr<Frame> answer =
      fixture_->unary_call(a.address(), make_frame(""), std::chrono::seconds(30));
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kNotFound) << answer.status();
  EXPECT_THAT(std::string(answer.status().message()), HasSubstr("no method \"nothing\""));
}

TEST_P(TransportConformance, DroppedUnaryCallsFail) {
  UnaryActor drops([](std::unique_ptr<UnaryCall> call) { call.reset(); });
  Station a(*fixture_);
  a.unary = &drops;
  a.start();
  const absl::StatusOr<Frame> answer =
      fixture_->unary_call(a.address(), make_frame(""), std::chrono::seconds(30));
  EXPECT_FALSE(answer.ok());
  EXPECT_NE(answer.status().code(), absl::StatusCode::kDeadlineExceeded) << answer.status();
}

TEST_P(TransportConformance, UnaryCallsAreAnsweredLaterFromAnotherThread) {
  UnaryKeeper keeper;
  Station a(*fixture_);
  a.unary = &keeper;
  a.start();
  std::thread worker([&] {
    const std::unique_ptr<UnaryCall> call = keeper.take();
    if (call != nullptr) call->reply(make_frame("", {absl::Cord("later")}));
  });
  const absl::StatusOr<Frame> answer =
      fixture_->unary_call(a.address(), make_frame(""), std::chrono::seconds(30));
  worker.join();
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->payloads.at(0), "later");
}

TEST_P(TransportConformance, UnaryCallsHearThatTheClientLeft) {
  Happening cancelled;
  Mutex mutex;
  std::unique_ptr<UnaryCall> kept;
  UnaryActor keeps([&](std::unique_ptr<UnaryCall> call) {
    call->notify_on_cancel([&] { cancelled.notify(); });
    MutexLock lock(mutex);
    kept = std::move(call);
  });
  Station a(*fixture_);
  a.unary = &keeps;
  a.start();
  const auto has_come = [&] {
    MutexLock lock(mutex);
    return kept != nullptr;
  };
  // With as much time as this machine needs to bring it there.
  for (auto time = std::chrono::milliseconds(100); !has_come() && time < kPatience; time *= 2) {
    EXPECT_FALSE(fixture_->unary_call(a.address(), make_frame(""), time).ok());
  }
  EXPECT_TRUE(cancelled.wait());
  MutexLock lock(mutex);
  // Too late, and harmless.
  if (kept != nullptr) kept->reply(make_frame(""));
  kept = nullptr;
}

TEST_P(TransportConformance, ShutdownEndsUnansweredUnaryCalls) {
  UnaryKeeper keeper;
  Station a(*fixture_);
  a.unary = &keeper;
  a.start();
  absl::StatusOr<Frame> answer = make_frame("");
  std::thread client([&] {
    answer = fixture_->unary_call(a.address(), make_frame(""), std::chrono::seconds(30));
  });
  std::unique_ptr<UnaryCall> call = keeper.take();
  EXPECT_NE(call, nullptr);
  a.transport->shutdown();
  client.join();
  EXPECT_FALSE(answer.ok());
  EXPECT_NE(answer.status().code(), absl::StatusCode::kDeadlineExceeded) << answer.status();
  // The worker may let go of it after the transport.
  call.reset();
}

}  // namespace sinew::internal
