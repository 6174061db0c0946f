#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/support/byte_buffer.h"
#include "sinew/rpc/transport/frame.h"
#include "sinew/rpc/transport/grpc/connection/packet.h"
#include "sinew/rpc/transport/grpc/connection/slice_writer.h"
#include "sinew/rpc/transport/transport.h"

namespace sinew::internal {

/// sinew.proto.Packet by hand, so that payloads are neither copied into nor out of a protobuf
/// object. The packet must be within the bounds of packet.h.
grpc::ByteBuffer encode_packet(const Packet& packet);

/// kInvalidArgument, with a text that says what is wrong, for bytes that are no packet or exceed a
/// limit. Sizes that a ticket declares are checked against `limits` and nothing is allocated for
/// them.
absl::StatusOr<Packet> decode_packet(const grpc::ByteBuffer& message,
                                     const Transport::Limits& limits);

/// sinew.proto.CallResponse and CallRequest, which look alike: the envelope first, then the
/// payloads. What is written has large payloads at multiples of 16 bytes.
grpc::ByteBuffer encode_unary(const Frame& frame);
absl::StatusOr<Frame> decode_unary(const grpc::ByteBuffer& message,
                                   const Transport::Limits& limits);

/// kInvalidArgument with the size for a hello that is larger than kMaxHelloBytes.
absl::Status check_hello_bytes(std::size_t bytes);

/// encode_packet() piece by piece: what `frame` adds to a packet, the frame itself, and all that is
/// in a packet in addition to the frames.
std::size_t encoded_size_bytes(const PacketFrame& frame);
void write_frame(SliceWriter& writer, const PacketFrame& frame);
void write_beside_frames(SliceWriter& writer, const Packet& packet);

}  // namespace sinew::internal
