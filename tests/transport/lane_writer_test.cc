#include "sinew/rpc/transport/grpc/connection/lane_writer.h"

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "sinew/rpc/transport/grpc/connection/packet_codec.h"
#include "sinew/tests/transport/keeping_stream.h"

namespace sinew::internal {
namespace {

constexpr std::size_t kPacketBytes = 20'000;

PacketFrame frame(std::string envelope, std::vector<absl::Cord> payloads = {}) {
  PacketFrame frame;
  frame.header = std::string("about ") + envelope.substr(0, 10);
  frame.envelope = std::move(envelope);
  frame.payloads = std::move(payloads);
  return frame;
}

/// Small ones, such as are copied, and such as are referred to, in turn.
std::vector<PacketFrame> mixed() {
  const absl::Cord large(std::string(9000, 'l'));
  std::vector<PacketFrame> frames = {
      frame("small"),
      frame("small with a payload", {absl::Cord("payload"), absl::Cord()}),
      frame("empty"),
      frame(std::string(6000, 'e')),
      frame("refers", {absl::Cord("a"), large, absl::Cord("b")}),
      frame("after that"),
      frame("refers twice", {large, large}),
      frame("elsewhere", {absl::Cord(), absl::Cord("here")}),
      frame("last"),
  };
  frames[2].envelope.clear();
  frames[5].is_call = true;
  frames[7].tickets = {{1 << 20, 8, 2, "a location"}, {4, 0}};
  frames[7].envelope_ticket = {300'000, 9};
  frames[7].envelope.clear();
  return frames;
}

void expect_same(const PayloadTicket& a, const PayloadTicket& b) {
  EXPECT_EQ(a.size_bytes, b.size_bytes);
  EXPECT_EQ(a.transfer, b.transfer);
  EXPECT_EQ(a.plane, b.plane);
  EXPECT_EQ(a.location, b.location);
}

void expect_same(const PacketFrame& a, const PacketFrame& b) {
  EXPECT_EQ(a.is_call, b.is_call);
  expect_same(a.envelope_ticket, b.envelope_ticket);
  EXPECT_EQ(a.envelope, b.envelope);
  EXPECT_EQ(a.header, b.header);
  EXPECT_EQ(a.payloads, b.payloads);
  ASSERT_EQ(a.tickets.size(), b.tickets.size());
  for (std::size_t i = 0; i < a.tickets.size(); ++i) expect_same(a.tickets[i], b.tickets[i]);
}

class LaneWriterTest : public ::testing::Test {
 protected:
  std::vector<PacketFrame> written() const {
    std::vector<PacketFrame> frames;
    for (const Packet& packet : stream_->packets) {
      frames.insert(frames.end(), packet.frames.begin(), packet.frames.end());
    }
    return frames;
  }

  std::shared_ptr<KeepingStream> stream_ =
      std::make_shared<KeepingStream>(StreamKind::kCalls, WriteEnd::kNow);
  LaneWriter writer_{kPacketBytes};
};

TEST_F(LaneWriterTest, WhatWaitsArrivesInItsOrderAndIsKeptNoLonger) {
  writer_.open(stream_, WriterStart::kBusy, 7);
  std::vector<PacketFrame> sent;
  std::size_t sent_bytes = 0;
  for (int round = 0; round < 3; ++round) {
    for (const PacketFrame& each : mixed()) {
      sent.push_back(each);
      sent_bytes += encoded_size_bytes(each);
      EXPECT_EQ(writer_.queue(each), sent.size());
    }
  }
  writer_.flush();
  EXPECT_TRUE(stream_->packets.empty());
  EXPECT_EQ(writer_.kept_bytes(), sent_bytes);
  EXPECT_TRUE(writer_.add_fetched(5));
  writer_.send_planes({"of a plane"});
  writer_.on_written();
  EXPECT_EQ(writer_.kept_bytes(), 0U);
  const std::vector<PacketFrame> came = written();
  ASSERT_EQ(came.size(), sent.size());
  for (std::size_t i = 0; i < sent.size(); ++i) expect_same(sent[i], came[i]);
  // Beside the frames of the first one only.
  const std::deque<Packet>& packets = stream_->packets;
  ASSERT_GT(packets.size(), 2U);
  EXPECT_EQ(packets[0].riders, 7U);
  EXPECT_EQ(packets[0].fetched, std::vector<std::uint64_t>{5});
  EXPECT_EQ(packets[0].planes, std::vector<std::string>{"of a plane"});
  for (std::size_t i = 1; i < packets.size(); ++i) {
    EXPECT_EQ(packets[i].riders, 0U);
    EXPECT_TRUE(packets[i].fetched.empty() && packets[i].planes.empty());
  }
}

TEST_F(LaneWriterTest, NoPacketGoesOnOnceItIsFull) {
  writer_.open(stream_, WriterStart::kBusy);
  for (int i = 0; i < 100; ++i) writer_.queue(frame(std::string(1500, 's')));
  writer_.on_written();
  // 14 of them are a packet's worth.
  ASSERT_EQ(stream_->packets.size(), 8U);
  for (std::size_t i = 0; i < 7; ++i) EXPECT_EQ(stream_->packets[i].frames.size(), 14U);
  EXPECT_EQ(stream_->packets[7].frames.size(), 2U);
}

// The memory of one packet serves the next one.
TEST_F(LaneWriterTest, APacketHasNothingOfTheOneBefore) {
  writer_.open(stream_, WriterStart::kIdle);
  for (int round = 0; round < 5; ++round) {
    writer_.queue(frame(std::string(300, 'a')));
    writer_.queue(frame("refers", {absl::Cord(std::string(5000, 'p'))}));
    writer_.flush();
    writer_.queue(frame("b"));
    writer_.flush();
    ASSERT_EQ(stream_->packets.size(), 2U);
    EXPECT_EQ(stream_->packets[0].frames.size(), 2U);
    ASSERT_EQ(stream_->packets[1].frames.size(), 1U);
    EXPECT_EQ(stream_->packets[1].frames[0].envelope, "b");
    stream_->packets.clear();
  }
}

TEST_F(LaneWriterTest, AfterCloseNothingIsQueued) {
  writer_.open(stream_, WriterStart::kBusy);
  EXPECT_EQ(writer_.queue(frame("dropped")), 1U);
  writer_.close();
  EXPECT_EQ(writer_.queue(frame("late")), std::nullopt);
  EXPECT_EQ(writer_.queue(frame(std::string(6000, 'l'))), std::nullopt);
  writer_.on_written();
  EXPECT_TRUE(stream_->packets.empty());
}

}  // namespace
}  // namespace sinew::internal
