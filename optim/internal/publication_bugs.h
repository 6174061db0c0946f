#pragma once

/// Bugs of the rules of publications that can be planted: in programs that are built for that, a
/// test switches one on and wants to see it found.
#ifdef SINEW_PLANTED_BUGS

namespace sinew::internal {

enum class PublicationBug {
  kNone,
  // The reader's rules.
  kSwitchesUnverified,  // what came is taken over whatever its digest is
  kGoesBack,            // a version that is no later one is taken over
  kChangesForever,      // changes that do not verify are asked for again, and not the whole
  kKeepsDeadWriter,     // a writer that is lost is asked again, and not sought
  kHidesFailure,        // the writer is not told which source has failed
  kTakesLateResults,    // what a former fetch has brought counts as the present one
  kSaysWhatItFetches,   // the writer is told of a version before it is verified
  // The writer's rules.
  kIgnoresOthersNumbers,  // what another writer has told is not counted on from
  kKeepsSlotsOfTheLost,   // a reader that is lost goes on to count as one that fetches
  kWakesNobody,           // a new version answers no reader that waits
  kTrustsFailed,          // a source that has failed is named again
  kServesStale,           // a reader with an older version is named as a source
  kNoFanOut,              // there is no bound to how many one source serves
};

/// The bug that is active in this process. Not thread-safe.
inline PublicationBug publication_bug = PublicationBug::kNone;

}  // namespace sinew::internal

#define SINEW_PUBLICATION_BUG(name) \
  (::sinew::internal::publication_bug == ::sinew::internal::PublicationBug::name)
#else
#define SINEW_PUBLICATION_BUG(name) false
#endif
