#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "sinew/rpc/base/boot_clock.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/link/frame_numbers.h"
#include "sinew/rpc/transport/frame.h"

/// What the two ends of a link tell each other, as the state machine sees it; header_codec.h and
/// link_codec.h put it into bytes. Rules: docs/link.md.
namespace sinew::internal {

/// What a frame is to the link: whose room it takes.
enum class FrameKind : std::uint8_t {
  /// Of the link itself: receipts, room, heartbeats. Has no number, may get lost.
  kLink = 0,
  /// A call. Takes room that the receiver gives back when its handler starts.
  kRequest = 1,
  /// The answer to a call. Takes room until its receipt.
  kReply = 2,
  /// What workers say to run the job. Takes room until its receipt.
  kControl = 3,
};

inline Lane lane_of(FrameKind kind) {
  return kind == FrameKind::kRequest || kind == FrameKind::kReply ? Lane::kCalls : Lane::kControl;
}

/// Travels with each frame.
struct LinkHeader {
  FrameKind kind = FrameKind::kLink;
  /// Of the frame, in its lane and direction; 0 with kLink.
  std::uint64_t number = 0;
  /// The call that it belongs to; needed to answer for a frame that cannot be read. 0 with
  /// kControl: it has no answer, and its receipt says that it has been handled.
  std::uint64_t subject = 0;
  /// Left for the frame to be of use; negative: no limit.
  std::chrono::microseconds time_left{-1};
  /// The sender has given it up: it has no content any more, but still takes its number. `bytes`
  /// says what room it took.
  bool is_void = false;
  std::uint64_t bytes = 0;

  /// Frames of the other direction that have arrived, by lane.
  NumberRanges received[kLaneCount];
  /// Room for requests that the sender of this has given back since the link began. 0, 0: not
  /// said.
  std::uint64_t returned_frames = 0;
  std::uint64_t returned_bytes = 0;
  /// Not 0: a heartbeat, or the answer to one.
  std::uint64_t beat = 0;
  std::uint64_t beat_reply = 0;
  /// The sender has ended the link.
  bool is_goodbye = false;

  bool is_note() const { return kind == FrameKind::kControl && subject == 0; }
};

/// Names one connection of a link: who opened it, and that end's count of attempts. {0, 0}: none.
struct ConnectionName {
  Incarnation opener;
  std::uint64_t attempt = 0;

  friend bool operator==(const ConnectionName& a, const ConnectionName& b) {
    return a.opener == b.opener && a.attempt == b.attempt;
  }
  friend bool operator!=(const ConnectionName& a, const ConnectionName& b) { return !(a == b); }
};

/// Why a connection was refused. What follows is in consequence_of().
enum class Refusal : std::uint8_t {
  kNone = 0,
  /// Another job answers there.
  kOtherJob = 1,
  kOtherProtocol = 3,
  /// The name is not proved, the link belongs to another worker, or the settings do not fit.
  kNotAllowed = 4,
  kNotListeningYet = 5,
  /// The link has ended there, or was never there.
  kLostHere = 6,
  kEvicted = 7,
  kOtherIncarnation = 8,
  kLeft = 9,
  /// There is a connection already.
  kDuplicate = 10,
  /// The other end opens one itself at this moment.
  kBusy = 11,
  kUnreachable = 12,
  /// The opener asked who answers.
  kWhoAnswers = 13,
};

/// What an end does that was refused.
enum class Consequence {
  /// Tries again, for as long as the lease lasts.
  kTryAgain,
  /// Tries again at once, or waits for the other's connection.
  kTryAgainSoon,
  /// As an address where no process listens: counts if it lasts.
  kCountAsRefused,
  /// Final, if the link's other end has said it (and proved that); otherwise as kTryAgain.
  kLostIfProved,
  /// No other try will do: calls fail with its text.
  kFail,
};
Consequence consequence_of(Refusal refusal);
const char* text_of(Refusal refusal);

/// What an end accepts.
struct LinkLimits {
  /// Largest frame, payloads included, and most payloads in one.
  std::uint64_t max_frame_bytes = std::uint64_t{16} << 30;
  std::uint64_t max_payloads = 65536;
  std::uint64_t max_envelope_bytes = std::uint64_t{64} << 20;
  /// Requests that may wait for a handler here.
  std::uint64_t request_window_bytes = std::uint64_t{256} << 20;
  std::uint64_t request_window_frames = 65536;
  /// Replies that may be on their way to here.
  std::uint64_t reply_window_bytes = std::uint64_t{256} << 20;
  std::uint64_t control_window_bytes = std::uint64_t{16} << 20;
};

/// How often an end beats, and how long it believes in the other without hearing from it.
struct LeaseTerms {
  std::chrono::nanoseconds interval = std::chrono::seconds(1);
  std::chrono::nanoseconds lease = std::chrono::seconds(15);
};

/// What an end says of the link when a connection is made.
struct LinkHello {
  ConnectionName connection;
  /// The last connection that the sender saw up.
  ConnectionName last_up;
  LinkLimits limits;
  LeaseTerms terms;
  /// All frames that have arrived, by lane.
  NumberRanges received[kLaneCount];
  std::uint64_t returned_frames = 0;
  std::uint64_t returned_bytes = 0;
};

}  // namespace sinew::internal
