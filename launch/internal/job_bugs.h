#pragma once

/// Bugs of the rules of jobs that can be planted: in programs that are built for that, a test
/// switches one on and wants to see it found.
#ifdef SINEW_PLANTED_BUGS

namespace sinew::internal {

enum class JobBug {
  kNone,
  kOthersGoOn,          // a failure does not end the others
  kNobodyKills,         // who does not end when told to is waited for
  kBlamesTheTold,       // who ends badly when told to has failed
  kBlamesTheLast,       // a later failure takes the place of the first
  kStartsAfterFailure,  // a failure does not stop the starting of others
  kRestartsForever,     // the number of restarts has no bound
  kRestartsWhenAsked,   // a job that was told to stop is started again
  kOneSignalKills,      // the first request to stop kills
  kOneStopIsTwo,        // a request that comes by two ways kills
  kAllStopsAreOne,      // a second request does not kill
  kBlamesTheStopped,    // who ends before it is told to, but after a request, has failed
  kLeaderIsNotHeard,    // the others are waited for when the leaders have ended
};

/// The bug that is active in this process. Not thread-safe.
inline JobBug job_bug = JobBug::kNone;

}  // namespace sinew::internal

#define SINEW_JOB_BUG(name) (::sinew::internal::job_bug == ::sinew::internal::JobBug::name)
#else
#define SINEW_JOB_BUG(name) false
#endif
