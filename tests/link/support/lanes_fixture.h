#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "sinew/rpc/link/link_lanes.h"
#include "sinew/tests/link/support/outbound.h"

namespace sinew::internal {
inline constexpr LinkLanes::TimePoint kStart{std::chrono::seconds(1000)};
inline constexpr std::uint64_t kCost = LinkLanes::kFrameCostBytes;

/// Room for four requests without content, two replies, two control frames.
inline LinkLimits small_limits() {
  LinkLimits limits;
  limits.request_window_bytes = 4 * kCost;
  limits.reply_window_bytes = 2 * kCost;
  limits.control_window_bytes = 2 * kCost;
  return limits;
}

inline OutgoingFrame frame(FrameKind kind, std::uint64_t bytes = 0) {
  OutgoingFrame frame;
  frame.kind = kind;
  frame.bytes = bytes;
  frame.content = std::make_shared<Outbound>();
  return frame;
}
inline OutgoingFrame request(std::uint64_t bytes = 0) { return frame(FrameKind::kRequest, bytes); }
inline OutgoingFrame reply(std::uint64_t bytes = 0) { return frame(FrameKind::kReply, bytes); }
inline OutgoingFrame control(std::uint64_t bytes = 0) { return frame(FrameKind::kControl, bytes); }

/// One end, whose other end is the test.
class LinkLanesTest : public testing::Test {
 protected:
  explicit LinkLanesTest(LinkLimits limits = small_limits(),
                         std::uint64_t send_window_bytes = 1 << 20)
      : lanes(limits, send_window_bytes) {}

  LinkOutputs up(const LinkHello& theirs) {
    LinkOutputs outputs;
    lanes.on_up(theirs, now, outputs);
    return outputs;
  }
  LinkOutputs up() {
    LinkHello hello;
    hello.limits = small_limits();
    return up(hello);
  }
  LinkOutputs send(OutgoingFrame frame) {
    LinkOutputs outputs;
    last = lanes.send(std::move(frame), now, outputs);
    return outputs;
  }
  LinkOutputs hear(const LinkHeader& header, std::uint64_t bytes = 0) {
    LinkOutputs outputs;
    delivery = lanes.on_frame(header, bytes, now, outputs);
    return outputs;
  }
  LinkOutputs hear_receipts(Lane lane, std::uint64_t first, std::uint64_t until) {
    LinkHeader header;
    header.received[static_cast<std::size_t>(lane)] = {{first, until}};
    return hear(header);
  }
  static LinkHeader incoming(FrameKind kind, std::uint64_t number) {
    LinkHeader header;
    header.kind = kind;
    header.number = number;
    header.subject = 1;
    return header;
  }
  static LinkHeader incoming_note(std::uint64_t number) {
    LinkHeader header = incoming(FrameKind::kControl, number);
    header.subject = 0;
    return header;
  }
  static std::vector<std::uint64_t> numbers(const LinkOutputs& outputs) {
    std::vector<std::uint64_t> numbers;
    for (const LinkOutputs::Write& write : outputs.writes) numbers.push_back(write.header.number);
    return numbers;
  }

  LinkLanes lanes;
  LinkLanes::TimePoint now = kStart;
  FrameToken last = 0;
  LinkLanes::Delivery delivery = LinkLanes::Delivery::kDrop;
};

class RoomyLanesTest : public LinkLanesTest {
 protected:
  RoomyLanesTest() : LinkLanesTest(LinkLimits{}) {}
};

class SmallSendWindowTest : public LinkLanesTest {
 protected:
  SmallSendWindowTest() : LinkLanesTest(small_limits(), 4 * kCost) {}
};

}  // namespace sinew::internal
