#pragma once

/// Bugs of the rules of backward passes that can be planted: in programs that are built for that, a
/// test switches one on and wants to see it found.
#ifdef SINEW_PLANTED_BUGS

namespace sinew::internal {

enum class PassBug {
  kNone,
  kLastStepLeavesEarly,  // gradients of the last step leave before it has ended, to who asked
  kAnswersHalfAStep,     // an answer in steps lacks what other workers may still bring
  kForgetsWhomItAsked,   // who is asked later does not hear of a failure
  kEndsBeforeOthers,     // a part is done while other workers have not answered
  kFailsUnheard,         // a failure that no request waits for ends the pass, and is forgotten
  kAbortsNobody,         // those that were asked do not hear of a failure
  kKeepsFailed,          // what a failed pass has added stays
  kForgetsFailures,      // a request does not say which passes before it have failed
  kJoinsTheEnded,        // a request that comes after the end begins the pass again
};

/// The bug that is active in this process. Not thread-safe.
inline PassBug pass_bug = PassBug::kNone;

}  // namespace sinew::internal

#define SINEW_PASS_BUG(name) (::sinew::internal::pass_bug == ::sinew::internal::PassBug::name)
#else
#define SINEW_PASS_BUG(name) false
#endif
