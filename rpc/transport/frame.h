#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/cord.h"
#include "sinew/rpc/transport/header_bytes.h"

namespace sinew::internal {

/// Streams of one connection that do not wait for each other. Frames of one lane arrive in the
/// order in which they were sent, with one exception: a frame whose payloads are large enough to
/// travel outside of the lane (inside the transport, so that they hold nothing up) arrives when
/// they are complete, and smaller frames that were sent after it may come first.
enum class Lane : std::uint8_t { kControl = 0, kCalls = 1 };
constexpr int kLaneCount = 2;

/// Largest Frame::header. Part of the wire format.
constexpr std::size_t kMaxHeaderBytes = std::size_t{16} << 10;

/// What a transport moves: the bytes of an envelope and of a header, which it does not read, and
/// payloads in addition to them. Any of them may be empty.
struct Frame {
  std::string envelope;
  std::vector<absl::Cord> payloads;
  /// What the layer above keeps about the frame, at most kMaxHeaderBytes. Unlike the rest it never
  /// travels outside of the lane: ConnectionHandler::on_announced() sees it before the payloads
  /// come.
  HeaderBytes header;
  /// A hint of the sender: others are on their way, so this one need not leave before its thread
  /// waits for something, or a millisecond has passed.
  bool may_linger = false;

  std::size_t size_bytes() const {
    std::size_t total = envelope.size() + header.size();
    for (const absl::Cord& payload : payloads) total += payload.size();
    return total;
  }
};

}  // namespace sinew::internal
