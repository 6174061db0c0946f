// The end of workers, of a job and of every state. Each suite is a rule of docs/protocols.md at
// work.

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/rref/internal/ledger_states.h"
#include "sinew/tests/rref/support/ledger_fixture.h"
#include "sinew/tests/rref/support/ledger_inspector.h"

namespace sinew::internal::ledger {
namespace {

using testing::HasSubstr;

using R7EndOfWorker = LedgerTest;

TEST_F(R7EndOfWorker, the_owner_drops_the_forks_of_a_lost_holder) {
  const Created made = create();
  const Handled lost = b.worker_lost(a.self(), now);
  EXPECT_EQ(all_of<DestroyValue>(lost.actions).size(), 1u);
  EXPECT_TRUE(b.worker_lost(a.self(), now).actions.empty());
  EXPECT_EQ(b.handle(Claim{made.rref, made.fork}, a.self(), now).status.code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(b.on_create(made.rref, made.fork, a.self(), described(), now).status.code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(b.authorise_use(made.rref, made.fork, a.self()).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_TRUE(b.quiescent());
}

TEST_F(R7EndOfWorker, a_fence_keeps_the_forks_of_a_holder_that_may_not_know_yet) {
  const Created made = create();
  EXPECT_TRUE(all_of<DestroyValue>(b.fence(a.self(), now).actions).empty());
  EXPECT_TRUE(LedgerInspector::lists(b, made.rref, made.fork, a.self()));
  EXPECT_FALSE(b.authorise_use(made.rref, made.fork, a.self()).ok());
  EXPECT_EQ(b.counters().forks_of_lost, 1u);
  EXPECT_TRUE(b.fence(a.self(), now).actions.empty());
  EXPECT_EQ(b.counters().forks_of_lost, 1u);
  EXPECT_EQ(all_of<DestroyValue>(b.worker_lost(a.self(), now).actions).size(), 1u);
  EXPECT_EQ(b.counters().forks_of_lost, 0u);
}

TEST_F(R7EndOfWorker, references_of_a_lost_owner_fail_for_ever) {
  const Created made = create();
  const Handled lost = a.worker_lost(b.self(), now);
  ASSERT_EQ(all_of<Failed>(lost.actions).size(), 1u);
  const auto fails = [&] {
    const absl::Status use = a.view(made.fork).status();
    EXPECT_EQ(use.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(use.message()), HasSubstr("owner lost"));
    EXPECT_THAT(std::string(use.message()), HasSubstr("worker 'b'"));
  };
  fails();
  // The name comes back as another process: the reference stays dead, new ones work.
  const WorkerInfo reborn = worker("b", 2, 0xbb);
  EXPECT_TRUE(a.create(reborn, described()).ok());
  fails();
  EXPECT_EQ(a.create(b.self(), described()).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(a.release_user(made.fork, now).actions.empty());
}

TEST_F(R7EndOfWorker, a_record_of_a_lost_owner_fails_at_once_and_frees_its_giver) {
  const Created made = create();
  const ForkRecord record = a.share_user(made.fork, c.self(), now + kDeadline).value();
  EXPECT_TRUE(c.worker_lost(b.self(), now).actions.empty());
  Outcome<Received> received = c.receive(record, a.self(), described(), now);
  EXPECT_EQ(received.result.status().code(), absl::StatusCode::kUnavailable);
  deliver(received.actions, c.self());
  EXPECT_EQ(a.counters().pending_children, 0u);
}

TEST_F(R7EndOfWorker, a_lost_receiver_frees_the_parent) {
  const Created made = create();
  ASSERT_TRUE(a.share_user(made.fork, c.self(), now + kDeadline).ok());
  EXPECT_TRUE(a.release_user(made.fork, now).actions.empty());
  EXPECT_EQ(sent<Delete>(a.worker_lost(c.self(), now).actions).size(), 1u);
  EXPECT_EQ(a.share_user(made.fork, c.self(), now).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(R7EndOfWorker, a_child_whose_giver_died_too_early_fails) {
  const Created made = create();
  const ForkRecord record = a.share_user(made.fork, c.self(), now + kDeadline).value();
  Outcome<Received> received = c.receive(record, a.self(), described(), now);
  EXPECT_EQ(all_of<DestroyValue>(b.worker_lost(a.self(), now).actions).size(), 1u);
  const Actions rest = deliver(received.actions, c.self());
  ASSERT_EQ(all_of<Failed>(rest).size(), 1u);
  EXPECT_THAT(std::string(all_of<Failed>(rest)[0].status.message()), HasSubstr("worker 'b'"));
}

TEST_F(R7EndOfWorker, what_waits_for_the_create_of_a_lost_worker_fails) {
  const Created made = a.create(b.self(), described()).value();
  const ForkRecord record = a.share_user(made.fork, c.self(), now + kDeadline).value();
  Outcome<Received> at_c = c.receive(record, a.self(), described(), now);
  deliver(at_c.actions, c.self());
  EXPECT_EQ(b.counters().parked, 1u);
  const Actions rest = deliver(b.fence(a.self(), now).actions, b.self());
  EXPECT_EQ(all_of<Failed>(rest).size(), 1u);
  EXPECT_EQ(b.counters().parked, 0u);
}

using R8Shutdown = LedgerTest;

TEST_F(R8Shutdown, the_sweep_deletes_what_is_held_and_later_uses_say_so) {
  const Created made = create();
  const Created pending = create(Value::kAwaited);
  Handled swept = a.release_all_users(now);
  EXPECT_EQ(all_of<Failed>(swept.actions).size(), 2u);
  EXPECT_EQ(sent<Delete>(swept.actions).size(), 1u);  // the other follows its creation
  for (const ForkId& fork : {made.fork, pending.fork}) {
    const absl::Status use = a.view(fork).status();
    EXPECT_EQ(use.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(use.message()), HasSubstr("has been deleted"));
    EXPECT_FALSE(a.share_user(fork, c.self(), now).ok());
  }
  deliver(swept.actions, a.self());
  EXPECT_TRUE(a.release_all_users(now).actions.empty());  // idempotent
  Handled created = a.create_succeeded(pending.fork, now);
  EXPECT_EQ(sent<Delete>(created.actions).size(), 1u);
  deliver(created.actions, a.self());
  EXPECT_TRUE(b.owner_fulfilled(pending.rref).status.ok());
  EXPECT_TRUE(b.quiescent());
  // The handles of the program go later, without another message.
  EXPECT_TRUE(a.release_user(made.fork, now).actions.empty());
  EXPECT_TRUE(a.release_user(pending.fork, now).actions.empty());
  expect_empty_after_one_lease();
}

TEST_F(R8Shutdown, the_report_names_type_site_role_and_peer) {
  const Created made = create();
  ASSERT_TRUE(a.share_user(made.fork, c.self(), now + kDeadline).ok());
  const std::vector<LiveReference> owned = b.live_references();
  ASSERT_EQ(owned.size(), 1u);
  EXPECT_EQ(owned[0].role, Role::kOwner);
  EXPECT_EQ(owned[0].peers.at(0), a.self());
  EXPECT_EQ(to_text(owned[0]),
            "reference 000000000000000a.1 of type 'app::Agent' made at agent.cc:12: owned here, "
            "ready, 0 local handles, held by worker 'a'");
  EXPECT_TRUE(b.live_references(0).empty());
  EXPECT_EQ(b.live_references(1).size(), 1U);
  const std::vector<LiveReference> held = a.live_references();
  ASSERT_EQ(held.size(), 1u);
  EXPECT_EQ(to_text(held[0]),
            "reference 000000000000000a.1 of type 'app::Agent' made at agent.cc:12: fork "
            "000000000000000a.2 owned by worker 'b', listed, 1 local handles, 1 pending children");
  const LedgerCounters counters = a.counters();
  EXPECT_EQ(counters.users, 1u);
  EXPECT_EQ(counters.pending_users, 0u);
  EXPECT_EQ(counters.pending_children, 1u);
  EXPECT_FALSE(a.quiescent());
}

TEST(LedgerStates, every_pair_of_state_and_event_has_one_row_at_most) {
  for (const UserTransition& one : kUserTransitions) {
    int rows = 0;
    for (const UserTransition& other : kUserTransitions) {
      rows += one.from == other.from && one.event == other.event ? 1 : 0;
    }
    EXPECT_EQ(rows, 1);
    EXPECT_NE(one.from, UserState::kGone) << "nothing leads out of the end";
  }
}

}  // namespace
}  // namespace sinew::internal::ledger
