#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sinew/rpc/base/ids.h"

/// What the reference ledgers of two workers say to each other, and what a ledger asks of its
/// worker. Plain structs: the mapping to the wire lives elsewhere.
namespace sinew::internal::ledger {

/// Nanoseconds since an epoch of the caller's choice, the same for all calls on one ledger. Never
/// sent: clocks of two workers are not comparable, so messages carry durations.
using Time = std::chrono::nanoseconds;

/// Proof that the holder of a fork passed it on to one receiver. See ledger_token.h.
using Token = std::array<std::uint8_t, 16>;

/// The part of a fork id that anyone may see: creator and serial. Never put a secret into a message
/// to a worker other than the fork's holder and its owner.
inline ForkId public_part(const ForkId& fork) { return ForkId{fork.creator, fork.serial, 0}; }

// --- Control messages. All are sent reliably, may arrive repeated, late and in any order. --------

/// Holder -> owner: "the fork that you sent me has arrived".
struct Claim {
  RRefId rref;
  ForkId fork;
};

/// Child -> owner: "the holder of `parent` gave me `child`: list me". `parent` without its secret,
/// `child` with the secret that the child drew.
struct AddFork {
  RRefId rref;
  ForkId parent;
  ForkId child;
  Token token{};
};

/// Owner -> child: the child is listed. `child` without its secret.
struct ForkAdded {
  RRefId rref;
  ForkId child;
};

/// Owner -> child: the child is not listed and never will be.
struct ForkRefused {
  RRefId rref;
  ForkId child;
  absl::Status reason;
};

/// Receiver -> giver: `child` is settled (listed, refused, or never to be accepted), so the giver
/// need not keep its own fork for it any longer. `child` without its secret.
struct ChildDone {
  ForkId child;
};

/// Holder -> owner: the fork is gone.
struct Delete {
  RRefId rref;
  ForkId fork;
  /// How long the call that creates the fork may still arrive after this message: set when that
  /// call failed at the caller, zero otherwise. The owner remembers the deletion for that much
  /// longer.
  std::chrono::nanoseconds may_arrive_for{0};
};

/// Owner -> holder: "the message that carried `fork` should have arrived: have you got it?".
/// Answered with Claim or Delete; a holder that has not got it refuses it from then on.
struct AskClaim {
  RRefId rref;
  ForkId fork;
  std::chrono::nanoseconds may_arrive_for{0};
};

/// Giver -> receiver: the same question for a fork that one user gave to another (or to the owner).
/// Answered with ChildDone, at once or when the child is settled. `child` without its secret.
struct AskChild {
  ForkId child;
  std::chrono::nanoseconds may_arrive_for{0};
};

using LedgerMessage =
    std::variant<Claim, AddFork, ForkAdded, ForkRefused, ChildDone, Delete, AskClaim, AskChild>;

/// One reference inside an argument or result, as the giver packs it.
struct ForkRecord {
  WorkerInfo owner;
  RRefId rref;
  /// The giver's own fork, without its secret; empty when the giver is the owner.
  ForkId parent;
  /// The receiver's fork: with its secret when the giver is the owner, without one otherwise.
  ForkId fork;
  Token token{};
  std::string type_name;
};

/// Where a reference comes from, for leak reports.
struct Description {
  std::string type_name;
  std::string creation_site;
};

// --- Actions: what the caller of a ledger has to do, in this order, after it released its lock. --

/// Send `message` to `to` by the reliable control channel. `to` may be this worker itself.
struct Send {
  WorkerInfo to;
  LedgerMessage message;
  /// Of the reference that a Delete gives up: it is to be reported until the owner has got that.
  Description deleted = {};
};

/// A received reference became usable. The program may have dropped it in the meantime.
struct Confirmed {
  ForkId fork;
};

/// A reference failed for good; every later use gives the same status.
struct Failed {
  ForkId fork;
  absl::Status status;
};

/// The owner's entry ended: drop the value, if there is one. Comes once per entry.
struct DestroyValue {
  RRefId rref;
};

/// What authorise_use() says about this reference may have changed: ask again for uses that wait.
struct ReferenceChanged {
  RRefId rref;
};

using Action = std::variant<Send, Confirmed, Failed, DestroyValue, ReferenceChanged>;
using Actions = std::vector<Action>;

/// A result together with what is to be done; the actions count whether or not the result is an
/// error.
template <class T>
struct [[nodiscard]] Outcome {
  absl::StatusOr<T> result;
  Actions actions;
};

/// The same for functions without a result.
struct [[nodiscard]] Handled {
  absl::Status status;
  Actions actions;
};

/// The name of a message's kind, such as `AddFork`.
const char* message_name(const LedgerMessage& message);

/// `reference 00000000000000a1.3` and `fork 00000000000000a1.4`, `worker 'trainer'`: pieces of
/// error texts.
std::string describe(const RRefId& rref);
std::string describe(const ForkId& fork);
std::string describe(const RRefId& rref, const ForkId& fork);
std::string describe(const WorkerInfo& worker);

}  // namespace sinew::internal::ledger
