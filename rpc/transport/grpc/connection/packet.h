#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/cord.h"
#include "sinew/rpc/transport/header_bytes.h"

namespace sinew::internal {

// Bounds that both ends of every connection keep, whatever their settings are: they are part of the
// wire format.

/// No message of an Exchange stream is larger.
constexpr std::size_t kMaxPacketBytes = std::size_t{8} << 20;
/// No packet carries more frames; keeps what a packet of empty frames unpacks to within bounds.
constexpr std::size_t kMaxFramesPerPacket = 16384;
/// No packet grants more transfers, or tells of more that were fetched.
constexpr std::size_t kMaxGrantsPerPacket = 65536;
/// No connection has more of either queued: its other end does not read them.
constexpr std::size_t kMaxGrantsQueued = std::size_t{1} << 20;
/// No packet has more messages about planes, nor larger ones.
constexpr std::size_t kMaxPlaneMessages = 64;
constexpr std::size_t kMaxPlaneMessageBytes = std::size_t{16} << 10;
/// Largest hello.
constexpr std::size_t kMaxHelloBytes = std::size_t{256} << 10;
/// Largest token, which is visible ASCII: it travels as metadata.
constexpr std::size_t kMaxTokenBytes = 256;
/// Bytes of transfers that may be under way before the receiver has read the tickets that announce
/// them.
constexpr std::size_t kUnannouncedBytes = std::size_t{16} << 20;
/// Once a stranger has sent so much of them it is not read from before it has announced them.
constexpr std::size_t kUnannouncedOfStrangers = std::size_t{64} << 10;
/// What a transfer costs of kUnannouncedBytes in addition to its bytes, so that empty ones are
/// bounded too.
constexpr std::size_t kTransferOverheadBytes = 256;

/// Where a part of a frame is found.
struct PayloadTicket {
  std::uint64_t size_bytes = 0;
  /// 0: in the frame itself. Otherwise the number of a transfer.
  std::uint64_t transfer = 0;
  /// 0: on the bulk lane. Otherwise the receiver fetches it, by this plane.
  std::uint32_t plane = 0;
  std::string location{};

  bool inlined() const { return transfer == 0; }
  bool located() const { return plane != 0; }
};

/// A frame as it stands in a packet. Parts that travel as transfers are empty here.
struct PacketFrame {
  std::string envelope;
  /// Used only when the envelope is too large to ride in a packet.
  PayloadTicket envelope_ticket;
  std::vector<absl::Cord> payloads;
  HeaderBytes header;
  /// On the control lane's stream, as long as the calls lane has none of its own: of that lane.
  bool is_call = false;
  /// Empty when every payload is here, otherwise one for each.
  std::vector<PayloadTicket> tickets;

  /// All of it, wherever it travels.
  std::size_t size_bytes() const;
  bool complete() const { return tickets.empty() && envelope_ticket.inlined(); }
};

/// One piece of a transfer.
struct Chunk {
  std::uint64_t transfer = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t offset = 0;
  absl::Cord data;
};

/// One message of an Exchange stream: frames on those of the control and calls lanes, chunks and
/// grants on that of the bulk lane.
struct Packet {
  std::vector<PacketFrame> frames;
  std::vector<Chunk> chunks;
  /// Transfers whose tickets have been read: their sender may send all of them.
  std::vector<std::uint64_t> granted;
  /// On the control lane: serialised proto::PlaneMessage.
  std::vector<std::string> planes;
  /// On the calls lane: located transfers that have been fetched.
  std::vector<std::uint64_t> fetched;
  /// On the calls lane: so many frames of it came before, by the control lane's stream.
  std::uint64_t riders = 0;
};

}  // namespace sinew::internal
