#pragma once

/// Protocol bugs that can be planted, to prove that the exploration and the simulation find such
/// bugs. `SINEW_LINK_BUG(kName)` is the constant false unless the build defines
/// SINEW_PLANTED_BUGS.
#ifdef SINEW_PLANTED_BUGS

namespace sinew::internal {

enum class LinkBug {
  kNone,
  kRepetitionDelivered,  // a frame that comes twice is handed over twice
  kVoidDelivered,        // a frame that its sender has given up is handed over
  kGivenUpSentAgain,     // a frame that was given up is sent again with its content
  kNotSentAgain,         // what a broken connection swallowed is forgotten
  kRoomIgnored,          // requests are written without room
  kRoomNotReturned,      // room of a request whose handler started is not given back
  kOldConnectionHeard,   // packets of a superseded connection count
  kFenceFromAnswer,      // the holder counts from when its beat was answered
  kDropWithoutMargin,    // the owner drops when the smaller lease has passed
  kBothKeepTheirOwn,     // two ends that open at once each insist on their own connection
  kEndedHears,           // a link that has ended accepts frames
  kCancelForgotten,      // a cancel that comes before its frame is forgotten
  kGivenUpEndsAtOnce,    // a frame that was given up on its way has ended before its receipt
  kRoomToldOnce,         // room that came free after the hello is not told on the new connection
  kOfferNotHeard,        // the owner takes an offer for no sign of life
  kAcceptedIsHeard,      // who accepts a connection counts its own lease from then
  kRefusalCounts,        // an address that refuses counts where this end never got through
  kSilenceBorne,         // a connection that swallows everything is kept until the lease ends
  kHandledForgotten,     // the sender of a note is not told that it has been handled
  kWrittenUnheard,       // the first frames are written before anybody is known to hear them
  kTurnForgotten,        // nothing comes of the turn that a first attempt has waited for
  kTurnTakenLate,        // who has a connection dials when the turn comes that it has waited for
  kAskedWaits,           // who is asked to come waits for its turn all the same
  kProofUnused,          // who is proved to be dead is still waited for
};

/// The bug that is active in this process. Not thread-safe.
inline LinkBug link_bug = LinkBug::kNone;

}  // namespace sinew::internal

#define SINEW_LINK_BUG(name) (::sinew::internal::link_bug == ::sinew::internal::LinkBug::name)
#else
#define SINEW_LINK_BUG(name) false
#endif
