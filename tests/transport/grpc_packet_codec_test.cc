#include "sinew/rpc/transport/grpc/connection/packet_codec.h"

#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "sinew/rpc.pb.h"
#include "sinew/tests/transport/byte_buffers.h"

namespace sinew::internal {
namespace {

using testing::buffer_of;
using testing::bytes_of;

Packet sample() {
  Packet packet;
  packet.riders = 300;
  packet.frames.resize(3);
  packet.frames[0].envelope = "first";
  packet.frames[0].header = "about the first";
  packet.frames[1].envelope = std::string(300, 'e');
  packet.frames[1].is_call = true;
  packet.frames[1].payloads = {absl::Cord("a"), absl::Cord(),
                               absl::Cord(std::string(100'000, 'p'))};
  packet.frames[2].envelope_ticket = {5000, 7};
  packet.frames[2].header = std::string(kMaxHeaderBytes, 'h');
  packet.frames[2].payloads = {absl::Cord(), absl::Cord("here")};
  packet.frames[2].tickets = {{1 << 20, 8}, {4, 0}};
  return packet;
}

void expect_same(const Packet& packet, const Packet& other) {
  EXPECT_EQ(packet.riders, other.riders);
  ASSERT_EQ(packet.frames.size(), other.frames.size());
  for (std::size_t i = 0; i < packet.frames.size(); ++i) {
    const PacketFrame& a = packet.frames[i];
    const PacketFrame& b = other.frames[i];
    EXPECT_EQ(a.envelope, b.envelope);
    EXPECT_EQ(a.header, b.header);
    EXPECT_EQ(a.is_call, b.is_call);
    EXPECT_EQ(a.envelope_ticket.transfer, b.envelope_ticket.transfer);
    EXPECT_EQ(a.size_bytes(), b.size_bytes());
    ASSERT_EQ(a.payloads.size(), b.payloads.size());
    for (std::size_t n = 0; n < a.payloads.size(); ++n) EXPECT_TRUE(a.payloads[n] == b.payloads[n]);
    ASSERT_EQ(a.tickets.size(), b.tickets.size());
    for (std::size_t n = 0; n < a.tickets.size(); ++n) {
      EXPECT_EQ(a.tickets[n].transfer, b.tickets[n].transfer);
      EXPECT_EQ(a.tickets[n].size_bytes, b.tickets[n].size_bytes);
    }
  }
}

TEST(GrpcPacketCodec, ReadsWhatItWroteHoweverItIsSliced) {
  const Packet packet = sample();
  const std::string bytes = bytes_of(encode_packet(packet));
  for (const std::size_t slice_bytes : {1U, 2U, 7U, 1000U, 20'000U, 1U << 20}) {
    const absl::StatusOr<Packet> decoded = decode_packet(buffer_of(bytes, slice_bytes), {});
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    expect_same(packet, *decoded);
  }
}

TEST(GrpcPacketCodec, ReadsBackChunksAndGrants) {
  Packet packet;
  packet.granted = {1, 300, std::uint64_t{1} << 63};
  packet.chunks.push_back({9, 1 << 20, 4096, absl::Cord(std::string(50'000, 'c'))});
  const absl::StatusOr<Packet> decoded = decode_packet(encode_packet(packet), {});
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->granted, packet.granted);
  ASSERT_EQ(decoded->chunks.size(), 1U);
  EXPECT_EQ(decoded->chunks[0].transfer, 9U);
  EXPECT_EQ(decoded->chunks[0].size_bytes, 1U << 20);
  EXPECT_EQ(decoded->chunks[0].offset, 4096U);
  EXPECT_TRUE(decoded->chunks[0].data == packet.chunks[0].data);
}

TEST(GrpcPacketCodec, ReadsBackWhatPlanesSay) {
  Packet packet;
  packet.planes = {"a message", std::string(1000, 'p')};
  packet.fetched = {5, std::uint64_t{1} << 40};
  PacketFrame& frame = packet.frames.emplace_back();
  frame.payloads.resize(2);
  frame.tickets = {{100'000, 6, 1, std::string("\0\x01location", 10)}, {200'000, 7}};
  const absl::StatusOr<Packet> decoded = decode_packet(encode_packet(packet), {});
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->planes, packet.planes);
  EXPECT_EQ(decoded->fetched, packet.fetched);
  const std::vector<PayloadTicket>& tickets = decoded->frames.at(0).tickets;
  ASSERT_EQ(tickets.size(), 2U);
  EXPECT_EQ(tickets[0].plane, 1U);
  EXPECT_EQ(tickets[0].location, frame.tickets[0].location);
  EXPECT_FALSE(tickets[1].located());
  proto::Packet parsed;
  ASSERT_TRUE(parsed.ParseFromString(bytes_of(encode_packet(packet))));
  EXPECT_EQ(parsed.fetched(1), std::uint64_t{1} << 40);
  EXPECT_EQ(parsed.frames(0).tickets(0).location(), frame.tickets[0].location);
}

TEST(GrpcPacketCodec, RefusesPlanesThatSayTooMuch) {
  const auto refused = [](const Packet& packet) {
    return absl::IsInvalidArgument(decode_packet(encode_packet(packet), {}).status());
  };
  Packet long_message;
  long_message.planes = {std::string(kMaxPlaneMessageBytes + 1, 'p')};
  EXPECT_TRUE(refused(long_message));
  Packet many_messages;
  many_messages.planes.resize(kMaxPlaneMessages + 1, "p");
  EXPECT_TRUE(refused(many_messages));
  Packet long_location;
  long_location.frames.emplace_back().payloads.resize(1);
  long_location.frames[0].tickets = {{5, 1, 1, std::string(1000, 'l')}};
  EXPECT_TRUE(refused(long_location));
  Packet no_transfer;
  no_transfer.frames.emplace_back().payloads.emplace_back("12345");
  no_transfer.frames[0].tickets = {{5, 0, 1, "location"}};
  EXPECT_TRUE(refused(no_transfer));
}

TEST(GrpcPacketCodec, WritesWhatProtobufReads) {
  proto::Packet parsed;
  ASSERT_TRUE(parsed.ParseFromString(bytes_of(encode_packet(sample()))));
  EXPECT_EQ(parsed.riders(), 300U);
  ASSERT_EQ(parsed.frames_size(), 3);
  EXPECT_FALSE(parsed.frames(0).is_call());
  EXPECT_TRUE(parsed.frames(1).is_call());
  EXPECT_EQ(parsed.frames(0).envelope(), "first");
  EXPECT_EQ(parsed.frames(0).header(), "about the first");
  ASSERT_EQ(parsed.frames(1).payloads_size(), 3);
  EXPECT_EQ(parsed.frames(1).payloads(2).size(), 100'000U);
  ASSERT_EQ(parsed.frames(2).tickets_size(), 2);
  EXPECT_EQ(parsed.frames(2).tickets(0).transfer(), 8U);
  EXPECT_EQ(parsed.frames(2).tickets(1).size_bytes(), 4U);
  ASSERT_EQ(parsed.frames(2).payloads_size(), 1);
  EXPECT_EQ(parsed.frames(2).payloads(0), "here");
  const absl::StatusOr<Packet> decoded = decode_packet(buffer_of(parsed.SerializeAsString()), {});
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  expect_same(sample(), *decoded);
}

TEST(GrpcPacketCodec, SendsLongPayloadsWithoutACopyAndKeepsThemAlive) {
  const std::string memory(100'000, 'm');
  bool freed = false;
  absl::Cord payload =
      absl::MakeCordFromExternal(memory, [&freed](absl::string_view) { freed = true; });
  Packet packet;
  packet.frames.emplace_back().payloads.push_back(std::move(payload));
  grpc::ByteBuffer message = encode_packet(packet);
  packet.frames.clear();
  EXPECT_FALSE(freed);
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(message.Dump(&slices).ok());
  EXPECT_EQ(reinterpret_cast<const char*>(slices.back().begin()), memory.data());
  slices.clear();
  message.Clear();
  EXPECT_TRUE(freed);
}

TEST(GrpcPacketCodec, RefusesWhatExceedsTheLimits) {
  Transport::Limits limits;
  limits.max_payloads = 2;
  limits.max_frame_bytes = 1000;
  Packet packet;
  packet.frames.resize(1);
  PacketFrame& frame = packet.frames[0];
  const auto refused = [&] {
    const absl::Status status = decode_packet(encode_packet(packet), limits).status();
    return status.code() == absl::StatusCode::kInvalidArgument;
  };
  frame.payloads.resize(3);
  EXPECT_TRUE(refused());
  frame.payloads = {absl::Cord(std::string(600, 'x')), absl::Cord(std::string(600, 'x'))};
  EXPECT_TRUE(refused());
  frame.payloads = {absl::Cord(), absl::Cord()};
  frame.tickets = {{~std::uint64_t{0}, 1}, {2, 2}};
  EXPECT_TRUE(refused()) << "the sum of the sizes wraps around";
  frame.tickets = {{999, 1}, {1, 2}};
  EXPECT_FALSE(refused());
  frame.header = "h";
  EXPECT_TRUE(refused()) << "a header counts";
  frame = PacketFrame();
  frame.envelope = std::string(1001, 'e');
  EXPECT_TRUE(refused()) << "so does an envelope that is here";
  frame = PacketFrame();
  limits.max_frame_bytes = std::size_t{1} << 20;
  frame.header = std::string(kMaxHeaderBytes + 1, 'h');
  EXPECT_TRUE(refused());
  frame.header = std::string(kMaxHeaderBytes, 'h');
  EXPECT_FALSE(refused());
  // What is announced is refused before anything comes of it.
  frame = PacketFrame();
  frame.envelope_ticket = {limits.max_envelope_bytes, 7};
  limits.max_frame_bytes = std::size_t{1} << 30;
  EXPECT_FALSE(refused());
  ++frame.envelope_ticket.size_bytes;
  EXPECT_TRUE(refused()) << "a larger envelope";
  limits.max_frame_bytes = 1000;
  packet.frames.clear();
  packet.chunks.push_back({1, 1001, 0, absl::Cord("x")});
  EXPECT_TRUE(refused());
  packet.chunks[0] = {1, 10, 5, absl::Cord("123456")};
  EXPECT_TRUE(refused());
  packet.chunks[0] = {1, 10, ~std::uint64_t{0}, absl::Cord("1")};
  EXPECT_TRUE(refused());
}

TEST(GrpcPacketCodec, TicketsMustMatchThePayloads) {
  Packet packet;
  packet.frames.resize(1);
  PacketFrame& frame = packet.frames[0];
  frame.payloads = {absl::Cord("four")};
  frame.tickets = {{5, 0}};
  EXPECT_FALSE(decode_packet(encode_packet(packet), {}).ok());
  proto::Packet loose;
  loose.add_frames()->add_tickets()->set_size_bytes(0);
  EXPECT_FALSE(decode_packet(buffer_of(loose.SerializeAsString()), {}).ok());
  loose.mutable_frames(0)->mutable_tickets(0)->set_transfer(4);
  loose.mutable_frames(0)->add_payloads("extra");
  EXPECT_FALSE(decode_packet(buffer_of(loose.SerializeAsString()), {}).ok());
}

TEST(GrpcPacketCodec, SkipsFieldsThatItDoesNotKnow) {
  // Field 9 as a varint, a fixed64, bytes and a fixed32, then an empty frame.
  const std::string unknown(
      "\x48\x05\x49"
      "12345678"
      "\x4a\x02"
      "ab"
      "\x4d"
      "1234"
      "\x0a\x00",
      22);
  const absl::StatusOr<Packet> decoded = decode_packet(buffer_of(unknown), {});
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->frames.size(), 1U);
}

TEST(GrpcPacketCodec, RefusesTooManyFramesAndTooLargePackets) {
  std::string many;
  for (std::size_t i = 0; i <= kMaxFramesPerPacket; ++i) many.append("\x0a\x00", 2);
  EXPECT_FALSE(decode_packet(buffer_of(many), {}).ok());
  EXPECT_FALSE(decode_packet(buffer_of(std::string(kMaxPacketBytes + 1, '\0')), {}).ok());
}

TEST(GrpcPacketCodec, UnaryRequestsAreProtobuf) {
  proto::CallRequest request;
  request.mutable_call()->set_method("app::add");
  request.add_payloads("one");
  request.add_payloads("");
  const absl::StatusOr<Frame> frame = decode_unary(buffer_of(request.SerializeAsString()), {});
  ASSERT_TRUE(frame.ok()) << frame.status();
  EXPECT_EQ(frame->envelope, request.call().SerializeAsString());
  ASSERT_EQ(frame->payloads.size(), 2U);
  EXPECT_EQ(frame->payloads[0], "one");
  proto::CallRequest again;
  ASSERT_TRUE(again.ParseFromString(bytes_of(encode_unary(*frame))));
  EXPECT_EQ(again.SerializeAsString(), request.SerializeAsString());
}

TEST(GrpcPacketCodec, LargePayloadsOfUnaryResponsesAreAligned) {
  for (std::size_t envelope = 0; envelope < 300; ++envelope) {
    proto::CallResponse response;
    response.mutable_reply()->mutable_value()->set_binary(std::string(envelope, 'e'));
    Frame frame;
    frame.envelope = response.reply().SerializeAsString();
    // What a large one begins with is found nowhere else.
    const std::vector<std::string> payloads = {"A" + std::string(4095, 'a'), "small",
                                               "B" + std::string(1023, 'b'), "",
                                               "C" + std::string(20000, 'c')};
    for (const std::string& payload : payloads) {
      frame.payloads.emplace_back(payload);
      response.add_payloads(payload);
    }
    const std::string bytes = bytes_of(encode_unary(frame));
    for (const char* begin : {"Aaa", "Bbb", "Ccc"}) {
      EXPECT_EQ(bytes.find(begin) % 16, 0U) << envelope << ", " << begin;
    }
    proto::CallResponse read;
    ASSERT_TRUE(read.ParseFromString(bytes)) << envelope;
    EXPECT_EQ(read.padding().find_first_not_of('\0'), std::string::npos);
    read.clear_padding();
    EXPECT_EQ(read.SerializeAsString(), response.SerializeAsString());
    const absl::StatusOr<Frame> again = decode_unary(buffer_of(bytes), {});
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->payloads.size(), payloads.size());
  }
}

}  // namespace
}  // namespace sinew::internal
