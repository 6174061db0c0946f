// What becomes of the others when a process is killed, stopped, or comes back. The test is a worker
// itself, named "test".

#include <atomic>
#include <csignal>
#include <memory>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/tests/process/test_methods.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/processes.h"
#include "sinew/tests/support/temporary_folder.h"

using sinew::ErrorCode;
using sinew::RpcError;
using sinew::Worker;
using sinew::testing::ChildProcess;
using sinew::testing::error_of;
using sinew::testing::eventually;
using testapp::Counter;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using namespace std::chrono_literals;

namespace {

/// Open membership over a file: the test first, then its processes.
class Loss : public ::testing::Test {
 protected:
  void TearDown() override {
    if (!self_.valid()) return;
    self_.shutdown({false, 60s, false});
    testapp::state_of(self_).kept.clear();
  }

  void start(std::chrono::milliseconds lease, std::chrono::milliseconds beat,
             std::size_t send_window_bytes = std::size_t{256} << 20) {
    lease_ = lease;
    beat_ = beat;
    sinew::WorkerOptions options;
    options.name = "test";
    options.methods = testapp::methods();
    options.init_method = "file://" + folder_.file("meet");
    options.lease = lease;
    options.heartbeat_interval = beat;
    options.send_window_bytes = send_window_bytes;
    self_ = sinew::init_rpc(options);
  }
  std::unique_ptr<ChildProcess> spawn(const std::string& name, const std::string& more = "") {
    auto child = std::make_unique<ChildProcess>(std::vector<std::string>{SINEW_TEST_WORKER});
    const std::string answer = child->ask(
        absl::StrCat("start name=", name, " init=file://", folder_.file("meet"),
                     " lease_ms=", lease_.count(), " beat_ms=", beat_.count(), " ", more));
    EXPECT_THAT(answer, StartsWith("ok ")) << name;
    EXPECT_TRUE(eventually([&] { return knows(name); }));
    return child;
  }
  /// A counter at another worker, which is there already.
  sinew::RRef<Counter> counter_at(const std::string& name) {
    auto counter = self_.peer(name).remote<Counter>(1);
    counter.created().wait();
    return counter;
  }
  bool knows(const std::string& name) const {
    for (const sinew::WorkerInfo& member : self_.workers()) {
      if (member.name == name) return true;
    }
    return false;
  }

  const sinew::testing::TemporaryFolder folder_;
  std::chrono::milliseconds lease_{};
  std::chrono::milliseconds beat_{};
  Worker self_;
};

TEST_F(Loss, AResultWhoseReferenceCannotBeConfirmedSaysThatTheCallMayHaveRun) {
  start(10min, 1s);
  const auto victim = spawn("victim");
  const auto other = spawn("other");
  self_.peer("other").call<&testapp::keep>("it", counter_at("victim"));
  victim->signal(SIGSTOP);
  const auto result = self_.peer("other").async<&testapp::kept>("it");
  // Until it has arrived, and waits for the owner.
  EXPECT_TRUE(eventually([&] { return self_.counters()["rref.users"] == 1; }));
  EXPECT_FALSE(result.done());
  victim->signal(SIGKILL);
  const RpcError error = error_of([&] { result.wait_for(50s); });
  EXPECT_EQ(error.code(), ErrorCode::kUnavailable) << error.what();
  EXPECT_EQ(error.execution(), sinew::Execution::kMayHaveRun);
  EXPECT_EQ(error.peer(), "victim") << error.what();
  EXPECT_EQ(error.method(), "testapp::kept");
}

TEST_F(Loss, KilledPeerFailsItsCallsLongBeforeItsLease) {
  start(10min, 1s);
  const auto victim = spawn("victim");
  const auto other = spawn("other");
  const sinew::Peer victim_peer = self_.peer("victim");
  const auto lost = counter_at("victim");
  const auto kept = self_.peer("other").remote<Counter>(1);
  const auto own = sinew::share_rref(self_, std::make_shared<Counter>(1));
  self_.peer("victim").call<&testapp::keep>("it", own);
  EXPECT_EQ(victim->ask("hold other theirs"), "ok ");
  EXPECT_EQ(self_.peer("other").call<&testapp::counter_value>("rref.forks"), 2);
  EXPECT_EQ(self_.counters()["rref.forks"], 1);

  std::vector<sinew::Future<int>> pending;
  // A call's failure comes after the news that it follows from.
  std::atomic<int> found_alive{0};
  for (int i = 0; i < 20; ++i) {
    pending.push_back(self_.peer("victim").async<&testapp::stall>());
    pending.back().on_done([&](const auto&) { found_alive += victim_peer.alive() ? 1 : 0; });
  }
  const auto unaffected = self_.peer("other").async<&testapp::stall>();
  ASSERT_TRUE(eventually([&] { return self_.peer("victim").call<&testapp::stalled>() == 20; }));
  victim->signal(SIGKILL);
  for (const sinew::Future<int>& call : pending) {
    const RpcError error = error_of([&] { call.wait_for(50s); });
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable) << error.what();
    EXPECT_EQ(error.execution(), sinew::Execution::kMayHaveRun);
    EXPECT_EQ(error.peer(), "victim");
  }
  EXPECT_EQ(found_alive, 0);
  // Its references go at all owners, also at one that only it knew.
  EXPECT_TRUE(eventually([&] { return self_.counters()["rref.forks"] == 0; }));
  EXPECT_EVENTUALLY(self_.peer("other").call<&testapp::counter_value>("rref.forks"), 1);
  for (const RpcError& error : {error_of([&] { lost.call<&Counter::get>(); }), error_of([&] {
                                  self_.peer("other").call<&testapp::keep>("it", lost);
                                }),
                                error_of([&] { victim_peer.call<&testapp::keep>("it", kept); }),
                                error_of([&] { lost.peer().call<&testapp::keep>("it", kept); })}) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable) << error.what();
    EXPECT_EQ(error.peer(), "victim") << error.what();
  }

  EXPECT_FALSE(unaffected.done());
  self_.peer("other").call<&testapp::release>();
  EXPECT_EQ(unaffected.wait(), 1);
  EXPECT_EQ(kept.call<&Counter::get>(), 1);

  // Back under its name it is somebody new; what the old one had stays lost.
  const auto again = spawn("victim");
  EXPECT_EQ(self_.peer("victim").call<&testapp::add>(1, 2), 3);
  EXPECT_EQ(again->ask("add other"), "ok 3");
  EXPECT_EQ(self_.peer("victim").call<&testapp::stalled>(), 0);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(error_of([&] { lost.call<&Counter::get>(); }).code(), ErrorCode::kUnavailable);
    EXPECT_EQ(error_of([&] { self_.peer("victim").call<&testapp::add_to>(lost, 1); }).code(),
              ErrorCode::kUnavailable);
  }
  EXPECT_THAT(error_of([&] {
                lost.peer();
                lost.call<&Counter::get>();
              }).message(),
              HasSubstr("victim"));
}

// Whoever has no link of its own to a worker hears from the coordinator why it is lost.
TEST_F(Loss, AThirdWorkerIsToldWhyAnotherOneIsLost) {
  start(10min, 1s);
  const auto victim = spawn("victim");
  // It cannot see the other one's process.
  const auto third = spawn("third", "same_host=0");
  EXPECT_EQ(third->ask("watch"), "ok ");
  std::string here;
  sinew::Gone why{};
  sinew::internal::Mutex mutex;
  const auto watch = self_.on_member([&](const sinew::MemberEvent& event) {
    const sinew::internal::MutexLock lock(mutex);
    if (event.kind != sinew::MemberEvent::Kind::kLost) return;
    here = event.reason;
    why = event.why;
  });
  victim->signal(SIGKILL);
  EXPECT_EVENTUALLY(third->ask("events"), "ok lost:victim");
  const sinew::internal::MutexLock lock(mutex);
  EXPECT_THAT(here, StartsWith("worker 'victim' is "));
  EXPECT_EQ(why, sinew::Gone::kProcessEnded);
  EXPECT_EQ(third->ask("reason"), absl::StrCat("ok ", here));
}

TEST_F(Loss, KilledCoordinatorIsReplaced) {
  start(10min, 1s);
  const auto one = spawn("one");
  const auto two = spawn("two");
  EXPECT_EVENTUALLY(one->ask("add two"), "ok 3");
  // The test founded the job; it goes without a word.
  self_.shutdown({false, 60s, false});
  for (const auto* each : {&one, &two}) EXPECT_EVENTUALLY((*each)->ask("members"), "ok one two");
  ChildProcess late(std::vector<std::string>{SINEW_TEST_WORKER});
  EXPECT_THAT(late.ask("start name=late init=file://" + folder_.file("meet")), StartsWith("ok "));
  EXPECT_EQ(late.ask("add one"), "ok 3");
  EXPECT_EQ(late.ask("add two"), "ok 3");
  EXPECT_TRUE(eventually([&] { return two->ask("add late") == "ok 3"; }));
}

TEST_F(Loss, StoppedPeerIsFencedAfterItsLeaseAndFindsItselfFenced) {
  start(3s, 200ms);
  const auto stopped = spawn("stopped");
  const auto other = spawn("other");
  const auto theirs = counter_at("stopped");
  EXPECT_EQ(stopped->ask("hold test mine"), "ok ");
  EXPECT_EQ(self_.counters()["rref.owned"], 1);
  const auto pending = self_.peer("stopped").async<&testapp::stall>();
  ASSERT_TRUE(eventually([&] { return self_.peer("stopped").call<&testapp::stalled>() == 1; }));
  stopped->signal(SIGSTOP);
  const RpcError error = error_of([&] { pending.wait_for(50s); });
  EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
  EXPECT_THAT(error.message(), HasSubstr("is lost"));
  EXPECT_EQ(error_of([&] { theirs.call<&Counter::get>(); }).code(), ErrorCode::kUnavailable);
  EXPECT_TRUE(eventually([&] { return self_.counters()["rref.owned"] == 0; }));
  EXPECT_EQ(self_.peer("other").call<&testapp::add>(1, 2), 3);
  stopped->signal(SIGCONT);
  // It may have to see for itself first, but never gets a value.
  EXPECT_THAT(stopped->ask("use mine"), StartsWith("error "));
  EXPECT_TRUE(eventually([&] { return stopped->ask("state") == "ok evicted, does not run"; }));
  EXPECT_THAT(stopped->ask("use mine"), StartsWith("error ABORTED"));
  EXPECT_EQ(self_.peer("other").call<&testapp::add>(1, 2), 3);
}

TEST_F(Loss, PeerThatStopsForAMomentIsNotLost) {
  start(60s, 200ms);
  const auto child = spawn("child");
  const auto theirs = counter_at("child");
  child->signal(SIGSTOP);
  const auto call = theirs.async<&Counter::add>(1);
  EXPECT_THROW(call.wait_for(1s), RpcError);
  child->signal(SIGCONT);
  EXPECT_EQ(call.wait(), 2);
}

TEST_F(Loss, ReaderThatStopsCostsBoundedMemory) {
  start(10min, 1s, /*send_window_bytes=*/8 << 20);
  const auto child = spawn("child", absl::StrCat("receive_window=", 8 << 20));
  self_.peer("child").call<&testapp::add>(1, 2);
  child->signal(SIGSTOP);
  std::vector<sinew::Future<std::string>> calls;
  bool refused = false;
  for (int i = 0; i < 400 && !refused; ++i) {
    calls.push_back(self_.peer("child").async<&testapp::echo>(std::string(1 << 20, 'x')));
    refused = calls.back().done() && calls.back().error() != nullptr;
  }
  ASSERT_TRUE(refused) << "400 MiB were taken in for a peer that reads nothing";
  const RpcError error = error_of([&] { calls.back().wait(); });
  EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted) << error.what();
  EXPECT_EQ(error.execution(), sinew::Execution::kDidNotRun);
  child->signal(SIGCONT);
  calls.pop_back();
  for (const auto& call : calls) EXPECT_EQ(call.wait().size(), std::size_t{1} << 20);
}

TEST_F(Loss, GracefulShutdownWithProcessesAndADeadOne) {
  const std::string meet = absl::StrCat("tcp://127.0.0.1:", sinew::testing::free_port());
  std::vector<std::unique_ptr<ChildProcess>> children;
  for (int rank = 0; rank < 3; ++rank) {
    children.push_back(std::make_unique<ChildProcess>(std::vector<std::string>{SINEW_TEST_WORKER}));
    children.back()->send(
        absl::StrCat("start name=w", rank, " init=", meet, " world=3 rank=", rank));
  }
  for (const auto& child : children) EXPECT_THAT(child->receive(), StartsWith("ok "));
  EXPECT_EQ(children[0]->ask("add w2"), "ok 3");
  EXPECT_EQ(children[2]->ask("hold w1 it"), "ok ");
  children[2]->signal(SIGKILL);
  children[0]->send("shutdown graceful 50000");
  children[1]->send("shutdown graceful 50000");
  EXPECT_EQ(children[0]->receive(), "ok ");
  EXPECT_EQ(children[1]->receive(), "ok ");
  EXPECT_EQ(children[0]->finish(), 0);
  EXPECT_EQ(children[1]->finish(), 0);
}

TEST_F(Loss, EnvironmentOfEachProcessNamesItsPlace) {
  const std::string port = absl::StrCat("MASTER_PORT=", sinew::testing::free_port());
  std::vector<std::unique_ptr<ChildProcess>> children;
  for (int rank = 0; rank < 3; ++rank) {
    children.push_back(std::make_unique<ChildProcess>(
        std::vector<std::string>{SINEW_TEST_WORKER},
        std::vector<std::string>{"MASTER_ADDR=127.0.0.1", port, "WORLD_SIZE=3",
                                 absl::StrCat("RANK=", rank)}));
    children.back()->send(absl::StrCat("start name=w", rank));
  }
  for (const auto& child : children) EXPECT_THAT(child->receive(), StartsWith("ok "));
  EXPECT_EQ(children[2]->ask("members"), "ok w0 w1 w2");
  for (const auto& child : children) child->send("barrier 50000");
  for (const auto& child : children) EXPECT_EQ(child->receive(), "ok ");
  for (const auto& child : children) child->send("shutdown graceful 50000");
  for (const auto& child : children) EXPECT_EQ(child->receive(), "ok ");
}

}  // namespace
