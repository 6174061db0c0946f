#pragma once

/// Bugs of the rules of streams that can be planted: in programs that are built for that, a test
/// switches one on and wants to see it found.
#ifdef SINEW_PLANTED_BUGS

namespace sinew::internal {

enum class StreamBug {
  kNone,
  kForgetsWriters,      // a pull makes room, and those who wait for it are not told
  kStopForgetsWriters,  // the stream is over, and those who wait for room are not told
  kEndsEarly,           // the end is told while items wait
  kEndsOnePull,         // of several pulls that wait, one is told the end
  kTakesAsItComes,      // what overtakes is handed out first
  kFailureIsFinal,     // a failed pull ends the stream though another one may bring what is missing
  kStopsPulling,       // once all has been read nothing more is pulled
  kPullsTooMuch,       // what waits to be read does not hold back pulls
  kTakesTwice,         // the same items are taken twice
  kWaitsForGap,        // what is missing and cannot come any more is waited for
  kEndForgetsReaders,  // the stream is over, and those who wait for an item are not told
  kLeavesWriter,       // the reader has stopped, and the writer is not told
};

/// The bug that is active in this process. Not thread-safe.
inline StreamBug stream_bug = StreamBug::kNone;

}  // namespace sinew::internal

#define SINEW_STREAM_BUG(name) (::sinew::internal::stream_bug == ::sinew::internal::StreamBug::name)
#else
#define SINEW_STREAM_BUG(name) false
#endif
