// References over a transport that breaks at the messages about them, and repeats, reorders and
// delays these. A connection that stays up loses no single frame, so what is lost goes with its
// connection.

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/rpc.pb.h"
#include "sinew/rref.pb.h"
#include "sinew/rref/internal/reference_manager.h"
#include "sinew/tests/process/test_methods.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/faulty_transport.h"
#include "sinew/tests/support/reference_messages.h"
#include "sinew/tests/support/repetitions.h"

using sinew::ErrorCode;
using sinew::RpcError;
using sinew::RRef;
using sinew::internal::FaultAction;
using sinew::internal::FaultDirection;
using sinew::internal::FaultPlan;
using sinew::internal::FaultRule;
using sinew::internal::FaultyFrame;
using sinew::testing::error_of;
using sinew::testing::eventually;
using sinew::testing::ledger_note_in;
using testapp::Counter;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t kSeed = 20240607;

bool is_note(const FaultyFrame& frame) {
  const sinew::proto::LedgerNote note = ledger_note_in(frame.lane, frame.frame.envelope);
  return frame.direction == FaultDirection::kOutgoing && note.messages_size() > 0;
}

using MessageKind = sinew::proto::LedgerMessage::BodyCase;

/// Outgoing notes that carry a message of this kind.
std::function<bool(const FaultyFrame&)> carries(MessageKind kind) {
  return [kind](const FaultyFrame& frame) {
    if (frame.direction != FaultDirection::kOutgoing) return false;
    const sinew::proto::LedgerNote note = ledger_note_in(frame.lane, frame.frame.envelope);
    for (const sinew::proto::LedgerMessage& message : note.messages()) {
      if (message.body_case() == kind) return true;
    }
    return false;
  };
}

/// Outgoing calls that make a value for a reference.
bool is_creation(const FaultyFrame& frame) {
  sinew::proto::Envelope envelope;
  return frame.direction == FaultDirection::kOutgoing &&
         frame.lane == sinew::internal::Lane::kCalls &&
         envelope.ParseFromString(frame.frame.envelope) &&
         envelope.call().disposition() == sinew::proto::RETAIN;
}

class Faults : public sinew::testing::ClusterTest {
 protected:
  void start_with_faults(int size = 3,
                         std::function<void(int, sinew::WorkerOptions&)> tweak = nullptr) {
    for (int rank = 0; rank < size; ++rank) {
      plans_.push_back(std::make_shared<FaultPlan>(kSeed + static_cast<std::uint64_t>(rank)));
    }
    sinew::testing::ClusterOptions options;
    options.names = sinew::testing::worker_names(size);
    options.methods = testapp::methods();
    options.tweak = std::move(tweak);
    sinew::testing::wrap_transports(
        options, [this](int rank, std::unique_ptr<sinew::internal::Transport> inner) {
          return sinew::internal::make_faulty_transport(std::move(inner), plan(rank));
        });
    RecordProperty("seed", std::to_string(kSeed));
    start(std::move(options));
  }
  const std::shared_ptr<FaultPlan>& plan(int rank) {
    return plans_.at(static_cast<std::size_t>(rank));
  }
  void add_everywhere(const FaultRule& rule) {
    for (const auto& plan : plans_) ids_.push_back(plan->add(rule));
  }
  std::uint64_t hits() const {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < ids_.size(); ++i) sum += plans_[i % plans_.size()]->hits(ids_[i]);
    return sum;
  }

  /// Shuts both workers down; the text with which the one of this rank ends, which must not leak.
  /// It has less patience: once one of the two is gone, the other has nothing to report any more.
  std::string leaks_at(int rank) {
    std::thread other([&] {
      try {
        worker(1 - rank).shutdown({true, 30s, /*fail_on_leaks=*/false});
      } catch (const sinew::RpcError&) {
        // It may well say that its peer left early.
      }
    });
    const RpcError error = error_of([&] {
      worker(rank).shutdown({true, 3s, /*fail_on_leaks=*/true});
    });
    other.join();
    return error.message();
  }

  /// worker0 drops two references, of which the owner, worker1, does not hear in time.
  void leak_two_references() {
    FaultRule rule;
    rule.action = FaultAction::kHold;
    rule.matches = carries(MessageKind::kDeleteFork);
    plan(0)->add(rule);
    kept_ = worker(0).peer(1).remote<Counter>(0);
    kept_.created().wait();
    // The program drops this one itself.
    EXPECT_EQ(error_of([&] {
                worker(0).peer(1).remote<&testapp::fail>("no value").created().wait();
              }).code(),
              ErrorCode::kOutOfRange);
  }
  sinew::RRef<Counter> kept_;
  const std::string counter_made_ =
      "of type 'testapp::Counter' made at remote call of testapp::Counter: ";

  /// All four ways of sharing, many times.
  void share_a_lot() {
    const auto own = sinew::share_rref(worker(0), std::make_shared<Counter>(0));
    int expected = 0;
    for (int round = 0; round < 5; ++round) {
      const auto counter = worker(0).peer(1).remote<Counter>(0);
      EXPECT_EQ(worker(0).peer(1).call<&testapp::add_to>(counter, 1), 1);
      EXPECT_EQ(worker(0).peer(2).call<&testapp::add_to>(counter, 1), 2);
      EXPECT_EQ(worker(0).peer(2).call<&testapp::add_through>("worker1", counter, 1), 3);
      EXPECT_EQ(worker(0).peer(2).call<&testapp::add_through>("worker0", counter, 1), 4);
      EXPECT_EQ(worker(0).peer(1).call<&testapp::add_through>("worker2", own, 1), ++expected);
      worker(0).peer(2).call<&testapp::keep>("it", counter);
      EXPECT_EQ(worker(0).peer(2).call<&testapp::add_to_kept>("it", 1), 5);
      for (auto& [name, made] : worker(0).peer(2).call<&testapp::make_counters>("worker1", 3)) {
        EXPECT_EQ(made.call<&Counter::get>(), std::stoi(name));
      }
      worker(0).peer(2).call<&testapp::drop>("it");
    }
  }

  std::vector<std::shared_ptr<FaultPlan>> plans_;
  std::vector<FaultPlan::RuleId> ids_;
};
SINEW_INSTANTIATE_CLUSTER_TEST(Faults);

TEST_P(Faults, NoteLostWithItsConnection) {
  start_with_faults();
  FaultRule rule;
  rule.action = FaultAction::kBreak;
  rule.matches = is_note;
  rule.probability = 0.25;
  rule.limit = 40;
  add_everywhere(rule);
  share_a_lot();
  EXPECT_GT(hits(), 0u);
}

TEST_P(Faults, NoteRepeated) {
  start_with_faults();
  FaultRule rule;
  rule.action = FaultAction::kDuplicate;
  rule.matches = is_note;
  add_everywhere(rule);
  rule.delay = 20ms;
  rule.probability = 0.5;
  add_everywhere(rule);
  share_a_lot();
  EXPECT_GT(hits(), 0u);
}

TEST_P(Faults, NoteOvertaken) {
  start_with_faults();
  FaultRule rule;
  rule.action = FaultAction::kReorder;
  rule.matches = is_note;
  rule.probability = 0.5;
  rule.behind = 2;
  rule.delay = 50ms;
  add_everywhere(rule);
  share_a_lot();
  EXPECT_GT(hits(), 0u);
}

TEST_P(Faults, NoteDelayed) {
  start_with_faults();
  FaultRule rule;
  rule.action = FaultAction::kDelay;
  rule.matches = is_note;
  rule.delay = 1ms;
  rule.jitter = 30ms;
  add_everywhere(rule);
  share_a_lot();
  EXPECT_GT(hits(), 0u);
}

TEST_P(Faults, EverythingAtOnceAndBrokenConnections) {
  start_with_faults();
  for (const FaultAction action :
       {FaultAction::kReorder, FaultAction::kDuplicate, FaultAction::kDelay, FaultAction::kBreak}) {
    FaultRule rule;
    rule.action = action;
    rule.matches = is_note;
    rule.probability = action == FaultAction::kBreak ? 0.05 : 0.2;
    rule.limit = 200;
    rule.delay = 5ms;
    add_everywhere(rule);
  }
  share_a_lot();
  EXPECT_GT(hits(), 0u);
}

TEST_P(Faults, EachKindOfMessageFailsThreeTimes) {
  for (const MessageKind kind :
       {MessageKind::kClaim, MessageKind::kAddFork, MessageKind::kForkAdded,
        MessageKind::kChildDone, MessageKind::kDeleteFork}) {
    SCOPED_TRACE(absl::StrCat("message ", static_cast<int>(kind)));
    plans_.clear();
    ids_.clear();
    start_with_faults();
    FaultRule rule;
    rule.action = FaultAction::kBreak;
    rule.matches = carries(kind);
    rule.limit = 3;
    add_everywhere(rule);
    {
      const auto counter = worker(0).peer(1).remote<Counter>(0);
      EXPECT_EQ(worker(0).peer(2).call<&testapp::add_to>(counter, 1), 1);
      const auto own = sinew::share_rref(worker(0), std::make_shared<Counter>(0));
      EXPECT_EQ(worker(0).peer(2).call<&testapp::add_to>(own, 1), 1);
    }
    finish();
    EXPECT_GE(hits(), 3u);
  }
}

// Calls give up then. What is said about references has no deadline, and nobody else asks for a
// connection between the two.
TEST_P(Faults, NotesWaitForAPeerThatNobodyHasReached) {
  start_with_faults(3, [](int, sinew::WorkerOptions& options) {
    options.heartbeat_interval = 300ms;
    options.lease = 3s;
  });
  // Either way: one that can reach the other would be asked to.
  const std::string owner = worker(2).address();
  const std::string user = worker(1).address();
  const absl::Status no_way = absl::UnavailableError("no way");
  const auto cut =
      plan(1)->fail_connects([&](const std::string& to) { return to == owner; }, no_way);
  const auto cut_back =
      plan(2)->fail_connects([&](const std::string& to) { return to == user; }, no_way);
  const auto counter = worker(0).peer(2).remote<Counter>(0);
  counter.created().wait();
  // Its handler starts once the owner has listed the fork.
  const auto added = worker(0).peer(1).async<&testapp::add_to>(counter, 1);
  EXPECT_EQ(error_of([&] { worker(1).peer(2).call<&testapp::add>(1, 2); }).code(),
            ErrorCode::kUnavailable);
  EXPECT_FALSE(added.done());
  plan(1)->remove(cut);
  plan(2)->remove(cut_back);
  EXPECT_EQ(added.wait(), 1);
}

// What else there is to be said waits at its worker, in order.
TEST_P(Faults, FewNotesAreOnTheirWayHoweverManyReferencesGo) {
  start_with_faults(2);
  constexpr int kBatch = 5000;
  const int count = kBatch * std::max(1, sinew::testing::repetitions(20));
  FaultRule rule;
  rule.action = FaultAction::kHold;
  rule.matches = carries(MessageKind::kDeleteFork);
  const auto id = plan(0)->add(rule);
  std::vector<RRef<Counter>> counters;
  while (static_cast<int>(counters.size()) < count) {
    std::vector<sinew::Future<void>> created;
    for (int i = 0; i < kBatch; ++i) {
      counters.push_back(worker(0).peer(1).remote<Counter>(i));
      created.push_back(counters.back().created());
    }
    sinew::wait_all(std::move(created));
  }
  EXPECT_EQ(worker(1).counters()["rref.forks"], count);
  counters.clear();
  const std::uint64_t most = sinew::internal::ReferenceManager::kMaxNotesOnTheWay;
  EXPECT_TRUE(plan(0)->wait_for_hits(id, most, 60s));
  EXPECT_EQ(worker(0).counters()["rref.users"], 0);
  // Control work is done in order, so what there was to be sent has been.
  std::thread other([&] { worker(1).barrier({"worker0", "worker1"}, 60s); });
  worker(0).barrier({"worker0", "worker1"}, 60s);
  other.join();
  EXPECT_EQ(plan(0)->hits(id), most);
  EXPECT_EQ(worker(1).counters()["rref.forks"], count);
  plan(0)->remove(id);
  EXPECT_EQ(plan(0)->release(id), most);
  EXPECT_TRUE(eventually([&] { return worker(1).counters()["rref.forks"] == 0; }));
}

// ---- Creations.

TEST_P(Faults, CreationThatDoesNotArriveInTimeFailsEveryUse) {
  start_with_faults();
  for (const int owner : {1, 2}) {
    FaultRule rule;
    rule.action = FaultAction::kHold;
    rule.matches = is_creation;
    const auto id = plan(0)->add(rule);
    const auto counter = worker(0).peer(owner).with({200ms, {}}).remote<Counter>(0);
    const auto early = counter.async<&Counter::get>();
    const RpcError lost = error_of([&] { counter.created().wait(); });
    EXPECT_EQ(lost.code(), ErrorCode::kDeadlineExceeded);
    const RpcError use = error_of([&] { early.wait(); });
    EXPECT_EQ(use.code(), ErrorCode::kDeadlineExceeded);
    // Not its own deadline: it ends with the call that was to make its object.
    EXPECT_EQ(use.method(), lost.method());
    EXPECT_EQ(error_of([&] { counter.call<&Counter::get>(); }).code(),
              ErrorCode::kDeadlineExceeded);
    EXPECT_EQ(
        error_of([&] { worker(0).peer(3 - owner).call<&testapp::add_to>(counter, 1); }).code(),
        ErrorCode::kDeadlineExceeded);
    // More than once where another connection has taken the place of the first meanwhile.
    EXPECT_GE(plan(0)->hits(id), 1u);
    plan(0)->remove(id);
    // Now it is lost for good: on the next connection it arrives without its content.
    EXPECT_GT(plan(0)->break_connections([](const std::string&) { return true; }), 0u);
  }
  EXPECT_TRUE(eventually([&] { return worker(0).counters()["rref.users"] == 0; }));
  EXPECT_EQ(worker(1).counters()["rref.owned"], 0);
  EXPECT_EQ(worker(2).counters()["rref.owned"], 0);
}

TEST_P(Faults, CreationThatComesAfterItsReferenceWasDeletedCreatesNothing) {
  start_with_faults();
  FaultRule rule;
  rule.action = FaultAction::kHold;
  rule.matches = is_creation;
  const auto id = plan(0)->add(rule);
  {
    const auto counter = worker(0).peer(1).with({100ms, {}}).remote<Counter>(0);
    ASSERT_TRUE(plan(0)->wait_for_hits(id, 1, 30s));
    EXPECT_EQ(error_of([&] { counter.created().wait(); }).code(), ErrorCode::kDeadlineExceeded);
  }
  EXPECT_TRUE(eventually([&] { return worker(0).counters()["rref.users"] == 0; }));
  EXPECT_EQ(plan(0)->release(id), 1u);
  plan(0)->remove(id);
  // A call that was sent later has been served later.
  EXPECT_EQ(worker(0).peer(1).call<&testapp::add>(1, 2), 3);
  EXPECT_EQ(worker(1).counters()["rref.owned"], 0);
  EXPECT_EQ(worker(1).counters()["rref.forks"], 0);
}

TEST_P(Faults, ReferenceOvertakesItsCreation) {
  start_with_faults();
  FaultRule rule;
  rule.action = FaultAction::kHold;
  rule.matches = is_creation;
  const auto id = plan(0)->add(rule);
  const auto counter = worker(0).peer(1).remote<Counter>(5);
  ASSERT_TRUE(plan(0)->wait_for_hits(id, 1, 30s));
  // To its owner, which does not know it yet, and to a third worker.
  auto at_owner = worker(0).peer(1).async<&testapp::add_to>(counter, 1);
  auto at_other = worker(0).peer(2).async<&testapp::add_to>(counter, 1);
  auto direct = counter.async<&Counter::add>(1);
  EXPECT_TRUE(eventually([&] { return worker(1).counters()["rpc.server_active_calls"] > 0; }));
  EXPECT_FALSE(at_owner.done() || at_other.done() || direct.done());
  EXPECT_EQ(plan(0)->release(id), 1u);
  plan(0)->remove(id);
  at_owner.wait();
  at_other.wait();
  direct.wait();
  EXPECT_EQ(counter.call<&Counter::get>(), 8);
}

TEST_P(Faults, CallMadeTwiceByTheNetworkRunsOnce) {
  start_with_faults(2);
  FaultRule rule;
  rule.action = FaultAction::kDuplicate;
  rule.matches = [](const FaultyFrame& frame) {
    return frame.lane == sinew::internal::Lane::kCalls;
  };
  add_everywhere(rule);
  std::vector<sinew::Future<int>> calls;
  for (int i = 0; i < 200; ++i) calls.push_back(worker(0).peer(1).async<&testapp::count>(i));
  for (const int runs : sinew::wait_all(std::move(calls))) EXPECT_EQ(runs, 1);
  for (const auto& [number, runs] : worker(0).peer(1).call<&testapp::executions>())
    EXPECT_EQ(runs, 1) << number;
  EXPECT_GE(hits(), 400u);
}

// ---- R8: what cannot be given up is reported.

TEST_P(Faults, LeakReportOfTheOwnerNamesTypeAndHolder) {
  start_with_faults(2);
  leak_two_references();
  const std::string report = leaks_at(1);
  EXPECT_THAT(report, HasSubstr("worker 'worker1' leaks 2 references"));
  EXPECT_THAT(report, HasSubstr(counter_made_ + "owned here, ready"));
  // Nobody made this one: the caller's word for what it would have been.
  EXPECT_THAT(report, HasSubstr("of type 'integer' made at remote call of testapp::fail: owned "
                                "here, failed"));
  EXPECT_THAT(report, HasSubstr("held by worker 'worker0'"));
  abandon();
}

TEST_P(Faults, LeakReportOfTheUserNamesTypeAndOwner) {
  start_with_faults(2);
  leak_two_references();
  const std::string report = leaks_at(0);
  EXPECT_THAT(report, HasSubstr("worker 'worker0' leaks 2 references"));
  EXPECT_THAT(report, HasSubstr(counter_made_ + "fork "));
  EXPECT_THAT(report, HasSubstr("owned by worker 'worker1', deleted here, of which the owner may "
                                "not have heard, 1 local handles"));
  EXPECT_THAT(report, HasSubstr("of type 'int' made at remote call of testapp::fail: fork "));
  abandon();
}

TEST_P(Faults, LeaksAreOnlyLoggedUnlessAskedFor) {
  start_with_faults(2);
  FaultRule rule;
  rule.action = FaultAction::kHold;
  rule.matches = carries(MessageKind::kDeleteFork);
  plan(0)->add(rule);
  const auto counter = worker(0).peer(1).remote<Counter>(0);
  counter.created().wait();
  std::thread other([&] {
    try {
      worker(1).shutdown({true, 3s, false});
    } catch (const RpcError& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded);
    }
  });
  try {
    worker(0).shutdown({true, 3s, false});
  } catch (const RpcError& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded);
  }
  other.join();
  EXPECT_FALSE(worker(0).is_running());
  abandon();
}

}  // namespace
