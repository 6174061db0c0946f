// What a worker does with its links: who is lost, who is asked, and what ends with a call that is
// given up at a bad moment.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/rpc.pb.h"
#include "sinew/rpc/calls/call_link.h"
#include "sinew/rpc/calls/call_server.h"
#include "sinew/rpc/worker/worker_core.h"
#include "sinew/rpc/worker/worker_links.h"
#include "sinew/rpc/worker/worker_parts.h"
#include "sinew/tests/process/test_methods.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/faulty_transport.h"

using sinew::CallContext;
using sinew::CallOptions;
using sinew::CancellationSource;
using sinew::ErrorCode;
using sinew::Future;
using sinew::Promise;
using sinew::RpcError;
using sinew::internal::FaultDirection;
using sinew::internal::FaultPlan;
using sinew::internal::FaultRule;
using sinew::internal::FaultyFrame;
using sinew::internal::FrameKind;
using sinew::internal::WorkerLinks;
using sinew::testing::error_of;
using sinew::testing::eventually;
using testapp::Counter;
using namespace std::chrono_literals;

namespace links {

/// Ends when its caller gives it up.
Future<int> until_cancelled() {
  const Promise<int> promise;
  CallContext::current().cancellation().notify([promise] { promise.try_set_value(1); });
  return promise.future();
}

}  // namespace links

SINEW_METHOD(links::until_cancelled);

namespace {

class WorkerLinksTest : public sinew::testing::ClusterTest {
 protected:
  void TearDown() override { HasFailure() ? abandon() : finish(); }

  /// `plan_` hurts worker0.
  void start_two() {
    sinew::testing::ClusterOptions options;
    options.methods = testapp::methods();
    options.methods.add<&links::until_cancelled>();
    sinew::testing::wrap_transports(
        options, [this](int rank, std::unique_ptr<sinew::internal::Transport> inner) {
          return rank == 0 ? sinew::internal::make_faulty_transport(std::move(inner), plan_)
                           : std::move(inner);
        });
    start(std::move(options));
    EXPECT_EQ(worker(0).peer(1).call<&testapp::add>(1, 2), 3);
  }
  WorkerLinks& links_of(int rank) { return sinew::WorkerAccess::core(worker(rank))->links(); }
  /// Cancels `source` in the middle of sending the first frame of worker0 that has this in it.
  void cancel_while_sending(const std::string& text, const CancellationSource& source) {
    FaultRule rule;
    rule.matches = [text, source](const FaultyFrame& frame) {
      if (frame.direction == FaultDirection::kOutgoing &&
          frame.lane == sinew::internal::Lane::kCalls &&
          frame.frame.envelope.find(text) != std::string::npos) {
        source.cancel();
      }
      return false;
    };
    plan_->add(std::move(rule));
  }

  const std::shared_ptr<FaultPlan> plan_ = std::make_shared<FaultPlan>(/*seed=*/1);
};
SINEW_INSTANTIATE_CLUSTER_TEST(WorkerLinksTest);

TEST_P(WorkerLinksTest, ACallThatIsCancelledWhileItLeavesIsCancelledThere) {
  start_two();
  const CancellationSource source;
  CallOptions options;
  options.cancellation = source.token();
  cancel_while_sending("links::until_cancelled", source);
  const Future<int> call = worker(0).peer(1).with(options).async<&links::until_cancelled>();
  EXPECT_EQ(error_of([&] { call.wait(); }).code(), ErrorCode::kCancelled);
  // What follows it in its lane has been served, so it has arrived; unless the cancel came first,
  // which drops it, it runs until it is cancelled.
  EXPECT_EQ(worker(0).peer(1).call<&testapp::add>(1, 2), 3);
  EXPECT_TRUE(eventually([&] { return worker(1).counters()["rpc.server_active_calls"] == 0; }));
}

// The two come on lanes of their own, which two threads may read: the link has handed the call
// over, but nobody knows it yet.
TEST_P(WorkerLinksTest, ACancelThatOvertakesTheThreadWithItsCallIsNotForgotten) {
  start_two();
  const auto link = links_of(1).find(worker(0).info());
  ASSERT_TRUE(link.ok()) << link.status();
  constexpr std::uint64_t kId = 4711;
  const auto arrives = [&](FrameKind kind, std::uint64_t subject,
                           const sinew::proto::Envelope& envelope) {
    std::vector<sinew::internal::Inbound> frames(1);
    frames[0].header.kind = kind;
    frames[0].header.subject = subject;
    frames[0].envelope = envelope.SerializeAsString();
    (*link)->on_frames(std::move(frames));
  };
  sinew::proto::Envelope cancel;
  cancel.mutable_cancel()->set_id(kId);
  arrives(FrameKind::kControl, 0, cancel);
  const auto& server = sinew::WorkerAccess::core(worker(1))->server();
  const std::int64_t started = server.calls_started();
  sinew::proto::Envelope call;
  call.mutable_call()->set_id(kId);
  call.mutable_call()->set_method("links::until_cancelled");
  arrives(FrameKind::kRequest, kId, call);
  EXPECT_EQ(server.calls_started(), started + 1);
  EXPECT_TRUE(eventually([&] { return worker(1).counters()["rpc.server_active_calls"] == 0; }));
}

// The references in it, and the one that it makes, end too: or shutting down tells of them.
TEST_P(WorkerLinksTest, WhatHangsOnACallThatIsCancelledWhileItLeavesEnds) {
  start_two();
  const auto held = worker(0).peer(1).remote<Counter>(1);
  held.created().wait();
  const CancellationSource source;
  CallOptions options;
  options.cancellation = source.token();
  cancel_while_sending("testapp::add_to", source);
  const auto sum = worker(0).peer(1).with(options).remote<&testapp::add_to>(held, 1);
  EXPECT_EQ(error_of([&] { sum.created().wait(); }).code(), ErrorCode::kCancelled);
}

TEST_P(WorkerLinksTest, WhoIsLinkedIsNotLostThoughItsAddressRefuses) {
  start_two();
  const std::string address = worker(1).address();
  plan_->fail_connects([address](const std::string& to) { return to == address; },
                       absl::NotFoundError("nobody listens there"));
  EXPECT_EQ(worker(0).peer(1).call<&testapp::add>(1, 2), 3);
}

// Somebody has found that the peer cannot be reached, and by the time that this is told it has
// come.
TEST_P(WorkerLinksTest, WhoHasComeMeanwhileIsNotUnreachable) {
  start_two();
  const Future<int> running = worker(0).peer(1).async<&testapp::stall>();
  const auto link = links_of(0).find(worker(1).info());
  ASSERT_TRUE(link.ok()) << link.status();
  (*link)->on_unreachable(absl::UnavailableError("so it was a moment ago"));
  EXPECT_FALSE(running.done());
  EXPECT_TRUE(eventually([&] { return worker(0).peer(1).call<&testapp::stalled>() == 1; }));
  worker(0).peer(1).call<&testapp::release>();
  EXPECT_EQ(running.wait(), 1);
}

// Whoever finds it in the list of members, just before it is lost, must not make it a new link.
TEST_P(WorkerLinksTest, ALinkWithWhoIsLostFailsItsCalls) {
  start_two();
  const sinew::WorkerInfo lost = worker(1).info();
  const sinew::Peer peer = worker(0).peer(1);
  links_of(0).off_the_list(lost, absl::UnavailableError("lost, as the test wants"),
                           sinew::Gone::kUnknown);
  const auto link = links_of(0).find(lost);
  ASSERT_TRUE(link.ok()) << link.status();
  EXPECT_FALSE((*link)->alive());
  const RpcError error = error_of([&] { peer.call<&testapp::add>(1, 2); });
  EXPECT_EQ(error.code(), ErrorCode::kUnavailable) << error.what();
  abandon();
}

// What a call has made while it was found out whether the peer is lost.
TEST_P(WorkerLinksTest, ALinkThatWasMadeWhileThePeerWasJudgedEndsWithTheVerdict) {
  start_two();
  const sinew::WorkerInfo lost = worker(1).info();
  const Future<int> call = worker(0).peer(1).async<&testapp::stall>();
  std::atomic<bool> retired{false};
  // The one before, as it were.
  links_of(0).on_link_ended(
      lost, {sinew::Gone::kSilent, absl::UnavailableError("silent, as the test wants"),
             sinew::internal::Clock::system().now(), [&](const absl::Status&) { retired = true; }});
  const RpcError error = error_of([&] { call.wait_for(60s); });
  EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
  // Not when the other one has heard of it and has ended it, too.
  EXPECT_THAT(error.message(), ::testing::HasSubstr("silent, as the test wants"));
  EXPECT_TRUE(retired);
  EXPECT_TRUE(links_of(0).is_lost(lost));
  testapp::drop_stalled(worker(1));
  abandon();
}

// Somebody else may tell of its goodbye before what it said last has come.
TEST_P(WorkerLinksTest, WhatAPeerThatHasLeftHasAnsweredStillComes) {
  start_two();
  const Promise<std::string> answer;
  std::atomic<int> asked{0};
  const auto peer = sinew::WorkerAccess::core(worker(1));
  peer->add_control_method("sinew.test.later", [&](const sinew::WorkerInfo&, const std::string&) {
    ++asked;
    return answer.future();
  });
  const auto core = sinew::WorkerAccess::core(worker(0));
  const auto ask = [&] {
    return core->control_call(worker(1).info(), "sinew.test.later", "", 5min);
  };
  const Future<std::string> answered = ask();
  const Future<int> user_call = worker(0).peer(1).async<&testapp::stall>();
  ASSERT_TRUE(eventually([&] { return asked == 1; }));
  links_of(0).off_the_list(worker(1).info(), absl::UnavailableError("it has left the job"),
                           sinew::Gone::kLeft);
  EXPECT_EQ(error_of([&] { user_call.wait(); }).code(), ErrorCode::kUnavailable);
  EXPECT_EQ(error_of([&] { ask().wait(); }).code(), ErrorCode::kUnavailable) << "a new one";
  EXPECT_FALSE(answered.done());
  answer.set_value("at last");
  EXPECT_EQ(answered.wait(), "at last");
  testapp::drop_stalled(worker(1));
  abandon();
}

// But not longer than its link lives.
TEST_P(WorkerLinksTest, WhatAPeerThatHasLeftDoesNotAnswerFailsWithTheLink) {
  start_two();
  const Promise<std::string> answer;
  std::atomic<bool> asked{false};
  sinew::WorkerAccess::core(worker(1))->add_control_method(
      "sinew.test.later", [&](const sinew::WorkerInfo&, const std::string&) {
        asked = true;
        return answer.future();
      });
  const Future<std::string> call = sinew::WorkerAccess::core(worker(0))->control_call(
      worker(1).info(), "sinew.test.later", "", 5min);
  ASSERT_TRUE(eventually([&] { return asked.load(); }));
  links_of(0).off_the_list(worker(1).info(), absl::UnavailableError("it has left the job"),
                           sinew::Gone::kLeft);
  worker(1).shutdown({false, 60s, false});
  const RpcError error = error_of([&] { call.wait_for(30s); });
  EXPECT_EQ(error.code(), ErrorCode::kUnavailable) << error.what();
  answer.set_value("too late");
  abandon();
}

TEST_P(WorkerLinksTest, WhoSaysFarewellWaitsForAnswersThatAreNotFramesYet) {
  start_two();
  const Promise<std::string> answer;
  std::atomic<bool> asked{false};
  sinew::WorkerAccess::core(worker(0))->add_control_method(
      "sinew.test.later", [&](const sinew::WorkerInfo&, const std::string&) {
        asked = true;
        return answer.future();
      });
  const Future<std::string> call = sinew::WorkerAccess::core(worker(1))->control_call(
      worker(0).info(), "sinew.test.later", "", 5min);
  ASSERT_TRUE(eventually([&] { return asked.load(); }));
  std::atomic<bool> answered{false};
  std::thread later([&] {
    std::this_thread::sleep_for(50ms);
    answered = true;
    answer.set_value("at last");
  });
  links_of(0).flush(60s);
  EXPECT_TRUE(answered) << "it did not wait";
  later.join();
  EXPECT_EQ(call.wait(), "at last");
}

// ---- A worker that joins.

/// Counts what clients are told.
struct Told {
  std::atomic<int> answers{0};
  std::atomic<int> refusals{0};
};

class Client final : public sinew::internal::UnaryCall {
 public:
  explicit Client(Told& told) : told_(told) {
    sinew::proto::Call call;
    call.set_method("nothing that there is");
    request_.envelope = call.SerializeAsString();
  }
  const sinew::internal::AuthenticatedPeer& remote() const override { return remote_; }
  const Metadata& metadata() const override { return metadata_; }
  sinew::internal::Frame& request() override { return request_; }
  std::chrono::nanoseconds time_left() const override { return std::chrono::nanoseconds::max(); }
  void notify_on_cancel(absl::AnyInvocable<void() &&>) override {}
  void reply(sinew::internal::Frame) override { ADD_FAILURE() << "there is no such method"; }
  void fail(const absl::Status& status) override {
    const bool refused = absl::StrContains(status.message(), "calls wait for that");
    ++(refused ? told_.refusals : told_.answers);
  }

 private:
  Told& told_;
  sinew::internal::AuthenticatedPeer remote_;
  const Metadata metadata_;
  sinew::internal::Frame request_;
};

/// A layer that is made while its worker joins: calls come in then.
class EarlyCalls final : public sinew::internal::Extension {
 public:
  EarlyCalls(sinew::internal::WorkerServices& services, int calls, Told& told) {
    for (int i = 0; i < calls; ++i) {
      services.server().on_unary_call(std::make_unique<Client>(told));
    }
    EXPECT_EQ(told.answers, 0);
  }
  std::string_view layer() const override { return "early"; }
  void on_note(const sinew::WorkerInfo&, std::string) override {}
  void on_worker_fenced(const sinew::WorkerInfo&) override {}
  void on_worker_lost(const sinew::WorkerInfo&) override {}
  void add_counters(sinew::Counters&) const override {}
  Future<std::vector<std::string>> drain_async(DrainScope,
                                               sinew::internal::Clock::TimePoint) override {
    return sinew::make_ready_future(std::vector<std::string>());
  }
  void stop() override {}
};

TEST(WorkerThatJoins, RefusesCallsThatAreTooManyToWait) {
  constexpr int kWait = 65536;
  constexpr int kMore = 10;
  Told told;
  sinew::testing::ClusterOptions options;
  options.names = sinew::testing::worker_names(1);
  options.methods = testapp::methods();
  options.tweak = [&told](int, sinew::WorkerOptions& worker) {
    sinew::internal::parts_of(worker).extensions.emplace_back(
        [&told](sinew::internal::WorkerServices& services) {
          return std::make_shared<EarlyCalls>(services, kWait + kMore, told);
        });
  };
  const sinew::testing::Cluster cluster(std::move(options));
  EXPECT_TRUE(eventually([&] { return told.refusals == kMore; }));
  EXPECT_TRUE(eventually([&] { return told.answers == kWait; }));
}

}  // namespace
