// References that a remote call makes. Each suite is a rule of docs/protocols.md at work.

#include <chrono>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/tests/rref/support/ledger_fixture.h"

namespace sinew::internal::ledger {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

using R5Create = LedgerTest;

TEST_F(R5Create, a_reference_is_usable_at_once_and_waits_at_the_owner) {
  const Created made = a.create(b.self(), described()).value();
  EXPECT_EQ(a.view(made.fork)->state, UserView::State::kUsable);
  EXPECT_FALSE(a.view(made.fork)->confirmed_by_owner);
  EXPECT_EQ(b.authorise_use(made.rref, made.fork, a.self()).value(), UseState::kPendingCreation);
  const Handled created = b.on_create(made.rref, made.fork, a.self(), described(), now);
  EXPECT_EQ(all_of<ReferenceChanged>(created.actions).size(), 1u);
  EXPECT_EQ(b.authorise_use(made.rref, made.fork, a.self()).value(), UseState::kPendingValue);
  EXPECT_EQ(all_of<ReferenceChanged>(b.owner_fulfilled(made.rref).actions).size(), 1u);
  EXPECT_EQ(b.authorise_use(made.rref, made.fork, a.self()).value(), UseState::kReady);
  EXPECT_EQ(b.owner_fulfilled(made.rref).status.code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(R5Create, a_failed_creation_fails_every_use_at_both_ends) {
  const Created made = create(Value::kAwaited);
  EXPECT_TRUE(b.owner_failed(made.rref, absl::InvalidArgumentError("bad size")).status.ok());
  EXPECT_EQ(b.authorise_use(made.rref, made.fork, a.self()).status().code(),
            absl::StatusCode::kInvalidArgument);
  Handled failed = a.create_failed(made.fork, absl::InvalidArgumentError("bad size"), now, now);
  ASSERT_EQ(all_of<Failed>(failed.actions).size(), 1u);
  for (int i = 0; i < 2; ++i) {
    const absl::Status use = a.view(made.fork).status();
    EXPECT_EQ(use.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(use.message()), HasSubstr("bad size"));
    EXPECT_THAT(std::string(use.message()), HasSubstr(to_string(made.rref)));
  }
  EXPECT_FALSE(a.share_user(made.fork, c.self(), now).ok());
  ASSERT_EQ(sent<Delete>(failed.actions).size(), 1u);
  deliver(failed.actions, a.self());
  EXPECT_EQ(b.counters().owner_entries, 0u);
  EXPECT_TRUE(a.release_user(made.fork, now).actions.empty());
  expect_empty_after_one_lease();
}

TEST_F(R5Create, a_create_after_the_delete_creates_nothing) {
  const Created made = a.create(b.self(), described()).value();
  const Time deadline = now + seconds(60);
  Handled cancelled = a.create_failed(made.fork, absl::CancelledError("x"), deadline, now);
  EXPECT_EQ(sent<Delete>(cancelled.actions).at(0).may_arrive_for, seconds(60));
  deliver(cancelled.actions, a.self());
  // Remembered as long as the call may still arrive, which is longer than a lease.
  now += seconds(59);
  EXPECT_TRUE(b.tick(now).actions.empty());
  const Handled late = b.on_create(made.rref, made.fork, a.self(), described(), now);
  EXPECT_EQ(late.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(b.counters().owner_entries, 0u);
  EXPECT_EQ(b.authorise_use(made.rref, made.fork, a.self()).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(a.release_user(made.fork, now).actions.empty());
  expect_empty_after_one_lease();
}

TEST_F(R5Create, a_child_may_overtake_the_create) {
  const Created made = a.create(b.self(), described()).value();
  const ForkRecord record = a.share_user(made.fork, c.self(), now + kDeadline).value();
  const ForkRecord to_owner = a.share_user(made.fork, b.self(), now + kDeadline).value();
  Outcome<Received> at_c = c.receive(record, a.self(), described(), now);
  EXPECT_TRUE(deliver(at_c.actions, c.self()).empty());
  Outcome<Received> at_b = b.receive(to_owner, a.self(), described(), now);
  ASSERT_TRUE(at_b.result.ok());
  EXPECT_EQ(at_b.result->state, Received::State::kWaiting);
  EXPECT_EQ(b.counters().parked, 2u);

  Handled created = b.on_create(made.rref, made.fork, a.self(), described(), now);
  EXPECT_EQ(all_of<Confirmed>(created.actions).at(0).fork, to_owner.fork);
  deliver(created.actions, b.self());
  EXPECT_TRUE(c.view(at_c.result->fork)->confirmed_by_owner);
  EXPECT_EQ(a.counters().pending_children, 0u);
  EXPECT_TRUE(b.release_owned(made.rref).status.ok());
}

TEST_F(R5Create, what_waits_for_a_create_ends_with_its_delete_or_in_time) {
  const Created made = a.create(b.self(), described()).value();
  const ForkRecord record = a.share_user(made.fork, c.self(), now + kDeadline).value();
  Outcome<Received> at_c = c.receive(record, a.self(), described(), now);
  deliver(at_c.actions, c.self());
  // The child keeps the parent, so the delete waits; time ends it.
  EXPECT_TRUE(sent<Delete>(a.create_failed(made.fork, absl::CancelledError("x"), now, now).actions)
                  .empty());
  now += std::chrono::minutes(1);
  const Actions rest = deliver(b.tick(now).actions, b.self());
  ASSERT_EQ(all_of<Failed>(rest).size(), 1u);
  EXPECT_EQ(all_of<Failed>(rest)[0].status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(c.view(at_c.result->fork).ok());
  EXPECT_TRUE(c.release_user(at_c.result->fork, now).status.ok());
  EXPECT_TRUE(a.release_user(made.fork, now).status.ok());
  expect_empty_after_one_lease();
}

TEST_F(R5Create, a_wait_at_the_owner_can_be_dropped) {
  const Created made = a.create(b.self(), described()).value();
  const ForkRecord record = a.share_user(made.fork, b.self(), now + kDeadline).value();
  ASSERT_TRUE(b.receive(record, a.self(), described(), now).result.ok());
  deliver(b.release_user(record.fork, now).actions, b.self());
  EXPECT_EQ(b.counters().parked, 0u);
  EXPECT_EQ(a.counters().pending_children, 0u);
}

TEST_F(R5Create, remote_to_oneself_is_an_entry_with_a_local_handle) {
  EXPECT_EQ(b.create(b.self(), described()).status().code(), absl::StatusCode::kInvalidArgument);
  const RRefId rref = b.own(ValueState::kPending, described());
  EXPECT_EQ(b.owned_state(rref).value(), UseState::kPendingValue);
  EXPECT_TRUE(b.owner_fulfilled(rref).status.ok());
  EXPECT_EQ(b.owned_state(rref).value(), UseState::kReady);
  EXPECT_EQ(all_of<DestroyValue>(b.release_owned(rref).actions).size(), 1u);
}

}  // namespace
}  // namespace sinew::internal::ledger
