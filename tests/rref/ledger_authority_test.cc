// Who may do what with a fork, and how it is proved. Each suite is a rule of docs/protocols.md at
// work.

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/rref/internal/ledger_token.h"
#include "sinew/tests/rref/support/ledger_fixture.h"
#include "sinew/tests/rref/support/ledger_inspector.h"

namespace sinew::internal::ledger {
namespace {

using testing::HasSubstr;

using R4Who = LedgerTest;

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

}  // namespace
}  // namespace sinew::internal::ledger
