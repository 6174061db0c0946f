#pragma once

/// Bugs of the rules of polling that can be planted, to prove that their exploration finds such
/// bugs. `SINEW_LEAD_BUG(kName)` is the constant false unless the build defines
/// SINEW_PLANTED_BUGS.
#ifdef SINEW_PLANTED_BUGS

namespace sinew::internal {

enum class LeadBug {
  kNone,
  kNobodyWatches,     // a thread that lays the duty down for short tasks leaves no watcher
  kNobodyPromoted,    // a wait that lasts lays the duty down, and wakes no thread
  kWatcherTrustsAll,  // who has watched goes back to sleep although the duty still lies
  kTwoLead,           // a thread that returns from tasks leads, even if another one does
  kNobodyReplaces,    // a task waits, and the pool gets no other thread
};

/// The bug that is active in this process. Not thread-safe.
inline LeadBug lead_bug = LeadBug::kNone;

}  // namespace sinew::internal

#define SINEW_LEAD_BUG(name) (::sinew::internal::lead_bug == ::sinew::internal::LeadBug::name)
#else
#define SINEW_LEAD_BUG(name) false
#endif
