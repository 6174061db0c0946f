#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "sinew/rpc/calls/call_link.h"

namespace sinew::internal {

/// A frame of calls: what the link keeps until its receipt.
struct CallLink::Content final : Outbound {
  FrameKind kind = FrameKind::kControl;
  std::uint64_t subject = 0;
  /// It holds a call of this worker, as opposed to an answer or a note.
  bool is_call = false;
  /// By what the link knows the frame of a call, once it does, or kGivenUp: the call has ended
  /// without its answer. No frame is known by that.
  std::atomic<FrameToken> token{0};
  static constexpr FrameToken kGivenUp = ~FrameToken{1};

  // Of a call guarded by the CallLink's lock. Those of others are known only to the link once they
  // are sent.
  /// The link is done with the frame.
  bool ended = false;
  /// What runs then.
  std::vector<OnCarrierEnd> on_end;

  bool is_note() const { return kind == FrameKind::kControl && subject == 0; }

  static OutgoingFrame sizes(const Content& content) {
    OutgoingFrame frame;
    frame.kind = content.kind;
    frame.subject = content.subject;
    frame.envelope_bytes = content.envelope.size();
    frame.payloads = content.payloads.size();
    frame.bytes = content.envelope.size();
    frame.large = content.envelope.size() > kRidesInTheFrameBytes;
    for (const absl::Cord& payload : content.payloads) {
      frame.bytes += payload.size();
      frame.large = frame.large || payload.size() >= kMayTravelBesideBytes;
    }
    return frame;
  }
  static OutgoingFrame outgoing(std::shared_ptr<Content> content) {
    OutgoingFrame frame = sizes(*content);
    frame.content = std::move(content);
    return frame;
  }

 private:
  // Of transports, so that they need not be asked: from here on a payload may arrive after its
  // frame's followers, and an envelope.
  static constexpr std::size_t kMayTravelBesideBytes = std::size_t{4} << 10;
  static constexpr std::size_t kRidesInTheFrameBytes = std::size_t{128} << 10;
};

}  // namespace sinew::internal
