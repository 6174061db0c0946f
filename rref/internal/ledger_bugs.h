#pragma once

/// Protocol bugs that can be planted, to prove that the exploration and the simulation find such
/// bugs. `SINEW_PLANTED_BUG(kName)` is the constant false unless the build defines
/// SINEW_PLANTED_BUGS.
#ifdef SINEW_PLANTED_BUGS

namespace sinew::internal::ledger {

enum class PlantedBug {
  kNone,
  kDeleteNotTombstoned,       // a removed fork leaves no trace
  kCreateAfterDelete,         // a late create ignores the trace
  kPendingChildNotKept,       // a fork on its way does not keep its parent alive (R2)
  kChildDoneEarly,            // the child frees its parent before the owner listed the child (R2)
  kClaimIgnored,              // a claimed fork still expires
  kParentCheckSkipped,        // the owner lists a child without looking at parent and token (R4)
  kHolderCheckSkipped,        // the owner obeys a Delete by a worker that is not the holder (R4)
  kLossKeepsForks,            // the forks of a lost worker stay (R7)
  kLostWorkerHeard,           // messages of a lost worker still count (R7)
  kDuplicateDeleteCounted,    // a repeated Delete removes another holder, as a count would (R3)
  kDeleteBeforeConfirmation,  // a child that is dropped while unconfirmed deletes at once
  kRefusalNotSent,            // the owner refuses a child silently
  kDestroyedTwice,            // an entry that ended while its value was made ends again
};

/// The bug that is active in this process. Not thread-safe.
inline PlantedBug planted_bug = PlantedBug::kNone;

}  // namespace sinew::internal::ledger

#define SINEW_PLANTED_BUG(name) \
  (::sinew::internal::ledger::planted_bug == ::sinew::internal::ledger::PlantedBug::name)
#else
#define SINEW_PLANTED_BUG(name) false
#endif
