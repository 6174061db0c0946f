#pragma once

#include <cstdint>

/// Every legal transition of the ledger, as data. An event without a row in a state changes
/// nothing: it is a repeated, late or reordered message, and harmless (R3).
namespace sinew::internal::ledger {

// --- A user's fork -------------------------------------------------------------------------------

enum class UserState : std::uint8_t {
  kCreating,     // the creating call is out; usable, uses wait at the owner (R5)
  kUnconfirmed,  // given by another user, AddFork is out; not usable yet
  kListed,       // the owner lists the fork, or may list it: a Delete is owed
  kGone,         // the owner knows nothing of the fork, or is no more: nothing is owed
};

enum class UserEvent : std::uint8_t {
  kCreated,       // the creating call succeeded
  kCreateFailed,  // it failed, timed out or was cancelled: it may have run all the same
  kAdded,         // ForkAdded
  kRefused,       // ForkRefused
  kDeleteSent,
  kOwnerLost,
};

/// What goes with a transition, in addition to the Delete that is owed whenever a listed fork is
/// not needed.
struct UserEffects {
  bool confirm = false;     // tell the program that the reference is usable
  bool fail = false;        // tell the program that it failed, and remember why
  bool tell_giver = false;  // ChildDone to the user that gave the fork (R2)
};

struct UserTransition {
  UserState from;
  UserEvent event;
  UserState to;
  UserEffects effects;
};

inline constexpr UserEffects kSilently{};
inline constexpr UserEffects kFail{false, true, false};
inline constexpr UserEffects kConfirmChild{true, false, true};
inline constexpr UserEffects kFailChild{false, true, true};

inline constexpr UserTransition kUserTransitions[] = {
    {UserState::kCreating, UserEvent::kCreated, UserState::kListed, kSilently},
    {UserState::kCreating, UserEvent::kCreateFailed, UserState::kListed, kFail},
    {UserState::kCreating, UserEvent::kOwnerLost, UserState::kGone, kFail},
    {UserState::kUnconfirmed, UserEvent::kAdded, UserState::kListed, kConfirmChild},
    {UserState::kUnconfirmed, UserEvent::kRefused, UserState::kGone, kFailChild},
    {UserState::kUnconfirmed, UserEvent::kOwnerLost, UserState::kGone, kFailChild},
    {UserState::kListed, UserEvent::kDeleteSent, UserState::kGone, kSilently},
    {UserState::kListed, UserEvent::kOwnerLost, UserState::kGone, kFail},
};

/// The row for an event in a state; nullptr when the event changes nothing there.
constexpr const UserTransition* find_transition(UserState from, UserEvent event) {
  for (const UserTransition& row : kUserTransitions) {
    if (row.from == from && row.event == event) return &row;
  }
  return nullptr;
}

// --- A fork in the owner's table -----------------------------------------------------------------

enum class ForkState : std::uint8_t {
  kUnclaimed,  // sent by the owner itself; the holder has not been heard of yet
  kAsked,      // the message that carried it is overdue: AskClaim is out
  kListed,
};

enum class ForkEvent : std::uint8_t {
  kClaimed,  // Claim, or an authenticated use by the holder
  kOverdue,  // deadline and one lease have passed, or the carrying call failed
};

struct ForkTransition {
  ForkState from;
  ForkEvent event;
  ForkState to;
};

// Delete, the loss of the holder and a message that was never sent remove the fork in every state.
inline constexpr ForkTransition kForkTransitions[] = {
    {ForkState::kUnclaimed, ForkEvent::kClaimed, ForkState::kListed},
    {ForkState::kUnclaimed, ForkEvent::kOverdue, ForkState::kAsked},
    {ForkState::kAsked, ForkEvent::kClaimed, ForkState::kListed},
};

constexpr const ForkTransition* find_transition(ForkState from, ForkEvent event) {
  for (const ForkTransition& row : kForkTransitions) {
    if (row.from == from && row.event == event) return &row;
  }
  return nullptr;
}

// --- The owner's value ---------------------------------------------------------------------------

// The value is set once: kPending -> kReady or kFailed, and then never changes. The entry ends, and
// the value is destroyed, in the first moment without forks, local handles and pending creation.
enum class ValueState : std::uint8_t { kPending, kReady, kFailed };

}  // namespace sinew::internal::ledger
