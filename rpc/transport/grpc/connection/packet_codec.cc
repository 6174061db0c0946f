#include "sinew/rpc/transport/grpc/connection/packet_codec.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/internal/malformed.h"
#include "sinew/rpc/planes/pull_plane.h"
#include "sinew/rpc/transport/grpc/connection/slice_reader.h"

namespace sinew::internal {
namespace {

// Field numbers of protos/sinew/rpc.proto.
constexpr int kPacketFrames = 1;
constexpr int kPacketChunks = 2;
constexpr int kPacketGranted = 3;
constexpr int kPacketPlanes = 4;
constexpr int kPacketFetched = 5;
constexpr int kPacketRiders = 6;
constexpr int kFrameEnvelope = 1;
constexpr int kFrameTickets = 2;
constexpr int kFrameEnvelopeTicket = 3;
constexpr int kFrameHeader = 4;
constexpr int kFrameIsCall = 5;
constexpr int kFramePayloads = 15;
constexpr int kTicketSize = 1;
constexpr int kTicketTransfer = 2;
constexpr int kTicketPlane = 3;
constexpr int kTicketLocation = 4;
constexpr int kChunkTransfer = 1;
constexpr int kChunkSize = 2;
constexpr int kChunkOffset = 3;
constexpr int kChunkData = 15;
constexpr int kUnaryEnvelope = 1;
constexpr int kUnaryPadding = 14;
constexpr int kUnaryPayloads = 15;

constexpr std::size_t kMostLikelyFrames = 64;

struct Field {
  std::uint64_t number = 0;
  std::uint32_t wire_type = 0;
  /// Of a varint field.
  std::uint64_t value = 0;
  /// Of a length-delimited field; its bytes have not been read yet.
  std::size_t length = 0;

  bool is(int wanted, std::uint32_t type) const {
    return number == static_cast<std::uint64_t>(wanted) && wire_type == type;
  }
};

/// Reads up to the content of a length-delimited field, or past a field of any other type.
absl::StatusOr<Field> read_field(SliceReader& reader) {
  const std::optional<std::uint64_t> tag = reader.read_varint();
  if (!tag || *tag > 0xffffffff || *tag >> 3 == 0) return malformed("not a field tag");
  Field field;
  field.number = *tag >> 3;
  field.wire_type = static_cast<std::uint32_t>(*tag & 7);
  if (field.wire_type == kVarint) {
    const std::optional<std::uint64_t> value = reader.read_varint();
    if (!value) return malformed("a number does not end");
    field.value = *value;
  } else if (field.wire_type == kLengthDelimited) {
    const std::optional<std::size_t> length = reader.read_length();
    if (!length) return malformed("a field is longer than what holds it");
    field.length = *length;
  } else if (!reader.skip_value(field.wire_type)) {
    return malformed("a field of a kind that is not used here");
  }
  return field;
}

/// Skips the content of a field that this version does not know.
void skip_content(SliceReader& reader, const Field& field) { reader.skip(field.length); }

std::size_t ticket_size(const PayloadTicket& ticket) {
  return SliceWriter::varint_field_size(ticket.size_bytes) +
         SliceWriter::varint_field_size(ticket.transfer) +
         SliceWriter::varint_field_size(ticket.plane) +
         (ticket.located() ? SliceWriter::field_size(ticket.location.size()) : 0);
}

std::size_t frame_size(const PacketFrame& frame) {
  std::size_t size = frame.envelope.empty() ? 0 : SliceWriter::field_size(frame.envelope.size());
  if (!frame.envelope_ticket.inlined()) {
    size += SliceWriter::field_size(ticket_size(frame.envelope_ticket));
  }
  if (!frame.header.empty()) size += SliceWriter::field_size(frame.header.size());
  size += SliceWriter::varint_field_size(frame.is_call ? 1 : 0);
  for (const PayloadTicket& ticket : frame.tickets) {
    size += SliceWriter::field_size(ticket_size(ticket));
  }
  for (std::size_t i = 0; i < frame.payloads.size(); ++i) {
    if (!frame.tickets.empty() && !frame.tickets[i].inlined()) continue;
    size += SliceWriter::field_size(frame.payloads[i].size());
  }
  return size;
}

void write_ticket(SliceWriter& writer, int field, const PayloadTicket& ticket) {
  writer.open_field(field, ticket_size(ticket));
  writer.write_varint_field(kTicketSize, ticket.size_bytes);
  writer.write_varint_field(kTicketTransfer, ticket.transfer);
  if (!ticket.located()) return;
  writer.write_varint_field(kTicketPlane, ticket.plane);
  writer.open_field(kTicketLocation, ticket.location.size());
  writer.write_bytes(ticket.location);
}

void write_chunk(SliceWriter& writer, const Chunk& chunk) {
  writer.open_field(kPacketChunks, SliceWriter::varint_field_size(chunk.transfer) +
                                       SliceWriter::varint_field_size(chunk.size_bytes) +
                                       SliceWriter::varint_field_size(chunk.offset) +
                                       SliceWriter::field_size(chunk.data.size()));
  writer.write_varint_field(kChunkTransfer, chunk.transfer);
  writer.write_varint_field(kChunkSize, chunk.size_bytes);
  writer.write_varint_field(kChunkOffset, chunk.offset);
  writer.open_field(kChunkData, chunk.data.size());
  writer.write_cord(chunk.data);
}

absl::StatusOr<PayloadTicket> read_ticket(SliceReader& reader, std::size_t length) {
  const std::size_t outer = reader.open_field(length);
  PayloadTicket ticket;
  while (!reader.at_end()) {
    absl::StatusOr<Field> field = read_field(reader);
    if (!field.ok()) return field.status();
    if (field->is(kTicketSize, kVarint)) ticket.size_bytes = field->value;
    if (field->is(kTicketTransfer, kVarint)) ticket.transfer = field->value;
    if (field->is(kTicketPlane, kVarint)) {
      if (field->value > UINT32_MAX) return malformed("no such plane");
      ticket.plane = static_cast<std::uint32_t>(field->value);
    }
    if (field->is(kTicketLocation, kLengthDelimited)) {
      if (field->length > kMaxLocationBytes) return malformed("a location is too long");
      ticket.location = reader.read_string(field->length);
      continue;
    }
    skip_content(reader, *field);
  }
  reader.close_field(outer);
  if (ticket.located() && ticket.inlined()) return malformed("a location of no transfer");
  return ticket;
}

/// Puts each inline payload at the place that its ticket has, and checks all sizes.
absl::Status place_payloads(PacketFrame& frame, const Transport::Limits& limits) {
  std::uint64_t total = frame.envelope.size() + frame.header.size();
  const auto add = [&](std::uint64_t size_bytes) {
    // Checked one by one, so the sum cannot wrap around.
    if (size_bytes > limits.max_frame_bytes) return false;
    total += size_bytes;
    return total <= limits.max_frame_bytes;
  };
  const auto too_large = [&] {
    return absl::InvalidArgumentError(
        absl::StrCat("a frame is larger than the limit of ", limits.max_frame_bytes, " bytes"));
  };
  if (total > limits.max_frame_bytes) return too_large();
  if (!frame.envelope_ticket.inlined()) {
    if (!frame.envelope.empty()) return malformed("an envelope both here and elsewhere");
    if (!add(frame.envelope_ticket.size_bytes)) return too_large();
    if (frame.envelope_ticket.size_bytes > limits.max_envelope_bytes) {
      return absl::InvalidArgumentError(absl::StrCat("an envelope is larger than the limit of ",
                                                     limits.max_envelope_bytes, " bytes"));
    }
  }
  if (frame.tickets.empty()) {
    for (const absl::Cord& payload : frame.payloads) {
      if (!add(payload.size())) return too_large();
    }
    return absl::OkStatus();
  }
  std::vector<absl::Cord> placed(frame.tickets.size());
  std::size_t next = 0;
  for (std::size_t i = 0; i < frame.tickets.size(); ++i) {
    if (!add(frame.tickets[i].size_bytes)) return too_large();
    if (!frame.tickets[i].inlined()) continue;
    if (next == frame.payloads.size()) return malformed("a ticket without its payload");
    if (frame.payloads[next].size() != frame.tickets[i].size_bytes) {
      return malformed("a payload of another size than its ticket");
    }
    placed[i] = std::move(frame.payloads[next++]);
  }
  if (next != frame.payloads.size()) return malformed("a payload without its ticket");
  frame.payloads = std::move(placed);
  return absl::OkStatus();
}

absl::Status too_many_payloads(const Transport::Limits& limits) {
  return absl::InvalidArgumentError(
      absl::StrCat("a frame has more than ", limits.max_payloads, " payloads"));
}

absl::Status read_frame(SliceReader& reader, std::size_t length, const Transport::Limits& limits,
                        PacketFrame& frame) {
  const std::size_t outer = reader.open_field(length);
  while (!reader.at_end()) {
    absl::StatusOr<Field> field = read_field(reader);
    if (!field.ok()) return field.status();
    if (field->is(kFrameEnvelope, kLengthDelimited)) {
      frame.envelope = reader.read_string(field->length);
    } else if (field->is(kFrameHeader, kLengthDelimited)) {
      if (field->length > kMaxHeaderBytes) return malformed("a header is too long");
      frame.header = HeaderBytes::of_size(field->length);
      reader.read(frame.header.data(), field->length);
    } else if (field->is(kFrameIsCall, kVarint)) {
      frame.is_call = field->value != 0;
    } else if (field->is(kFramePayloads, kLengthDelimited)) {
      if (frame.payloads.size() == limits.max_payloads) return too_many_payloads(limits);
      frame.payloads.push_back(reader.read_cord(field->length));
    } else if (field->is(kFrameTickets, kLengthDelimited) ||
               field->is(kFrameEnvelopeTicket, kLengthDelimited)) {
      absl::StatusOr<PayloadTicket> ticket = read_ticket(reader, field->length);
      if (!ticket.ok()) return ticket.status();
      if (field->number == kFrameEnvelopeTicket) {
        frame.envelope_ticket = *ticket;
        continue;
      }
      if (frame.tickets.size() == limits.max_payloads) return too_many_payloads(limits);
      frame.tickets.push_back(*ticket);
    } else {
      skip_content(reader, *field);
    }
  }
  reader.close_field(outer);
  return place_payloads(frame, limits);
}

/// How many frames a packet holds if they are like its first one; bounded, since that may lie.
std::size_t likely_frames(const SliceReader& reader, std::size_t first_bytes) {
  return std::min(kMostLikelyFrames, 1 + reader.left() / SliceWriter::field_size(first_bytes));
}

absl::StatusOr<Chunk> read_chunk(SliceReader& reader, std::size_t length,
                                 const Transport::Limits& limits) {
  const std::size_t outer = reader.open_field(length);
  Chunk chunk;
  while (!reader.at_end()) {
    absl::StatusOr<Field> field = read_field(reader);
    if (!field.ok()) return field.status();
    if (field->is(kChunkData, kLengthDelimited)) {
      chunk.data = reader.read_cord(field->length);
      continue;
    }
    if (field->is(kChunkTransfer, kVarint)) chunk.transfer = field->value;
    if (field->is(kChunkSize, kVarint)) chunk.size_bytes = field->value;
    if (field->is(kChunkOffset, kVarint)) chunk.offset = field->value;
    skip_content(reader, *field);
  }
  reader.close_field(outer);
  if (chunk.transfer == 0) return malformed("a chunk of no transfer");
  if (chunk.data.empty()) return malformed("a chunk without data");
  if (chunk.size_bytes > limits.max_frame_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("a transfer of ", chunk.size_bytes,
                                                   " bytes is larger than the limit of ",
                                                   limits.max_frame_bytes, " bytes"));
  }
  if (chunk.offset > chunk.size_bytes || chunk.data.size() > chunk.size_bytes - chunk.offset) {
    return malformed("a chunk beyond the end of its transfer");
  }
  return chunk;
}

void write_transfers(SliceWriter& writer, int field, const std::vector<std::uint64_t>& transfers) {
  if (transfers.empty()) return;
  std::size_t size = 0;
  for (const std::uint64_t transfer : transfers) size += SliceWriter::varint_size(transfer);
  writer.open_field(field, size);
  for (const std::uint64_t transfer : transfers) writer.write_varint(transfer);
}

absl::Status read_transfers(SliceReader& reader, std::size_t length,
                            std::vector<std::uint64_t>& transfers) {
  const std::size_t outer = reader.open_field(length);
  while (!reader.at_end()) {
    const std::optional<std::uint64_t> transfer = reader.read_varint();
    if (!transfer) return malformed("a number does not end");
    if (transfers.size() == kMaxGrantsPerPacket) return malformed("too many transfers");
    transfers.push_back(*transfer);
  }
  reader.close_field(outer);
  return absl::OkStatus();
}

}  // namespace

std::size_t PacketFrame::size_bytes() const {
  std::size_t total = envelope.size() + header.size();
  for (const absl::Cord& payload : payloads) total += payload.size();
  if (!envelope_ticket.inlined()) total += envelope_ticket.size_bytes;
  for (const PayloadTicket& ticket : tickets) {
    if (!ticket.inlined()) total += ticket.size_bytes;
  }
  return total;
}

absl::Status check_hello_bytes(std::size_t bytes) {
  if (bytes <= kMaxHelloBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a hello of ", bytes, " bytes is larger than the limit of ", kMaxHelloBytes));
}

std::size_t encoded_size_bytes(const PacketFrame& frame) {
  return SliceWriter::field_size(frame_size(frame));
}

void write_frame(SliceWriter& writer, const PacketFrame& frame) {
  writer.open_field(kPacketFrames, frame_size(frame));
  if (!frame.envelope.empty()) {
    writer.open_field(kFrameEnvelope, frame.envelope.size());
    writer.write_bytes(frame.envelope);
  }
  if (!frame.envelope_ticket.inlined()) {
    write_ticket(writer, kFrameEnvelopeTicket, frame.envelope_ticket);
  }
  if (!frame.header.empty()) {
    writer.open_field(kFrameHeader, frame.header.size());
    writer.write_bytes(frame.header);
  }
  writer.write_varint_field(kFrameIsCall, frame.is_call ? 1 : 0);
  for (const PayloadTicket& ticket : frame.tickets) write_ticket(writer, kFrameTickets, ticket);
  for (std::size_t i = 0; i < frame.payloads.size(); ++i) {
    if (!frame.tickets.empty() && !frame.tickets[i].inlined()) continue;
    writer.open_field(kFramePayloads, frame.payloads[i].size());
    writer.write_cord(frame.payloads[i]);
  }
}

void write_beside_frames(SliceWriter& writer, const Packet& packet) {
  writer.write_varint_field(kPacketRiders, packet.riders);
  write_transfers(writer, kPacketGranted, packet.granted);
  for (const std::string& message : packet.planes) {
    writer.open_field(kPacketPlanes, message.size());
    writer.write_bytes(message);
  }
  write_transfers(writer, kPacketFetched, packet.fetched);
  for (const Chunk& chunk : packet.chunks) write_chunk(writer, chunk);
}

grpc::ByteBuffer encode_packet(const Packet& packet) {
  SliceWriter writer;
  for (const PacketFrame& frame : packet.frames) write_frame(writer, frame);
  write_beside_frames(writer, packet);
  return writer.finish();
}

absl::StatusOr<Packet> decode_packet(const grpc::ByteBuffer& message,
                                     const Transport::Limits& limits) {
  if (message.Length() > kMaxPacketBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a packet of ", message.Length(),
                                                   " bytes is larger than the limit of ",
                                                   kMaxPacketBytes, " bytes"));
  }
  SliceReader reader(message);
  Packet packet;
  while (!reader.at_end()) {
    absl::StatusOr<Field> field = read_field(reader);
    if (!field.ok()) return field.status();
    if (field->is(kPacketFrames, kLengthDelimited)) {
      if (packet.frames.size() == kMaxFramesPerPacket) return malformed("too many frames");
      if (packet.frames.empty()) packet.frames.reserve(likely_frames(reader, field->length));
      absl::Status status = read_frame(reader, field->length, limits, packet.frames.emplace_back());
      if (!status.ok()) return status;
    } else if (field->is(kPacketChunks, kLengthDelimited)) {
      if (packet.chunks.size() == kMaxFramesPerPacket) return malformed("too many chunks");
      absl::StatusOr<Chunk> chunk = read_chunk(reader, field->length, limits);
      if (!chunk.ok()) return chunk.status();
      packet.chunks.push_back(*std::move(chunk));
    } else if (field->is(kPacketGranted, kLengthDelimited) ||
               field->is(kPacketFetched, kLengthDelimited)) {
      absl::Status status = read_transfers(
          reader, field->length, field->number == kPacketGranted ? packet.granted : packet.fetched);
      if (!status.ok()) return status;
    } else if (field->is(kPacketRiders, kVarint)) {
      packet.riders = field->value;
    } else if (field->is(kPacketPlanes, kLengthDelimited)) {
      if (packet.planes.size() == kMaxPlaneMessages || field->length > kMaxPlaneMessageBytes) {
        return malformed("too much about planes");
      }
      packet.planes.push_back(reader.read_string(field->length));
    } else {
      skip_content(reader, *field);
    }
  }
  return packet;
}

namespace {

// Below this a copy at the receiver costs nothing.
constexpr std::size_t kMinAlignedBytes = 1024;
// What numbers of every type are aligned to, and what allocators give.
constexpr std::size_t kAlignment = 16;

// Such that the content of a payload of that size, written next, begins at a multiple.
void write_padding(SliceWriter& writer, std::size_t payload_bytes) {
  const std::size_t begin =
      writer.size_bytes() + SliceWriter::field_size(payload_bytes) - payload_bytes;
  std::size_t padding = (kAlignment - begin % kAlignment) % kAlignment;
  if (padding == 0) return;
  // Its own head takes two bytes.
  if (padding < 2) padding += kAlignment;
  const std::string content(padding - 2, '\0');
  writer.open_field(kUnaryPadding, content.size());
  writer.write_bytes(content);
}

}  // namespace

grpc::ByteBuffer encode_unary(const Frame& frame) {
  SliceWriter writer;
  writer.open_field(kUnaryEnvelope, frame.envelope.size());
  writer.write_bytes(frame.envelope);
  for (const absl::Cord& payload : frame.payloads) {
    if (payload.size() >= kMinAlignedBytes) write_padding(writer, payload.size());
    writer.open_field(kUnaryPayloads, payload.size());
    writer.write_cord(payload);
  }
  return writer.finish();
}

absl::StatusOr<Frame> decode_unary(const grpc::ByteBuffer& message,
                                   const Transport::Limits& limits) {
  SliceReader reader(message);
  Frame frame;
  bool has_envelope = false;
  while (!reader.at_end()) {
    absl::StatusOr<Field> field = read_field(reader);
    if (!field.ok()) return field.status();
    if (field->is(kUnaryEnvelope, kLengthDelimited)) {
      // Protobuf would merge the two, which an opaque envelope does not allow; no encoder writes it
      // twice.
      if (has_envelope) return malformed("two calls in one request");
      has_envelope = true;
      frame.envelope = reader.read_string(field->length);
    } else if (field->is(kUnaryPayloads, kLengthDelimited)) {
      if (frame.payloads.size() == limits.max_payloads) return too_many_payloads(limits);
      frame.payloads.push_back(reader.read_cord(field->length));
    } else {
      skip_content(reader, *field);
    }
  }
  if (frame.size_bytes() > limits.max_frame_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a request is larger than the limit of ", limits.max_frame_bytes, " bytes"));
  }
  return frame;
}

}  // namespace sinew::internal
