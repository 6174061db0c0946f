#pragma once

/// Bugs of the registry that can be planted, to prove that the exploration and the simulation find
/// such bugs. `SINEW_REGISTRY_BUG(kName)` is the constant false unless the build defines
/// SINEW_PLANTED_BUGS.
#ifdef SINEW_PLANTED_BUGS

namespace sinew::internal::registry {

enum class RegistryBug {
  kNone,
  kPauseCounts,        // a registrar that was stopped counts its own pause
  kOneWordEvicts,      // the report of one end is enough
  kOneWordStays,       // the report of one end is never dropped
  kNewestListWins,     // who brings the higher number has the name
  kNamedAreLost,       // who has not come back yet counts as lost at once
  kAdmitsAtOnce,       // newcomers get in before those who come back
  kAnyBeatRefuses,     // a beat that was sent before a join refuses it
  kLossForgotten,      // the leases of members never end
  kGatherForgotten,    // a complete gather is not kept for those who ask later
  kGatherNotFailed,    // a gather waits for a member that is gone
  kNoCatchUp,          // a beat does not bring the changes that were lost
  kAnybodyIsBelieved,  // lists are taken from others than the registrar
  kTakesBack,          // who was lost is taken back without a report
  kNeverAway,          // gathers wait for a registrar that is away
  kLeaveWaits,         // a worker that leaves waits for the registrar without limit
  kEpochWraps,         // a number near 2^64 is counted on
  kWorldIncomplete,    // a fixed world starts before all are there
  kOutIsSilent,        // who is out is not told so
};

/// The bug that is active in this process. Not thread-safe.
inline RegistryBug registry_bug = RegistryBug::kNone;

}  // namespace sinew::internal::registry

#define SINEW_REGISTRY_BUG(name) \
  (::sinew::internal::registry::registry_bug == ::sinew::internal::registry::RegistryBug::name)
#else
#define SINEW_REGISTRY_BUG(name) false
#endif
