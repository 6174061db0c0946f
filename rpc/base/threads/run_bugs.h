#pragma once

/// Bugs of the rules of executors that can be planted, as those of lead_bugs.h.
#ifdef SINEW_PLANTED_BUGS

namespace sinew::internal {

enum class RunBug {
  kNone,
  kNobodyWatches,        // short tasks are left to those that run, and no thread watches
  kNobodyWatchesHelper,  // tasks are left to a helper that is busy, and no thread watches
  kHelperIsCountedOn,    // a helper that does not come is not given up
  kNobodyTakesThePlace,  // a task begins to wait, and no thread runs the others
};

/// The bug that is active in this process. Not thread-safe.
inline RunBug run_bug = RunBug::kNone;

}  // namespace sinew::internal

#define SINEW_RUN_BUG(name) (::sinew::internal::run_bug == ::sinew::internal::RunBug::name)
#else
#define SINEW_RUN_BUG(name) false
#endif
