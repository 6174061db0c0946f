#pragma once

/// Bugs of the rules by which named objects are found that can be planted: in programs that are
/// built for that, a test switches one on and wants to see it found.
#ifdef SINEW_PLANTED_BUGS

namespace sinew::internal {

enum class NameBug {
  kNone,
  kSeeksTheLost,       // an incarnation that was lost is taken again
  kLossIsFinal,        // the loss of a worker ends the search
  kAbsenceIsFinal,     // a name that is not there yet ends the search
  kTrustsHastyDenial,  // who denies at once is asked again at once
  kVanishingIsFinal,   // a name that is gone when it is fetched ends the search
  kVanishesForever,    // there is no bound to that
  kAsksAfterRefusal,   // who refuses is asked again
  kGivesUpTheSilent,   // one that cannot be reached for a moment is taken for lost
  kIgnoresDeadline,    // the time is over, and the search goes on
  kKeepsOldNames,      // what one incarnation had is said of the next one
};

/// The bug that is active in this process. Not thread-safe.
inline NameBug name_bug = NameBug::kNone;

}  // namespace sinew::internal

#define SINEW_NAME_BUG(name) (::sinew::internal::name_bug == ::sinew::internal::NameBug::name)
#else
#define SINEW_NAME_BUG(name) false
#endif
