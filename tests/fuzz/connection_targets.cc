// What comes over connections: packets, headers of frames, hellos, envelopes.

#include <string>
#include <vector>

#include "absl/strings/cord.h"
#include "sinew/link.pb.h"
#include "sinew/rpc.pb.h"
#include "sinew/rpc/calls/envelope.h"
#include "sinew/rpc/link/header_codec.h"
#include "sinew/rpc/link/hello.h"
#include "sinew/rpc/link/link_codec.h"
#include "sinew/rpc/transport/grpc/connection/packet_codec.h"
#include "sinew/tests/fuzz/target.h"
#include "sinew/tests/transport/byte_buffers.h"

namespace sinew::fuzz {
namespace {

using namespace sinew::internal;

using testing::buffer_of;
using testing::bytes_of;

LinkHeader some_header() {
  LinkHeader header;
  header.kind = FrameKind::kRequest;
  header.number = 300;
  header.subject = 70000;
  header.time_left = std::chrono::seconds(5);
  header.received[0] = {{1, 4}, {9, 9}};
  header.received[1] = {{2, 1000}};
  header.returned_frames = 3;
  header.returned_bytes = 1 << 20;
  header.beat = 7;
  return header;
}

std::vector<std::string> packets() {
  Packet calls;
  PacketFrame& plain = calls.frames.emplace_back();
  plain.envelope = "an envelope";
  plain.payloads = {absl::Cord("payload"), absl::Cord(std::string(100, 'x'))};
  plain.header = write_header(some_header());
  PacketFrame& announced = calls.frames.emplace_back();
  announced.envelope = "e";
  announced.payloads = {absl::Cord(), absl::Cord("here"), absl::Cord()};
  announced.tickets = {{1 << 20, 5}, {4, 0}, {1 << 22, 6, 1, "a location"}};
  announced.header = write_header(some_header());
  calls.fetched = {4, 5};
  calls.riders = 2;
  Packet bulk;
  bulk.chunks.push_back({5, 1 << 20, 4096, absl::Cord(std::string(64, 'y'))});
  bulk.granted = {1, 2, 300};
  Packet control;
  control.planes = {"a message of a plane"};
  return {bytes_of(encode_packet(calls)), bytes_of(encode_packet(bulk)),
          bytes_of(encode_packet(control))};
}

bool feed_packet(std::string_view bytes) {
  const Transport::Limits limits;
  // In slices, as it comes from a network.
  const grpc::ByteBuffer message = buffer_of(bytes, 1 + bytes.size() % 97);
  const absl::StatusOr<Packet> packet = decode_packet(message, limits);
  if (!packet.ok()) return false;
  for (const PacketFrame& frame : packet->frames) {
    expect(frame.size_bytes() <= limits.max_frame_bytes, "a frame beyond the limit");
    expect(frame.tickets.empty() || frame.tickets.size() == frame.payloads.size(),
           "a ticket for each payload");
  }
  const std::string written = bytes_of(encode_packet(*packet));
  const absl::StatusOr<Packet> again = decode_packet(buffer_of(written), limits);
  expect(again.ok() && bytes_of(encode_packet(*again)) == written, "a packet reads the same");
  return true;
}

std::vector<std::string> unary_messages() {
  Frame frame;
  frame.envelope = "an envelope";
  frame.payloads = {absl::Cord("payload"), absl::Cord(std::string(200, 'x'))};
  return {bytes_of(encode_unary(frame))};
}

bool feed_unary(std::string_view bytes) {
  const absl::StatusOr<Frame> frame = decode_unary(buffer_of(bytes), {});
  if (!frame.ok()) return false;
  const std::string written = bytes_of(encode_unary(*frame));
  const absl::StatusOr<Frame> again = decode_unary(buffer_of(written), {});
  expect(again.ok() && bytes_of(encode_unary(*again)) == written, "a message reads the same");
  return true;
}

std::string text_of(const HeaderBytes& bytes) { return {bytes.data(), bytes.size()}; }

std::vector<std::string> headers() {
  LinkHeader goodbye;
  goodbye.is_goodbye = true;
  goodbye.beat_reply = 4;
  LinkHeader given_up;
  given_up.kind = FrameKind::kReply;
  given_up.number = 8;
  given_up.is_void = true;
  given_up.bytes = 1000;
  return {text_of(write_header(some_header())), text_of(write_header(goodbye)),
          text_of(write_header(given_up))};
}

bool feed_header(std::string_view bytes) {
  LinkHeader header;
  if (!read_header({bytes.data(), bytes.size()}, header).ok()) return false;
  const std::string written = text_of(write_header(header));
  LinkHeader again;
  expect(read_header(written, again).ok() && text_of(write_header(again)) == written,
         "a header reads the same");
  return true;
}

SelfDescription somebody() {
  static const std::shared_ptr<const WorkerKey> key = WorkerKey::draw();
  SelfDescription self;
  self.worker = {"somebody", 3, key->incarnation()};
  self.job = "job";
  self.address = "127.0.0.1:1234";
  self.key = key;
  return self;
}

std::vector<std::string> hellos() {
  proto::Hello hello;
  write_self(somebody(), hello);
  LinkHello link;
  link.connection = {somebody().worker.incarnation, 3};
  link.received[0] = {{1, 5}};
  write_link_hello(link, hello);
  return {seal_hello(hello, somebody())};
}

bool feed_hello(std::string_view bytes) {
  const absl::StatusOr<proto::Hello> hello = parse_hello(std::string(bytes), "there");
  if (!hello.ok()) return false;
  const bool welcome = check_hello(*hello, somebody(), {}).refusal == Refusal::kNone;
  const absl::StatusOr<LinkHello> link = read_link_hello(*hello, somebody().worker.incarnation);
  if (!link.ok()) return false;
  proto::Hello written;
  write_link_hello(*link, written);
  const absl::StatusOr<LinkHello> again = read_link_hello(written, somebody().worker.incarnation);
  expect(again.ok(), "a hello reads the same");
  return welcome;
}

std::vector<std::string> envelopes() {
  proto::Envelope call;
  call.mutable_call()->set_id(5);
  call.mutable_call()->set_method("app::add");
  call.mutable_call()->add_arguments()->set_integer(3);
  proto::Envelope reply;
  reply.mutable_reply()->set_id(5);
  reply.mutable_reply()->mutable_error()->set_message("failed");
  proto::Envelope cancel;
  cancel.mutable_cancel()->set_number(4);
  return {call.SerializeAsString(), reply.SerializeAsString(), cancel.SerializeAsString()};
}

bool feed_envelope(std::string_view bytes) {
  proto::Envelope envelope;
  return parse_envelope(std::string(bytes), envelope).ok();
}

}  // namespace

std::vector<Target> connection_targets() {
  return {{"packet", packets, feed_packet},
          {"unary", unary_messages, feed_unary},
          {"header", headers, feed_header},
          {"hello", hellos, feed_hello},
          {"envelope", envelopes, feed_envelope}};
}

}  // namespace sinew::fuzz
