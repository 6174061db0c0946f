// Each test names the rule of docs/protocols.md that it shows at work.

#include "sinew/rref/internal/ledger.h"

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/rref/internal/ledger_token.h"
#include "sinew/tests/rref/support/ledger_inspector.h"

namespace sinew::internal::ledger {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

constexpr Time kLease = seconds(15);
constexpr Time kDeadline = seconds(10);

WorkerInfo worker(const std::string& name, std::int32_t rank, std::uint64_t incarnation) {
  return WorkerInfo{name, rank, Incarnation{incarnation}};
}

LedgerOptions options() {
  LedgerOptions made;
  made.lease = kLease;
  made.max_parked_per_peer = 4;
  made.max_tombstones_per_peer = 4;
  made.draw_secret = [last = std::uint64_t{1000}]() mutable { return ++last; };
  return made;
}

Description described() { return Description{"app::Agent", "agent.cc:12"}; }

template <class T>
std::vector<T> all_of(const Actions& actions) {
  std::vector<T> found;
  for (const Action& action : actions) {
    if (const T* one = std::get_if<T>(&action)) found.push_back(*one);
  }
  return found;
}

template <class T>
std::vector<T> sent(const Actions& actions) {
  std::vector<T> found;
  for (const Send& send : all_of<Send>(actions)) {
    if (const T* one = std::get_if<T>(&send.message)) found.push_back(*one);
  }
  return found;
}

/// Owner B, users A and C, and an outsider M, on one clock; messages are carried by hand.
class LedgerTest : public testing::Test {
 protected:
  struct Shared {
    ForkRecord record;
    ForkId fork;  // as its receiver knows it
  };

  /// A makes a reference on B, B has its value.
  Created create(bool fulfil = true) {
    const Created made = a.create(b.self(), described()).value();
    EXPECT_TRUE(b.on_create(made.rref, made.fork, a.self(), described(), now).status.ok());
    if (fulfil) {
      EXPECT_TRUE(b.owner_fulfilled(made.rref).status.ok());
      EXPECT_TRUE(a.create_succeeded(made.fork, now).status.ok());
    }
    return made;
  }

  /// Carries every message of `actions` to its receiver, and what that causes; returns all other
  /// actions.
  Actions deliver(const Actions& actions, const WorkerInfo& from) {
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

  Ledger& at(const WorkerInfo& who) {
    for (Ledger* one : {&a, &b, &c, &m}) {
      if (one->self() == who) return *one;
    }
    ADD_FAILURE() << "no such worker";
    return a;
  }

  /// A passes its fork to C, which becomes confirmed.
  Shared pass_to_c(const ForkId& fork) {
    Shared shared{a.share_user(fork, c.self(), now + kDeadline).value(), {}};
    Outcome<Received> received = c.receive(shared.record, a.self(), described(), now);
    EXPECT_TRUE(received.result.ok()) << received.result.status();
    shared.fork = received.result->fork;
    deliver(received.actions, c.self());
    EXPECT_TRUE(c.view(shared.fork)->confirmed_by_owner);
    return shared;
  }

  void expect_empty_after_one_lease() {
    now += kLease + seconds(1);
    for (Ledger* one : {&a, &b, &c, &m}) {
      deliver(one->tick(now).actions, one->self());
      EXPECT_TRUE(one->quiescent()) << one->self();
      EXPECT_EQ(one->counters().tombstones, 0u) << one->self();
    }
  }

  Ledger a{worker("a", 1, 0xa), options()};
  Ledger b{worker("b", 2, 0xb), options()};
  Ledger c{worker("c", 3, 0xc), options()};
  Ledger m{worker("m", 4, 0xd), options()};
  Time now = seconds(100);
};

using R1Delete = LedgerTest;
using R2Parent = LedgerTest;
using R3Listing = LedgerTest;
using R4Who = LedgerTest;
using R5Create = LedgerTest;
using R6Sharing = LedgerTest;
using R7EndOfWorker = LedgerTest;
using R8Shutdown = LedgerTest;

// --- R1 ------------------------------------------------------------------------------------------

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
  const Created made = create(false);
  EXPECT_TRUE(a.release_user(made.fork, now).actions.empty());
  EXPECT_EQ(sent<Delete>(a.create_succeeded(made.fork, now).actions).size(), 1u);
}

TEST_F(R1Delete, a_value_that_nobody_waits_for_any_more_goes_when_it_is_made) {
  const Created made = create(false);
  EXPECT_TRUE(b.handle(Delete{made.rref, made.fork, Time(0)}, a.self(), now).status.ok());
  EXPECT_EQ(b.counters().owner_entries, 1u);
  EXPECT_EQ(all_of<DestroyValue>(b.owner_fulfilled(made.rref).actions).size(), 1u);
  EXPECT_EQ(b.counters().owner_entries, 0u);
}

// --- R2 ------------------------------------------------------------------------------------------

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

// --- R3 ------------------------------------------------------------------------------------------

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

// --- R4 ------------------------------------------------------------------------------------------

TEST_F(R4Who, only_the_holder_uses_deletes_and_claims) {
  const Created made = create();
  const std::string before = LedgerInspector::fingerprint(b);
  // Foreign: right ids, wrong sender.
  EXPECT_EQ(b.authorise_use(made.rref, made.fork, m.self()).status().code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(b.handle(Delete{made.rref, made.fork, Time(0)}, m.self(), now).status.code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(b.handle(Claim{made.rref, made.fork}, m.self(), now).status.code(),
            absl::StatusCode::kPermissionDenied);
  // Forged: right sender, guessed secret; the text shows neither secret.
  ForkId guessed = made.fork;
  guessed.secret ^= 1;
  const absl::Status forged = b.authorise_use(made.rref, guessed, a.self()).status();
  EXPECT_EQ(forged.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(forged.message()), HasSubstr(to_string(made.rref)));
  EXPECT_THAT(std::string(forged.message()), HasSubstr("worker 'a'"));
  RRefId other = made.rref;
  other.secret ^= 1;
  EXPECT_EQ(b.authorise_use(other, made.fork, a.self()).status().code(),
            absl::StatusCode::kPermissionDenied);
  // Unknown.
  EXPECT_EQ(
      b.authorise_use(RRefId{Incarnation{0xc}, 9, 9}, ForkId{Incarnation{0xc}, 9, 9}, m.self())
          .status()
          .code(),
      absl::StatusCode::kNotFound);
  EXPECT_EQ(b.handle(Delete{made.rref, ForkId{Incarnation{0xc}, 9, 9}, Time(0)}, m.self(), now)
                .status.code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(LedgerInspector::fingerprint(b), before);
}

TEST_F(R4Who, another_incarnation_of_the_holder_is_somebody_else) {
  const Created made = create();
  EXPECT_EQ(b.authorise_use(made.rref, made.fork, worker("a", 1, 0xaa)).status().code(),
            absl::StatusCode::kPermissionDenied);
}

TEST_F(R4Who, a_token_is_good_for_one_receiver_child_and_reference_only) {
  const Created made = create();
  const Created other = create();
  const ForkRecord record = a.share_user(made.fork, c.self(), now + kDeadline).value();
  EXPECT_EQ(record.parent.secret, 0u);
  EXPECT_EQ(record.fork.secret, 0u);
  ForkId child = record.fork;
  child.secret = 77;
  const AddFork good{made.rref, record.parent, child, record.token};
  const std::string before = LedgerInspector::fingerprint(b);

  const auto refused = [&](const AddFork& message, const WorkerInfo& sender) {
    Handled handled = b.handle(message, sender, now);
    EXPECT_EQ(handled.status.code(), absl::StatusCode::kPermissionDenied) << handled.status;
    EXPECT_EQ(sent<ForkRefused>(handled.actions).size(), 1u);
    EXPECT_EQ(LedgerInspector::fingerprint(b), before);
  };
  refused(good, m.self());  // replayed by another worker
  AddFork forged = good;
  forged.token[0] ^= 1;
  refused(forged, c.self());
  forged = good;
  ++forged.child.serial;  // a second child for one token
  refused(forged, c.self());
  forged = good;
  forged.child.creator = c.self().incarnation;  // an id that A did not draw
  refused(forged, c.self());
  forged = good;
  forged.rref = other.rref;  // another value of the same owner
  refused(forged, c.self());
  forged = good;
  forged.parent = public_part(other.fork);
  refused(forged, c.self());

  EXPECT_TRUE(b.handle(good, c.self(), now).status.ok());
  // The same child by somebody else does not replace the holder.
  AddFork stolen = good;
  stolen.child.secret = 78;
  EXPECT_EQ(b.handle(stolen, m.self(), now).status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(LedgerInspector::lists(b, made.rref, child, c.self()));
}

TEST_F(R4Who, a_record_is_accepted_only_from_the_worker_that_may_give_it) {
  const Created made = create();
  const ForkRecord to_owner = a.share_user(made.fork, b.self(), now + kDeadline).value();
  const std::string before = LedgerInspector::fingerprint(b);
  EXPECT_EQ(b.receive(to_owner, m.self(), described(), now).result.status().code(),
            absl::StatusCode::kPermissionDenied);
  ForkRecord forged = to_owner;
  forged.token[3] ^= 1;
  EXPECT_EQ(b.receive(forged, a.self(), described(), now).result.status().code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(LedgerInspector::fingerprint(b), before);

  const ForkRecord to_c = a.share_user(made.fork, c.self(), now + kDeadline).value();
  EXPECT_EQ(c.receive(to_c, m.self(), described(), now).result.status().code(),
            absl::StatusCode::kPermissionDenied);
  forged = to_c;
  forged.parent = ForkId{};  // only the owner gives without a parent
  EXPECT_EQ(c.receive(forged, a.self(), described(), now).result.status().code(),
            absl::StatusCode::kPermissionDenied);
  forged = to_c;
  forged.owner = c.self();
  forged.owner.name = "somebody";
  EXPECT_EQ(c.receive(forged, a.self(), described(), now).result.status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(c.quiescent());
}

TEST_F(R4Who, answers_count_only_from_the_worker_that_was_asked) {
  const Created made = create();
  const ForkRecord record = a.share_user(made.fork, c.self(), now + kDeadline).value();
  Outcome<Received> received = c.receive(record, a.self(), described(), now);
  const std::string at_c = LedgerInspector::fingerprint(c);
  EXPECT_FALSE(c.handle(ForkAdded{made.rref, record.fork}, m.self(), now).status.ok());
  EXPECT_FALSE(c.handle(ForkRefused{made.rref, record.fork, absl::AbortedError("x")}, m.self(), now)
                   .status.ok());
  EXPECT_FALSE(c.handle(AskChild{record.fork, Time(0)}, m.self(), now).status.ok());
  EXPECT_FALSE(c.handle(AskClaim{made.rref, record.fork, Time(0)}, m.self(), now).status.ok());
  EXPECT_EQ(LedgerInspector::fingerprint(c), at_c);
  const std::string at_a = LedgerInspector::fingerprint(a);
  EXPECT_FALSE(a.handle(ChildDone{record.fork}, m.self(), now).status.ok());
  EXPECT_FALSE(a.handle(ChildDone{ForkId{Incarnation{0xc}, 1, 0}}, m.self(), now).status.ok());
  EXPECT_EQ(LedgerInspector::fingerprint(a), at_a);
}

TEST_F(R4Who, ids_in_a_create_are_the_callers_own) {
  const Created made = a.create(b.self(), described()).value();
  EXPECT_EQ(b.on_create(made.rref, made.fork, m.self(), described(), now).status.code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(b.on_create(made.rref, made.fork, a.self(), described(), now).status.ok());
  EXPECT_EQ(b.on_create(made.rref, made.fork, a.self(), described(), now).status.code(),
            absl::StatusCode::kAlreadyExists);
}

TEST_F(R4Who, nobody_fills_the_memory_of_another) {
  for (std::uint64_t i = 1; i <= 10; ++i) {
    const absl::Status status = b.handle(Delete{RRefId{m.self().incarnation, i, 1},
                                                ForkId{m.self().incarnation, i, 1}, Time(0)},
                                         m.self(), now)
                                    .status;
    EXPECT_EQ(status.ok(), i <= 4) << status;
  }
  for (std::uint64_t i = 1; i <= 10; ++i) {
    const RRefId rref{a.self().incarnation, 100 + i, 1};
    const AddFork add{rref, ForkId{a.self().incarnation, 200 + i, 0},
                      ForkId{a.self().incarnation, 300 + i, 5}, Token{}};
    EXPECT_EQ(b.handle(add, m.self(), now).status.ok(), i <= 4);
  }
  EXPECT_EQ(b.counters().parked, 4u);
  EXPECT_EQ(b.counters().tombstones, 4u);
  // And nobody shortens anybody's life by it: A's own create is not affected.
  create();
}

TEST(LedgerToken, depends_on_everything_that_it_vouches_for) {
  TokenInput input{1, RRefId{Incarnation{2}, 3, 4}, ForkId{Incarnation{5}, 6, 0},
                   ForkId{Incarnation{7}, 8, 0}, WorkerInfo{"c", 1, Incarnation{9}}};
  const Token token = hmac_token(input);
  EXPECT_TRUE(tokens_equal(token, hmac_token(input)));
  const auto differs = [&](TokenInput other) { return !tokens_equal(token, hmac_token(other)); };
  TokenInput other = input;
  other.parent_secret = 2;
  EXPECT_TRUE(differs(other));
  other = input;
  other.rref.serial = 4;
  EXPECT_TRUE(differs(other));
  other = input;
  other.parent.serial = 7;
  EXPECT_TRUE(differs(other));
  other = input;
  other.child.serial = 9;
  EXPECT_TRUE(differs(other));
  other = input;
  other.receiver.name = "d";
  EXPECT_TRUE(differs(other));
  other = input;
  other.receiver.incarnation.value = 10;
  EXPECT_TRUE(differs(other));
}

// --- R5 ------------------------------------------------------------------------------------------

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
  const Created made = create(false);
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

// --- R6 ------------------------------------------------------------------------------------------

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

// --- R7 ------------------------------------------------------------------------------------------

TEST_F(R7EndOfWorker, the_owner_drops_the_forks_of_a_lost_holder) {
  const Created made = create();
  const Handled lost = b.worker_lost(a.self(), now);
  EXPECT_EQ(all_of<DestroyValue>(lost.actions).size(), 1u);
  EXPECT_TRUE(b.worker_lost(a.self(), now).actions.empty());
  EXPECT_EQ(b.handle(Claim{made.rref, made.fork}, a.self(), now).status.code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(b.on_create(made.rref, made.fork, a.self(), described(), now).status.code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(b.authorise_use(made.rref, made.fork, a.self()).status().code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(b.quiescent());
}

TEST_F(R7EndOfWorker, a_fence_keeps_the_forks_of_a_holder_that_may_not_know_yet) {
  const Created made = create();
  EXPECT_TRUE(all_of<DestroyValue>(b.fence(a.self(), now).actions).empty());
  EXPECT_TRUE(LedgerInspector::lists(b, made.rref, made.fork, a.self()));
  EXPECT_FALSE(b.authorise_use(made.rref, made.fork, a.self()).ok());
  EXPECT_EQ(all_of<DestroyValue>(b.worker_lost(a.self(), now).actions).size(), 1u);
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

// --- R8 ------------------------------------------------------------------------------------------

TEST_F(R8Shutdown, the_sweep_deletes_what_is_held_and_later_uses_say_so) {
  const Created made = create();
  const Created pending = create(false);
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

// --- The tables themselves -----------------------------------------------------------------------

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
