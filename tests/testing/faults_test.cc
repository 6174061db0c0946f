// Each fault does what it says, to so many messages, and leaves nothing behind.

#include "sinew/testing/faults.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ATen/ops/full.h"
#include "ATen/ops/ones.h"
#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/rpc/calls/call_link.h"
#include "sinew/rpc/worker/worker_core.h"
#include "sinew/testing/cluster.h"
#include "sinew/testing/error_of.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/fault_plan.h"
#include "sinew/tests/support/faulty_transport.h"
#include "sinew/tests/support/temporary_folder.h"
#include "sinew/tests/testing/store.h"

using sinew::ErrorCode;
using sinew::ErrorOrigin;
using sinew::Execution;
using sinew::Future;
using sinew::RpcError;
using sinew::testing::CallKind;
using sinew::testing::calls;
using sinew::testing::Cluster;
using sinew::testing::ClusterTransport;
using sinew::testing::error_of;
using sinew::testing::eventually;
using sinew::testing::Failure;
using sinew::testing::Fault;
using sinew::testing::Faults;
using sinew::testing::Leg;
using sinew::testing::Messages;
using sinew::testing::replies;
using sinew::testing::TemporaryFolder;
using ::testing::HasSubstr;
using testkit::bump;
using testkit::bump_again;
using testkit::Cell;
using testkit::total_at;
using namespace std::chrono_literals;

namespace {

/// A learner and two actors. A test ends with the check that nothing is left.
class FaultsTest : public ::testing::TestWithParam<ClusterTransport> {
 protected:
  FaultsTest() {
    sinew::testing::ClusterOptions options;
    options.names = {"learner", "actor", "other"};
    options.methods = testkit::methods();
    options.transport = GetParam();
    cluster_ = std::make_unique<Cluster>(std::move(options));
  }
  void TearDown() override { cluster_->shutdown(); }

  Faults& faults() { return cluster_->faults(); }
  sinew::Worker learner() const { return cluster_->worker("learner"); }
  /// The learner, as the actor sees it.
  sinew::Peer peer() const { return cluster_->worker("actor").peer("learner"); }
  std::int64_t call_once() const { return peer().call<&bump>(1); }

  std::unique_ptr<Cluster> cluster_;
};
SINEW_INSTANTIATE_CLUSTER_TEST(FaultsTest);

// ---- What callers see.

/// A fault of calls or of replies, and what becomes of the calls that it hits.
struct Case {
  const char* name;
  Leg leg;
  std::function<Fault(Faults&, const Messages&)> order;
  // Of those calls. Also on a busy machine they are hit before.
  std::chrono::nanoseconds timeout;
  ErrorCode code;
  Execution execution;
  ErrorOrigin origin;
  bool has_run;
};

std::vector<Case> each_fault() {
  const auto fail = [](Faults& faults, const Messages& hit) { return faults.fail(hit); };
  const auto exhaust = [](Faults& faults, const Messages& hit) {
    return faults.fail(hit, ErrorCode::kResourceExhausted);
  };
  const auto drop = [](Faults& faults, const Messages& hit) { return faults.drop(hit); };
  const auto delay = [](Faults& faults, const Messages& hit) { return faults.delay(hit, 1ms); };
  const auto disconnect = [](Faults& faults, const Messages& hit) {
    return faults.break_connection(hit);
  };
  const auto may_have = Execution::kMayHaveRun;
  const auto callee = ErrorOrigin::kCallee;
  return {
      {"a call fails", Leg::kCall, fail, 60s, ErrorCode::kUnavailable, Execution::kDidNotRun,
       callee, false},
      {"a reply fails", Leg::kReply, exhaust, 60s, ErrorCode::kResourceExhausted, may_have, callee,
       true},
      {"a call is dropped", Leg::kCall, drop, 1s, ErrorCode::kDeadlineExceeded, may_have,
       ErrorOrigin::kNetwork, false},
      {"a reply is dropped", Leg::kReply, drop, 1s, ErrorCode::kDeadlineExceeded, may_have,
       ErrorOrigin::kNetwork, true},
      {"a call is delayed", Leg::kCall, delay, 60s, ErrorCode::kOk, may_have, callee, true},
      {"a reply is delayed", Leg::kReply, delay, 60s, ErrorCode::kOk, may_have, callee, true},
      {"a connection breaks at a call", Leg::kCall, disconnect, 60s, ErrorCode::kOk, may_have,
       callee, true},
      {"a connection breaks at a reply", Leg::kReply, disconnect, 60s, ErrorCode::kOk, may_have,
       callee, true},
  };
}

TEST_P(FaultsTest, HitsSoManyAndIsWhatItSays) {
  std::int64_t total = 0;
  for (const Case& each : each_fault()) {
    SCOPED_TRACE(each.name);
    const Messages hit = each.leg == Leg::kCall ? calls<&bump>() : replies<&bump>();
    const Fault fault = each.order(faults(), Messages(hit).after(1).first(2));
    EXPECT_EQ(call_once(), ++total);
    const sinew::Peer hit_peer = peer().within(each.timeout);
    const Future<std::int64_t> both[] = {hit_peer.async<&bump>(1), hit_peer.async<&bump>(1)};
    for (const Future<std::int64_t>& call : both) {
      if (each.has_run) ++total;
      if (each.code == ErrorCode::kOk) {
        EXPECT_NO_THROW(call.wait());
        continue;
      }
      const RpcError error = error_of([&] { call.wait(); });
      EXPECT_EQ(error.code(), each.code);
      EXPECT_EQ(error.execution(), each.execution);
      EXPECT_EQ(error.origin(), each.origin);
      EXPECT_EQ(error.peer(), "learner");
      EXPECT_EQ(error.method(), "testkit::bump");
      if (each.origin == ErrorOrigin::kCallee) {
        EXPECT_THAT(error.message(), HasSubstr("fails as a test wants it"));
      }
    }
    EXPECT_EQ(call_once(), ++total);
    EXPECT_EQ(total_at(learner()), total);
    EXPECT_EQ(fault.hits(), 2);
    cluster_->wait_until_at_rest();
  }
}

// ---- fail()

TEST_P(FaultsTest, RetriesGetOverCallsThatFail) {
  const Fault fault = faults().fail(calls<&bump>().first(2));
  sinew::RetryPolicy policy;
  policy.first_pause = 1ms;
  EXPECT_EQ(peer().retrying(policy).call<&bump>(1), 1);
  EXPECT_EQ(total_at(learner()), 1);
  EXPECT_EQ(fault.hits(), 2);
  EXPECT_EQ(cluster_->worker("actor").counters()["rpc.retries"], 2);
}

TEST_P(FaultsTest, RetriesGetOverRepliesThatFailWhereThatDoesNoHarm) {
  sinew::RetryPolicy policy;
  policy.first_pause = 1ms;
  faults().fail(replies().kind(CallKind::kCall).first(2));
  EXPECT_EQ(peer().retrying(policy).call<&bump_again>(1), 3);
  faults().fail(replies<&bump>().first(1));
  EXPECT_EQ(error_of([&] { peer().retrying(policy).call<&bump>(1); }).execution(),
            Execution::kMayHaveRun);
  EXPECT_EQ(total_at(learner()), 4);
}

// ---- drop()

TEST_P(FaultsTest, WhatIsDroppedEndsWithItsCallItsWorkerOrTheFaults) {
  const auto unavailable = ErrorCode::kUnavailable;
  const sinew::CancellationSource source;
  struct End {
    const char* name;
    std::function<void()> come;
    ErrorCode code;
    Execution of_call;
  };
  const std::vector<End> ends = {
      {"cancelled", [&] { source.cancel(); }, ErrorCode::kCancelled, Execution::kMayHaveRun},
      {"the faults end", [&] { faults().clear(); }, unavailable, Execution::kDidNotRun},
      {"its callee is lost", [&] { cluster_->kill("learner"); }, unavailable,
       Execution::kMayHaveRun}};
  for (const End& end : ends) {
    SCOPED_TRACE(end.name);
    sinew::CallOptions options;
    if (end.code == ErrorCode::kCancelled) options.cancellation = source.token();
    const Fault call_dropped = faults().drop(calls<&bump>().first(1));
    const Fault reply_dropped = faults().drop(replies<&bump>().first(1));
    const std::int64_t before = total_at(learner());
    const Future<std::int64_t> first = peer().with(options).async<&bump>(1);
    call_dropped.wait_for_hits(1);
    const Future<std::int64_t> second = peer().with(options).async<&bump>(1);
    reply_dropped.wait_for_hits(1);
    EXPECT_EQ(total_at(learner()), before + 1);
    // It drops no more, and gives nothing back.
    call_dropped.remove();
    EXPECT_EQ(call_once(), before + 2);
    EXPECT_FALSE(first.done());
    EXPECT_FALSE(second.done());

    end.come();
    const RpcError of_call = error_of([&] { first.wait(); });
    EXPECT_EQ(of_call.code(), end.code);
    EXPECT_EQ(of_call.execution(), end.of_call);
    const RpcError of_reply = error_of([&] { second.wait(); });
    EXPECT_EQ(of_reply.code(), end.code);
    EXPECT_EQ(of_reply.execution(), Execution::kMayHaveRun);
    cluster_->wait_until_at_rest();
  }
}

// ---- delay()

TEST_P(FaultsTest, WhatIsDelayedComesLater) {
  const Fault call_delayed = faults().delay(calls<&bump>().first(1), 30ms);
  const Fault reply_delayed = faults().delay(replies<&bump>().first(2), 20ms);
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(call_once(), 1);
  EXPECT_GE(std::chrono::steady_clock::now() - began, 50ms);
  EXPECT_EQ(call_once(), 2);
  EXPECT_GE(std::chrono::steady_clock::now() - began, 70ms);
  EXPECT_EQ(call_delayed.hits(), 1);
  EXPECT_EQ(reply_delayed.hits(), 2);
}

TEST_P(FaultsTest, WhatIsDelayedIsOvertakenAndGoesOnWhenTheFaultEnds) {
  const Fault call_delayed = faults().delay(calls<&bump>().first(1), 1h);
  const Future<std::int64_t> first = peer().async<&bump>(10);
  call_delayed.wait_for_hits(1);
  EXPECT_EQ(call_once(), 1);
  call_delayed.remove();
  EXPECT_EQ(first.wait(), 11);

  const Fault reply_delayed = faults().delay(replies<&bump>().first(1), 1h);
  const Future<std::int64_t> second = peer().async<&bump>(10);
  reply_delayed.wait_for_hits(1);
  EXPECT_EQ(call_once(), 22);
  EXPECT_FALSE(second.done());
  faults().clear();
  EXPECT_EQ(second.wait(), 21);
}

// ---- hold()

TEST_P(FaultsTest, HeldCallsGoOnOneByOne) {
  const Fault fault = faults().hold(calls<&bump>());
  std::vector<Future<std::int64_t>> made;
  for (int i = 1; i <= 3; ++i) {
    made.push_back(peer().async<&bump>(1));
    // Several threads take what arrives.
    fault.wait_for_hits(i);
  }
  EXPECT_EQ(total_at(learner()), 0);
  for (int released = 1; released <= 3; ++released) {
    EXPECT_EQ(fault.release(1), 1);
    EXPECT_EQ(made[static_cast<std::size_t>(released) - 1].wait(), released);
    EXPECT_EQ(total_at(learner()), released);
  }
  EXPECT_EQ(fault.release(), 0);
  EXPECT_EQ(fault.hits(), 3);
  // It still holds.
  const Future<std::int64_t> later = peer().async<&bump>(1);
  fault.wait_for_hits(4);
  EXPECT_FALSE(later.done());
  fault.remove();
  EXPECT_EQ(later.wait(), 4);
  EXPECT_EQ(call_once(), 5);
}

TEST_P(FaultsTest, TheTestDecidesTheOrderOfReplies) {
  const Fault first = faults().hold(replies<&bump>().first(1));
  const Fault second = faults().hold(replies<&bump>().first(1));
  const Future<std::int64_t> earlier = peer().async<&bump>(1);
  first.wait_for_hits(1);
  const Future<std::int64_t> later = peer().async<&bump>(1);
  second.wait_for_hits(1);
  EXPECT_EQ(total_at(learner()), 2);
  EXPECT_EQ(second.release(), 1);
  EXPECT_EQ(later.wait(), 2);
  EXPECT_FALSE(earlier.done());
  EXPECT_EQ(first.release(), 1);
  EXPECT_EQ(earlier.wait(), 1);
}

TEST_P(FaultsTest, AHeldCallThatIsGivenUpDoesNotRun) {
  const Fault fault = faults().hold(calls<&bump>().first(1));
  // Enough for it to get there.
  constexpr auto kTime = 3s;
  const Future<std::int64_t> call = peer().within(kTime).async<&bump>(1);
  fault.wait_for_hits(1);
  const auto arrived_before = std::chrono::steady_clock::now();
  EXPECT_EQ(error_of([&] { call.wait(); }).code(), ErrorCode::kDeadlineExceeded);
  // At the callee, too, its time is over by then.
  std::this_thread::sleep_until(arrived_before + kTime);
  EXPECT_EQ(fault.release(), 1);
  EXPECT_EQ(call_once(), 1);
  cluster_->wait_until_at_rest();
  EXPECT_EQ(total_at(learner()), 1);
}

TEST_P(FaultsTest, AShutdownLetsGoOfWhatIsHeld) {
  const Fault fault = faults().hold(calls<&bump>());
  const Future<std::int64_t> call = peer().async<&bump>(1);
  fault.wait_for_hits(1);
  cluster_->shutdown();
  EXPECT_EQ(call.wait(), 1);
}

// ---- break_connection()

TEST_P(FaultsTest, ACallRunsOnceThoughItsConnectionBreaks) {
  const Fault at_calls = faults().break_connection(calls<&bump>().first(20));
  const Fault at_replies = faults().break_connection(replies<&bump>().after(10).first(20));
  for (int i = 1; i <= 50; ++i) EXPECT_EQ(call_once(), i);
  EXPECT_EQ(at_calls.hits(), 20);
  EXPECT_EQ(at_replies.hits(), 20);
  EXPECT_EQ(total_at(learner()), 50);
}

// Workers make other connections too, so one more says nothing. But while the network is cut, what
// is broken stays so.
TEST_P(FaultsTest, AnotherConnectionTakesThePlaceOfABrokenOne) {
  std::atomic<bool> is_cut{false};
  const auto cut = [&](const std::string&) { return is_cut.load(); };
  const auto plan = std::make_shared<sinew::internal::FaultPlan>(0);
  plan->fail_connects(cut, absl::UnavailableError("the network is cut"));
  plan->refuse_connects(cut, absl::UnavailableError("the network is cut"));
  sinew::testing::ClusterOptions options;
  options.names = {"learner", "actor", "other"};
  options.methods = testkit::methods();
  options.transport = GetParam();
  sinew::testing::wrap_transports(
      options, [&](int, std::unique_ptr<sinew::internal::Transport> transport) {
        return sinew::internal::make_faulty_transport(std::move(transport), plan);
      });
  Cluster cluster(std::move(options));
  const auto is_up = [&](const char* one, const char* other) {
    const auto link =
        sinew::WorkerAccess::core(cluster.worker(one))->link(cluster.worker(other).info());
    return link.ok() && (*link)->runner().is_up();
  };
  const sinew::Peer peer = cluster.worker("actor").peer("learner");
  std::int64_t total = 0;
  const auto expect_breaks = [&](const std::function<void()>& break_it) {
    for (const char* one : {"actor", "learner"}) cluster.worker(one).peer("other").call<&bump>(1);
    EXPECT_EQ(peer.call<&bump>(1), ++total);
    is_cut = true;
    break_it();
    const Future<std::int64_t> call = peer.async<&bump>(1);
    EXPECT_TRUE(eventually([&] { return !is_up("actor", "learner"); }));
    EXPECT_TRUE(is_up("actor", "other")) << "another one is broken";
    EXPECT_TRUE(is_up("learner", "other")) << "another one is broken";
    is_cut = false;
    EXPECT_EQ(call.wait(), ++total);
  };
  for (const Messages& hit : {calls<&bump>().first(1), replies<&bump>().first(1)}) {
    SCOPED_TRACE(::testing::PrintToString(hit));
    expect_breaks([&] { cluster.faults().break_connection(hit); });
  }
  for (const auto& [one, other] : {std::pair("actor", "learner"), std::pair("learner", "actor")}) {
    SCOPED_TRACE(one);
    expect_breaks(
        [&, one = one, other = other] { EXPECT_TRUE(cluster.break_connection(one, other)); });
  }
  cluster.shutdown();
}

TEST_P(FaultsTest, AWorkerHasNoConnectionToItself) {
  const Fault breaks = faults().break_connection(calls<&bump>());
  const Fault fails = faults().fail(calls<&bump>().first(1));
  const sinew::Peer self = learner().self();
  EXPECT_EQ(error_of([&] { self.call<&bump>(1); }).code(), ErrorCode::kUnavailable);
  EXPECT_EQ(self.call<&bump>(1), 1);
  EXPECT_EQ(breaks.hits(), 0);
  EXPECT_EQ(fails.hits(), 1);
}

// ---- Which messages.

TEST_P(FaultsTest, HitsThoseThatItNames) {
  const sinew::Worker actor = cluster_->worker("actor");
  const sinew::Worker other = cluster_->worker("other");
  // None of them has an effect.
  const auto counted = [&](const Messages& messages) { return faults().delay(messages, 0ns); };
  // Of several the first hits, so each kind of call has one.
  const Fault to_other = counted(calls().at("other"));
  const Fault by_other = counted(calls().by("other"));
  const Fault made = counted(calls<Cell>());
  const Fault fetched = counted(calls().kind(CallKind::kToHere));
  const Fault got = counted(calls<&Cell::get>());
  const Fault kept = counted(calls().kind(CallKind::kRemote));
  const Fault by_name = counted(calls().method("testkit::bump_again"));
  const Fault found = counted(calls().kind(CallKind::kOther));
  const Fault rest = counted(calls());
  const Fault answers = counted(replies());

  actor.peer("other").call<&bump>(1);
  other.peer("learner").call<&bump>(1);
  other.peer("actor").call<&bump>(1);
  const auto cell = peer().remote<Cell>(7);
  EXPECT_EQ(cell.call<&Cell::get>(), 7);
  EXPECT_EQ(peer().remote<&bump>(1).to_here(), 2);
  peer().call<&bump_again>(1);
  learner().publish("cell", std::make_shared<Cell>(1));
  actor.find<Cell>("learner/cell");
  learner().unpublish("cell");
  call_once();
  call_once();

  EXPECT_EQ(to_other.hits(), 1);
  EXPECT_EQ(by_other.hits(), 2);
  EXPECT_EQ(made.hits(), 1);
  EXPECT_EQ(got.hits(), 1);
  EXPECT_EQ(kept.hits(), 1);
  EXPECT_EQ(fetched.hits(), 1);
  EXPECT_EQ(by_name.hits(), 1);
  EXPECT_EQ(found.hits(), 1);
  EXPECT_EQ(rest.hits(), 2);
  // A reference can be used before the answer of remote() has left.
  answers.wait_for_hits(11);
  EXPECT_EQ(answers.hits(), 11);
}

TEST_P(FaultsTest, ChanceIsThatOfTheSeed) {
  const auto drawn = [&](std::uint64_t seed) {
    const Fault fault = faults().fail(calls<&bump>().at_random(0.5, seed));
    std::string failed;
    for (int i = 0; i < 40; ++i) {
      try {
        call_once();
        failed += '.';
      } catch (const RpcError&) {
        failed += 'x';
      }
    }
    EXPECT_EQ(fault.hits(), std::count(failed.begin(), failed.end(), 'x'));
    fault.remove();
    return failed;
  };
  const std::string once = drawn(1);
  EXPECT_EQ(drawn(1), once);
  EXPECT_NE(drawn(2), once);
  EXPECT_THAT(once, HasSubstr("x"));
  EXPECT_THAT(once, HasSubstr("."));
}

TEST_P(FaultsTest, HitNothingOnceTheyHaveEnded) {
  const Fault one = faults().fail(calls<&bump>());
  EXPECT_EQ(error_of([&] { call_once(); }).code(), ErrorCode::kUnavailable);
  one.remove();
  EXPECT_EQ(call_once(), 1);
  const Fault other = faults().fail(calls<&bump>());
  EXPECT_EQ(error_of([&] { call_once(); }).code(), ErrorCode::kUnavailable);
  faults().clear();
  EXPECT_EQ(call_once(), 2);
  EXPECT_EQ(one.hits(), 1);
  EXPECT_EQ(other.hits(), 1);
}

// ---- What they carry.

// References go with calls that fail, answers that get lost, and connections that break: none is
// left over, and each still works.
TEST_P(FaultsTest, ReferencesSurvive) {
  for (const Case& each : each_fault()) {
    SCOPED_TRACE(each.name);
    {
      const auto cell = peer().remote<Cell>(3);
      const Fault fault = each.order(
          faults(),
          (each.leg == Leg::kCall ? calls<&testkit::pass_on>() : replies<&testkit::pass_on>())
              .first(1));
      const sinew::Peer other = cluster_->worker("actor").peer("other").within(each.timeout);
      const auto call = other.async<&testkit::pass_on>(cell);
      if (each.code == ErrorCode::kOk) {
        EXPECT_EQ(call.wait().call<&Cell::get>(), 3);
      } else {
        EXPECT_EQ(error_of([&] { call.wait(); }).code(), each.code);
      }
      EXPECT_EQ(fault.hits(), 1);
      EXPECT_EQ(cell.call<&Cell::get>(), 3);
    }
    EXPECT_NO_THROW(cluster_->wait_until_at_rest());
  }
}

TEST_P(FaultsTest, NothingIsLeftOfAnObjectWhoseMakingFails) {
  for (const bool at_reply : {false, true}) {
    SCOPED_TRACE(at_reply ? "reply" : "call");
    const Messages hit = (at_reply ? replies<Cell>() : calls<Cell>()).first(1);
    faults().fail(hit);
    EXPECT_EQ(error_of([&] { peer().remote<Cell>(1).created().wait(); }).code(),
              ErrorCode::kUnavailable);
    faults().drop(hit);
    EXPECT_EQ(error_of([&] { peer().within(50ms).remote<Cell>(1).created().wait(); }).code(),
              ErrorCode::kDeadlineExceeded);
  }
  cluster_->wait_until_at_rest();
}

TEST_P(FaultsTest, ABackwardPassFailsAndIsGone) {
  const sinew::Worker actor = cluster_->worker("actor");
  const Fault fault = faults().fail(calls().kind(CallKind::kBackward).first(1));
  const at::Tensor leaf = at::ones({2}).requires_grad_(true);
  {
    const sinew::autograd::Context context(actor);
    const at::Tensor loss = peer().call<&testkit::twice>(leaf).sum();
    EXPECT_EQ(error_of([&] { sinew::autograd::backward(context, {loss}); }).code(),
              ErrorCode::kUnavailable);
  }
  EXPECT_EQ(fault.hits(), 1);
  cluster_->wait_until_at_rest();
  const sinew::autograd::Context context(actor);
  const at::Tensor loss = peer().call<&testkit::twice>(leaf).sum();
  sinew::autograd::backward(context, {loss});
  EXPECT_TRUE(sinew::autograd::gradient_of(context, leaf).equal(at::full({2}, 2.0)));
}

// ---- Mistakes.

TEST_P(FaultsTest, RefusesWhatMakesNoSense) {
  const auto code_of = [](const std::function<void()>& what) { return error_of(what).code(); };
  EXPECT_EQ(code_of([&] { faults().fail(calls(), ErrorCode::kOk); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { faults().delay(calls(), -1ns); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { calls().first(-1); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { calls().after(-1); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { calls().at_random(1.5, 1); }), ErrorCode::kInvalidArgument);
  const Fault none = faults().fail(calls().first(0));
  EXPECT_EQ(call_once(), 1);
  try {
    none.wait_for_hits(1, 1ms);
    FAIL() << "it has hit nothing";
  } catch (const Failure& failure) {
    EXPECT_STREQ(failure.what(), "waited in vain until a fault has hit 1 message; it has hit 0");
  }
}

#ifndef __SANITIZE_THREAD__
TEST(FaultsOfWorkers, AreThoseThatWereInstalled) {
  auto faults = std::make_unique<Faults>();
  sinew::WorkerOptions options;
  options.name = "alone";
  options.methods = testkit::methods();
  const TemporaryFolder folder;
  options.init_method = "file://" + folder.file("meet");
  options.rank = 0;
  options.world_size = 1;
  faults->install(options);
  const sinew::Worker worker = sinew::init_rpc(options);
  const Fault fault = faults->fail(calls<&bump>());
  EXPECT_EQ(error_of([&] { worker.self().call<&bump>(1); }).code(), ErrorCode::kUnavailable);
  // They end with the Faults, not with the worker.
  faults.reset();
  EXPECT_EQ(worker.self().call<&bump>(1), 1);
  EXPECT_EQ(fault.hits(), 1);
  worker.shutdown();
}
#endif

}  // namespace
