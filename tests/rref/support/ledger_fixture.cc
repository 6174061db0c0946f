#include "sinew/tests/rref/support/ledger_fixture.h"

#include <utility>

#include "sinew/tests/rref/support/ledger_inspector.h"

namespace sinew::internal::ledger {

namespace {

LedgerOptions fixture_options() {
  LedgerOptions made;
  made.lease = kLease;
  made.max_parked_per_peer = 4;
  made.max_tombstones_per_peer = 4;
  made.draw_secret = [last = std::uint64_t{1000}]() mutable { return ++last; };
  return made;
}

}  // namespace

WorkerInfo worker(const std::string& name, std::int32_t rank, std::uint64_t incarnation) {
  return WorkerInfo{name, rank, Incarnation{incarnation}};
}

Description described() { return Description{"app::Agent", "agent.cc:12"}; }

LedgerTest::LedgerTest()
    : a(worker("a", 1, 0xa), fixture_options()),
      b(worker("b", 2, 0xb), fixture_options()),
      c(worker("c", 3, 0xc), fixture_options()),
      m(worker("m", 4, 0xd), fixture_options()) {}

Created LedgerTest::create(Value value) {
  const Created made = a.create(b.self(), described()).value();
  EXPECT_TRUE(b.on_create(made.rref, made.fork, a.self(), described(), now).status.ok());
  if (value == Value::kMade) {
    EXPECT_TRUE(b.owner_fulfilled(made.rref).status.ok());
    EXPECT_TRUE(a.create_succeeded(made.fork, now).status.ok());
  }
  return made;
}

void LedgerTest::TearDown() {
  for (const Ledger* one : {&a, &b, &c, &m}) {
    EXPECT_TRUE(LedgerInspector::counters_are_right(*one)) << one->self();
  }
}

Actions LedgerTest::deliver(const Actions& actions, const WorkerInfo& from) {
  Actions rest;
  for (const Action& action : actions) {
    const Send* send = std::get_if<Send>(&action);
    if (send == nullptr) {
      rest.push_back(action);
      continue;
    }
    const Actions caused = at(send->to).handle(send->message, from, now).actions;
    for (Action& one : deliver(caused, send->to)) rest.push_back(std::move(one));
  }
  return rest;
}

Ledger& LedgerTest::at(const WorkerInfo& who) {
  for (Ledger* one : {&a, &b, &c, &m}) {
    if (one->self() == who) return *one;
  }
  ADD_FAILURE() << "no such worker";
  return a;
}

LedgerTest::Shared LedgerTest::pass_to_c(const ForkId& fork) {
  Shared shared{a.share_user(fork, c.self(), now + kDeadline).value(), {}};
  Outcome<Received> received = c.receive(shared.record, a.self(), described(), now);
  EXPECT_TRUE(received.result.ok()) << received.result.status();
  shared.fork = received.result->fork;
  deliver(received.actions, c.self());
  EXPECT_TRUE(c.view(shared.fork)->confirmed_by_owner);
  return shared;
}

void LedgerTest::expect_empty_after_one_lease() {
  now += kLease + std::chrono::seconds(1);
  for (Ledger* one : {&a, &b, &c, &m}) {
    deliver(one->tick(now).actions, one->self());
    EXPECT_TRUE(one->quiescent()) << one->self();
    EXPECT_EQ(one->counters().tombstones, 0u) << one->self();
  }
}

}  // namespace sinew::internal::ledger
