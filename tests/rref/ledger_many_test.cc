// A worker that holds very many references, and lets go of them one by one: what happens for each
// does not depend on how many there are.

#include <optional>
#include <vector>

#include "gtest/gtest.h"
#include "sinew/tests/rref/support/ledger_fixture.h"
#include "sinew/tests/rref/support/ledger_inspector.h"

namespace sinew::internal::ledger {
namespace {

constexpr int kMany = 500;

class ManyReferences : public LedgerTest {
 protected:
  /// What a worker asks its ledger whenever something has happened, at both ends.
  void look_as_workers_do() {
    for (const Ledger* one : {&a, &b, &c}) {
      one->counters();
      one->next_tick();
    }
  }
  std::size_t walked() const {
    return LedgerInspector::walked(a) + LedgerInspector::walked(b) + LedgerInspector::walked(c);
  }
};

TEST_F(ManyReferences, letting_go_of_one_walks_over_none_of_the_others) {
  std::vector<Created> made;
  for (int i = 0; i < kMany; ++i) made.push_back(create());
  const std::size_t before = walked();
  for (const Created& one : made) {
    deliver(a.release_user(one.fork, now).actions, a.self());
    look_as_workers_do();
  }
  EXPECT_EQ(walked() - before, 0U);
  expect_empty_after_one_lease();
}

TEST_F(ManyReferences, giving_up_all_at_once_walks_over_them_once) {
  for (int i = 0; i < kMany; ++i) create();
  const std::size_t before = walked();
  const Actions actions = a.release_all_users(now).actions;
  for (const Action& action : actions) {
    deliver({action}, a.self());
    look_as_workers_do();
  }
  EXPECT_LE(walked() - before, static_cast<std::size_t>(kMany));
  EXPECT_EQ(b.counters().forks, 0U);
}

TEST_F(ManyReferences, waiting_for_those_that_they_were_sent_to) {
  std::vector<RRefId> owned;
  std::vector<Created> made;
  for (int i = 0; i < kMany; ++i) {
    owned.push_back(b.own(ValueState::kReady, described()));
    made.push_back(create());
  }
  const std::size_t before = walked();
  for (int i = 0; i < kMany; ++i) {
    const auto at = static_cast<std::size_t>(i);
    // Each due at a time of its own.
    const Time deadline = now + kDeadline + Time(i);
    ASSERT_TRUE(b.share_owned(owned[at], c.self(), deadline).ok());
    ASSERT_TRUE(a.share_user(made[at].fork, c.self(), deadline).ok());
    look_as_workers_do();
  }
  now += kDeadline + kLease;
  for (int i = 0; i < kMany; ++i) {
    EXPECT_EQ(a.next_tick(), now);
    EXPECT_EQ(b.next_tick(), now);
    EXPECT_EQ(sent<AskChild>(a.tick(now).actions).size(), 1U);
    EXPECT_EQ(sent<AskClaim>(b.tick(now).actions).size(), 1U);
    now += Time(1);
  }
  EXPECT_EQ(a.next_tick(), std::nullopt);
  EXPECT_EQ(b.next_tick(), std::nullopt);
  EXPECT_EQ(walked() - before, 0U);
}

TEST_F(ManyReferences, records_that_come_back_before_their_creation) {
  std::vector<ForkId> waiting;
  // As many as may wait.
  for (int i = 0; i < 4; ++i) {
    const Created made = a.create(b.self(), described()).value();
    const ForkRecord record = a.share_user(made.fork, b.self(), std::nullopt).value();
    const Outcome<Received> received = b.receive(record, a.self(), described(), now);
    ASSERT_TRUE(received.result.ok()) << received.result.status();
    ASSERT_EQ(received.result->state, Received::State::kWaiting);
    waiting.push_back(received.result->fork);
  }
  const std::size_t before = walked();
  for (const ForkId& fork : waiting) {
    ASSERT_TRUE(b.release_user(fork, now).status.ok());
    look_as_workers_do();
  }
  EXPECT_EQ(walked() - before, 0U);
  EXPECT_EQ(b.counters().parked, 0U);
}

}  // namespace
}  // namespace sinew::internal::ledger
