#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/strings/cord.h"

namespace sinew::internal {

/// Streams of one connection that do not wait for each other. Frames of one lane arrive in the
/// order in which they were sent, with one exception: a frame whose payloads are large enough to
/// travel beside the lane (inside the transport, so that they hold nothing up) arrives when they
/// are complete, and smaller frames that were sent after it may come first.
enum class Lane : std::uint8_t { kControl = 0, kCalls = 1 };
constexpr int kLaneCount = 2;

/// Runs an action once, when it is destroyed: how the reader of a frame tells the transport that
/// the frame's memory is free and the sender's window may move on.
class Credit {
 public:
  Credit() = default;
  explicit Credit(absl::AnyInvocable<void() &&> give_back) : give_back_(std::move(give_back)) {}
  Credit(Credit&& other) noexcept : give_back_(std::exchange(other.give_back_, nullptr)) {}
  Credit& operator=(Credit&& other) noexcept {
    reset();
    give_back_ = std::exchange(other.give_back_, nullptr);
    return *this;
  }
  ~Credit() { reset(); }
  void reset() {
    if (auto give_back = std::exchange(give_back_, nullptr)) std::move(give_back)();
  }

 private:
  absl::AnyInvocable<void() &&> give_back_;
};

/// What a transport moves: the bytes of an envelope, which it does not read, and payloads beside
/// it.
struct Frame {
  std::string envelope;
  std::vector<absl::Cord> payloads;
  /// Set on received frames of the calls lane: hold it until the frame has been decoded or dropped.
  Credit credit;
  /// A hint of the sender: others are on their way, so this one need not leave before its thread
  /// waits for something, or a millisecond has passed.
  bool may_linger = false;

  std::size_t size_bytes() const {
    std::size_t total = envelope.size();
    for (const absl::Cord& payload : payloads) total += payload.size();
    return total;
  }
};

}  // namespace sinew::internal
