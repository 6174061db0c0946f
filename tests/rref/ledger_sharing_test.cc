// References that are passed on. Each suite is a rule of docs/protocols.md at work.

#include "gtest/gtest.h"
#include "sinew/tests/rref/support/ledger_fixture.h"

namespace sinew::internal::ledger {
namespace {

using R6Sharing = LedgerTest;

TEST_F(R6Sharing, user_to_owner_gives_the_owner_its_own_value) {
  const Created made = create();
  const ForkRecord record = a.share_user(made.fork, b.self(), now + kDeadline).value();
  Outcome<Received> received = b.receive(record, a.self(), described(), now);
  ASSERT_TRUE(received.result.ok()) << received.result.status();
  EXPECT_EQ(received.result->role, Role::kOwner);
  EXPECT_EQ(received.result->rref, made.rref);
  EXPECT_EQ(b.counters().forks, 1u);
  deliver(received.actions, b.self());
  deliver(a.release_user(made.fork, now).actions, a.self());
  EXPECT_EQ(b.counters().owner_entries, 1u);  // the local handle holds it
  EXPECT_EQ(all_of<DestroyValue>(b.release_owned(made.rref).actions).size(), 1u);
}

TEST_F(R6Sharing, owner_to_user_is_confirmed_at_once_and_claimed) {
  const RRefId rref = b.own(ValueState::kReady, described());
  const ForkRecord record = b.share_owned(rref, c.self(), now + kDeadline).value();
  EXPECT_EQ(b.counters().unclaimed_forks, 1u);
  Outcome<Received> received = c.receive(record, b.self(), described(), now);
  ASSERT_TRUE(received.result.ok());
  EXPECT_TRUE(c.view(received.result->fork)->confirmed_by_owner);
  ASSERT_EQ(sent<Claim>(received.actions).size(), 1u);
  deliver(received.actions, c.self());
  EXPECT_EQ(b.counters().unclaimed_forks, 0u);
  EXPECT_TRUE(b.release_owned(rref).status.ok());
  EXPECT_EQ(b.counters().owner_entries, 1u);
  deliver(c.release_user(received.result->fork, now).actions, c.self());
  expect_empty_after_one_lease();
}

TEST_F(R6Sharing, a_use_claims_too) {
  const RRefId rref = b.own(ValueState::kReady, described());
  const ForkRecord record = b.share_owned(rref, c.self(), now + kDeadline).value();
  EXPECT_EQ(b.authorise_use(rref, record.fork, c.self()).value(), UseState::kReady);
  EXPECT_EQ(b.counters().unclaimed_forks, 0u);
}

TEST_F(R6Sharing, an_unclaimed_fork_whose_message_was_lost_goes) {
  const RRefId rref = b.own(ValueState::kReady, described());
  const ForkRecord record = b.share_owned(rref, c.self(), now + kDeadline).value();
  EXPECT_TRUE(b.release_owned(rref).status.ok());
  EXPECT_EQ(b.next_tick().value(), now + kDeadline + kLease);
  now += kDeadline + kLease;
  EXPECT_EQ(all_of<DestroyValue>(deliver(b.tick(now).actions, b.self())).size(), 1u);
  EXPECT_FALSE(c.receive(record, b.self(), described(), now).result.ok());
  expect_empty_after_one_lease();
}

TEST_F(R6Sharing, an_unclaimed_fork_whose_claim_is_late_stays) {
  const RRefId rref = b.own(ValueState::kReady, described());
  const ForkRecord record = b.share_owned(rref, c.self(), now + kDeadline).value();
  Outcome<Received> received = c.receive(record, b.self(), described(), now);
  now += kDeadline + kLease;
  deliver(b.tick(now).actions, b.self());
  EXPECT_EQ(b.counters().unclaimed_forks, 0u);
  EXPECT_EQ(b.authorise_use(rref, received.result->fork, c.self()).value(), UseState::kReady);
}

TEST_F(R6Sharing, a_user_may_hold_several_forks_of_one_reference) {
  const Created made = create();
  const Shared once = pass_to_c(made.fork);
  const Shared twice = pass_to_c(made.fork);
  EXPECT_NE(once.fork, twice.fork);
  deliver(c.release_user(once.fork, now).actions, c.self());
  EXPECT_TRUE(c.view(twice.fork).ok());
  EXPECT_EQ(b.authorise_use(made.rref, once.fork, c.self()).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(b.authorise_use(made.rref, twice.fork, c.self()).value(), UseState::kReady);
}

TEST_F(R6Sharing, to_oneself_works_in_both_roles) {
  const Created made = create();
  const ForkRecord record = a.share_user(made.fork, a.self(), now + kDeadline).value();
  Outcome<Received> received = a.receive(record, a.self(), described(), now);
  ASSERT_TRUE(received.result.ok()) << received.result.status();
  deliver(received.actions, a.self());
  EXPECT_TRUE(a.view(received.result->fork)->confirmed_by_owner);

  const RRefId rref = b.own(ValueState::kReady, described());
  const ForkRecord own = b.share_owned(rref, b.self(), now + kDeadline).value();
  EXPECT_TRUE(b.release_owned(rref).status.ok());
  Outcome<Received> back = b.receive(own, b.self(), described(), now);
  ASSERT_TRUE(back.result.ok()) << back.result.status();
  EXPECT_EQ(back.result->role, Role::kOwner);
  EXPECT_EQ(all_of<DestroyValue>(b.release_owned(rref).actions).size(), 1u);
}

}  // namespace
}  // namespace sinew::internal::ledger
