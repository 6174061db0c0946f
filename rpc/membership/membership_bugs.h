#pragma once

/// Bugs of the membership that can be planted, to prove that the simulation finds such bugs.
/// `SINEW_MEMBERSHIP_BUG(kName)` is the constant false unless the build defines
/// SINEW_PLANTED_BUGS.
#ifdef SINEW_PLANTED_BUGS

namespace sinew::internal {

enum class MembershipBug {
  kNone,
  kMinorityDecides,     // less than half decides
  kUnlinkedNotAsked,    // who is not linked is not asked whether it lives
  kPairStays,           // two that have lost each other alone both stay
  kRefuserStays,        // who refuses lists stays on them
  kFoundsAtOnce,        // a founder does not wait to be called
  kNobodyCallsFounder,  // nor does anybody call
  kStrangersNotMet,     // nobody looks where workers look for the job
  kFrozenForGood,       // who cannot decide does not look for those that are dead
  kJoinerHasNoSay,      // who is being let in accepts no list
  kJoinerIsDeaf,        // nor does it hear who asks for its vote
};

/// The bug that is active in this process. Not thread-safe.
inline MembershipBug membership_bug = MembershipBug::kNone;

}  // namespace sinew::internal

#define SINEW_MEMBERSHIP_BUG(name) \
  (::sinew::internal::membership_bug == ::sinew::internal::MembershipBug::name)
#else
#define SINEW_MEMBERSHIP_BUG(name) false
#endif
