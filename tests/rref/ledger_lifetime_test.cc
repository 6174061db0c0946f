// How long a fork lives, and what keeps it. Each suite is a rule of docs/protocols.md at work.

#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "sinew/tests/rref/support/ledger_fixture.h"
#include "sinew/tests/rref/support/ledger_inspector.h"

namespace sinew::internal::ledger {
namespace {

using std::chrono::seconds;

using R1Delete = LedgerTest;

TEST_F(R1Delete, the_last_handle_deletes_and_the_owner_destroys) {
  const Created made = create();
  EXPECT_TRUE(a.add_user_handle(made.fork).ok());
  EXPECT_TRUE(a.release_user(made.fork, now).actions.empty());
  const Actions last = a.release_user(made.fork, now).actions;
  ASSERT_EQ(sent<Delete>(last).size(), 1u);
  const std::vector<DestroyValue> destroyed = all_of<DestroyValue>(deliver(last, a.self()));
  ASSERT_EQ(destroyed.size(), 1u);
  EXPECT_EQ(destroyed[0].rref, made.rref);
  EXPECT_EQ(a.release_user(made.fork, now).status.code(), absl::StatusCode::kNotFound);
  expect_empty_after_one_lease();
}

TEST_F(R1Delete, waits_until_the_creation_has_ended) {
  const Created made = create(Value::kAwaited);
  EXPECT_TRUE(a.release_user(made.fork, now).actions.empty());
  EXPECT_EQ(sent<Delete>(a.create_succeeded(made.fork, now).actions).size(), 1u);
}

TEST_F(R1Delete, a_value_that_nobody_waits_for_any_more_goes_when_it_is_made) {
  const Created made = create(Value::kAwaited);
  EXPECT_TRUE(b.handle(Delete{made.rref, made.fork, Time(0)}, a.self(), now).status.ok());
  EXPECT_EQ(b.counters().owner_entries, 1u);
  EXPECT_EQ(all_of<DestroyValue>(b.owner_fulfilled(made.rref).actions).size(), 1u);
  EXPECT_EQ(b.counters().owner_entries, 0u);
}

using R2Parent = LedgerTest;

TEST_F(R2Parent, lives_until_its_child_is_done) {
  const Created made = create();
  const ForkRecord record = a.share_user(made.fork, c.self(), now + kDeadline).value();
  EXPECT_TRUE(a.release_user(made.fork, now).actions.empty());
  EXPECT_EQ(a.view(made.fork).status().code(), absl::StatusCode::kFailedPrecondition);

  Outcome<Received> received = c.receive(record, a.self(), described(), now);
  ASSERT_TRUE(received.result.ok());
  EXPECT_EQ(received.result->state, Received::State::kWaiting);
  EXPECT_EQ(c.view(received.result->fork)->state, UserView::State::kUnconfirmed);
  EXPECT_EQ(c.share_user(received.result->fork, m.self(), std::nullopt).status().code(),
            absl::StatusCode::kFailedPrecondition);
  ASSERT_EQ(sent<AddFork>(received.actions).size(), 1u);
  // ForkAdded, then ChildDone, then the parent's Delete.
  const Actions rest = deliver(received.actions, c.self());
  EXPECT_EQ(all_of<Confirmed>(rest).size(), 1u);
  EXPECT_TRUE(all_of<DestroyValue>(rest).empty());
  EXPECT_EQ(a.counters().users, 0u);
  EXPECT_EQ(b.counters().forks, 1u);
  EXPECT_EQ(b.authorise_use(made.rref, received.result->fork, c.self()).value(), UseState::kReady);
}

TEST_F(R2Parent, is_freed_by_asking_when_the_message_was_lost) {
  const Created made = create();
  const ForkRecord lost = a.share_user(made.fork, c.self(), now + kDeadline).value();
  EXPECT_TRUE(a.release_user(made.fork, now).actions.empty());
  EXPECT_EQ(a.next_tick().value(), now + kDeadline + kLease);
  now += kDeadline + kLease;
  const Actions ask = a.tick(now).actions;
  ASSERT_EQ(sent<AskChild>(ask).size(), 1u);
  EXPECT_EQ(all_of<DestroyValue>(deliver(ask, a.self())).size(), 1u);
  // C has promised: the message is not accepted if it comes after all.
  EXPECT_EQ(c.receive(lost, a.self(), described(), now).result.status().code(),
            absl::StatusCode::kAlreadyExists);
  expect_empty_after_one_lease();
}

TEST_F(R2Parent, is_asked_for_at_once_when_the_call_failed) {
  const Created made = create();
  const ForkRecord record = a.share_user(made.fork, c.self(), now + kDeadline).value();
  const Actions ask = a.carrier_failed(record.fork, now).actions;
  ASSERT_EQ(sent<AskChild>(ask).size(), 1u);
  EXPECT_EQ(sent<AskChild>(ask)[0].may_arrive_for, kDeadline);
  EXPECT_TRUE(a.carrier_failed(record.fork, now).actions.empty());
  deliver(ask, a.self());
  EXPECT_EQ(a.counters().pending_children, 0u);
  // Remembered until the message cannot arrive any more, and one lease.
  now += kDeadline + kLease - seconds(1);
  EXPECT_TRUE(c.tick(now).actions.empty());
  EXPECT_EQ(c.counters().tombstones, 1u);
}

TEST_F(R2Parent, is_freed_at_once_when_the_message_never_left) {
  const Created made = create();
  const ForkRecord record = a.share_user(made.fork, c.self(), now + kDeadline).value();
  a.carrier_not_sent(record.fork, now).status.IgnoreError();
  EXPECT_EQ(a.counters().pending_children, 0u);
}

TEST_F(R2Parent, child_that_waits_for_its_owner_is_not_given_up_by_asking) {
  const Created made = create();
  const ForkRecord record = a.share_user(made.fork, c.self(), now + kDeadline).value();
  Outcome<Received> received = c.receive(record, a.self(), described(), now);
  deliver(a.carrier_failed(record.fork, now).actions, a.self());
  EXPECT_EQ(a.counters().pending_children, 1u);
  deliver(received.actions, c.self());
  EXPECT_EQ(a.counters().pending_children, 0u);
  EXPECT_TRUE(c.view(received.result->fork)->confirmed_by_owner);
}

using R3Listing = LedgerTest;

TEST_F(R3Listing, repeated_messages_change_nothing) {
  const Created made = create();
  const ForkRecord record = a.share_user(made.fork, c.self(), now + kDeadline).value();
  Outcome<Received> received = c.receive(record, a.self(), described(), now);
  const AddFork add = sent<AddFork>(received.actions).at(0);
  deliver(received.actions, c.self());
  const std::string listed = LedgerInspector::fingerprint(b);
  EXPECT_EQ(sent<ForkAdded>(b.handle(add, c.self(), now).actions).size(), 1u);
  EXPECT_EQ(LedgerInspector::fingerprint(b), listed);

  const Delete gone = sent<Delete>(a.release_user(made.fork, now).actions).at(0);
  EXPECT_TRUE(b.handle(gone, a.self(), now).status.ok());
  const Handled again = b.handle(gone, a.self(), now);
  EXPECT_TRUE(again.status.ok());
  EXPECT_TRUE(again.actions.empty());
  EXPECT_EQ(b.counters().forks, 1u);

  const Delete child_gone = sent<Delete>(c.release_user(received.result->fork, now).actions).at(0);
  EXPECT_EQ(all_of<DestroyValue>(b.handle(child_gone, c.self(), now).actions).size(), 1u);
  // A late copy must not bring the child back.
  const Handled late = b.handle(add, c.self(), now);
  EXPECT_FALSE(late.status.ok());
  EXPECT_EQ(b.counters().forks, 0u);
  EXPECT_EQ(c.receive(record, a.self(), described(), now).result.status().code(),
            absl::StatusCode::kAlreadyExists);
  expect_empty_after_one_lease();
}

TEST_F(R3Listing, late_answers_to_a_user_change_nothing) {
  const Created made = create();
  const Shared shared = pass_to_c(made.fork);
  const std::string before = LedgerInspector::fingerprint(c);
  EXPECT_TRUE(
      c.handle(ForkAdded{made.rref, public_part(shared.fork)}, b.self(), now).actions.empty());
  EXPECT_TRUE(c.handle(ForkRefused{made.rref, public_part(shared.fork), absl::AbortedError("x")},
                       b.self(), now)
                  .actions.empty());
  EXPECT_EQ(LedgerInspector::fingerprint(c), before);
  EXPECT_TRUE(a.handle(ChildDone{shared.record.fork}, c.self(), now).status.ok());
}

}  // namespace
}  // namespace sinew::internal::ledger
