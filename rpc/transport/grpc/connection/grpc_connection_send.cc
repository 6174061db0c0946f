// How frames and their payloads leave; the rest is in grpc_connection.cc.

#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/transport/grpc/connection/grpc_connection.h"

namespace sinew::internal {
namespace {

// What the control and bulk lanes may keep of the packet bound for envelope, tickets and inline
// payloads of one frame.
constexpr std::size_t kMaxInlinedBytes = std::size_t{256} << 10;

// Frames up to this size may wait for others, up to so many: the receiver is to have something to
// do while the sender prepares the rest.
constexpr std::size_t kMaxLingeringBytes = std::size_t{4} << 10;
constexpr std::size_t kMaxLingeringFrames = 16;

// For less a system call does not pay. Also, what a cord holds within itself moves with it.
constexpr std::size_t kMinLocatedBytes = std::size_t{4} << 10;
// From here on one pays where the payload could ride in the frame too (measured).
constexpr std::size_t kWorthLocatingBytes = std::size_t{16} << 10;
// Texts of locations of one frame, so that all its tickets fit in a packet.
constexpr std::size_t kMaxLocationsBytes = std::size_t{2} << 20;

// More than the window of control frames lets anybody queue. What has no window, such as answers to
// heartbeats, would otherwise pile up for a peer that asks and does not read.
constexpr std::size_t kMaxControlFramesQueued = std::size_t{1} << 17;

}  // namespace

absl::Status GrpcConnection::down_status() const {
  MutexLock lock(mutex_);
  return absl::UnavailableError(absl::StrCat("the connection is down: ", down_reason_.message()));
}

PacketFrame GrpcConnection::split(Frame frame, Beside& beside) {
  PacketFrame packet_frame;
  packet_frame.envelope = std::move(frame.envelope);
  packet_frame.payloads = std::move(frame.payloads);
  packet_frame.header = std::move(frame.header);
  if (packet_frame.envelope.size() > kMaxInlinedBytes) {
    packet_frame.envelope_ticket.size_bytes = packet_frame.envelope.size();
    packet_frame.envelope_ticket.transfer = bulk_sender_.reserve(1);
    beside.transfers.emplace_back(packet_frame.envelope_ticket.transfer,
                                  std::move(packet_frame.envelope));
    packet_frame.envelope.clear();
  }
  std::size_t inlined_bytes = packet_frame.envelope.size();
  std::size_t location_bytes = 0;
  for (std::size_t i = 0; i < packet_frame.payloads.size(); ++i) {
    absl::Cord& payload = packet_frame.payloads[i];
    const std::size_t size_bytes = payload.size();
    const bool fits = size_bytes <= core_->options().tuning.bulk_threshold_bytes &&
                      inlined_bytes + size_bytes <= kMaxInlinedBytes;
    PlaneSet::Location location;
    if (size_bytes >= (fits ? kWorthLocatingBytes : kMinLocatedBytes) &&
        location_bytes < kMaxLocationsBytes && payload.TryFlat().has_value()) {
      location = planes_.locate(payload);
      location_bytes += location.text.size();
    }
    if ((fits && location.plane == 0) || size_bytes == 0) {
      inlined_bytes += size_bytes;
      continue;
    }
    if (packet_frame.tickets.empty()) {
      for (const absl::Cord& each : packet_frame.payloads) {
        packet_frame.tickets.emplace_back().size_bytes = each.size();
      }
    }
    send_beside(std::exchange(payload, absl::Cord()), std::move(location), packet_frame.tickets[i],
                beside);
  }
  return packet_frame;
}

// Leaves the payload to be fetched by the other end, if that can, or to the bulk lane.
void GrpcConnection::send_beside(absl::Cord payload, PlaneSet::Location location,
                                 PayloadTicket& ticket, Beside& beside) {
  ticket.transfer = bulk_sender_.reserve(1);
  const bool located = location.plane != 0;
  // False: down meanwhile, so it does not matter any more which way it takes.
  if (located && located_.add(ticket.transfer, {payload, location})) {
    ticket.plane = location.plane;
    ticket.location = std::move(location.text);
    beside.located.push_back(ticket.transfer);
    return;
  }
  beside.transfers.emplace_back(ticket.transfer, std::move(payload));
}

void GrpcConnection::submit(BulkSender::Transfers transfers) {
  bulk_sender_.submit(std::move(transfers));
  want_bulk();
}

absl::Status GrpcConnection::grant(const std::vector<std::uint64_t>& transfers) {
  absl::Status status = bulk_sender_.grant(transfers);
  want_bulk();
  return status;
}

std::uint64_t GrpcConnection::kept_bytes() const {
  std::uint64_t bytes = bulk_sender_.kept_bytes() + located_.kept_bytes();
  for (const auto& writer : writers_) bytes += writer->kept_bytes();
  return bytes;
}

// Queued under the lock: the thread that ends the rides counts all that have left.
std::optional<std::size_t> GrpcConnection::ride(PacketFrame& frame, std::size_t size_bytes) {
  if (!calls_ride_.load(std::memory_order_acquire) || !may_ride(frame, size_bytes)) return 0;
  MutexLock lock(rides_mutex_);
  if (!calls_ride_.load(std::memory_order_relaxed)) return 0;
  frame.is_call = true;
  const std::optional<std::size_t> queued = writer(Lane::kControl).queue(frame);
  // Not before: the other end would wait for one that memory was too short for.
  if (queued.has_value()) ++riders_sent_;
  return queued;
}

absl::Status GrpcConnection::send(Lane lane, Frame frame) {
  if (absl::Status status = check_limits(frame, core_->limits()); !status.ok()) return status;
  const bool sender_has_time = frame.may_linger;
  const std::size_t size_bytes = frame.size_bytes();
  Beside beside;
  PacketFrame packet_frame = split(std::move(frame), beside);
  std::optional<std::size_t> queued = 0;
  if (lane == Lane::kCalls) queued = ride(packet_frame, size_bytes);
  const bool rides = queued != std::size_t{0};
  LaneWriter& way = writer(rides ? Lane::kControl : lane);
  if (!rides) queued = way.queue(packet_frame);
  if (!queued.has_value()) {
    // The frame that tells of them does not leave.
    for (const std::uint64_t transfer : beside.located) located_.take(transfer);
    return down_status();
  }
  if (lane == Lane::kControl && *queued > kMaxControlFramesQueued) {
    take_down(absl::ResourceExhaustedError(
        absl::StrCat("the other end does not read: ", *queued, " control messages wait for it")));
    return down_status();
  }
  const bool may_linger = lane == Lane::kCalls && !rides && size_bytes <= kMaxLingeringBytes &&
                          *queued < kMaxLingeringFrames;
  if (!may_linger || !linger(sender_has_time)) way.flush();
  if (!beside.transfers.empty()) submit(std::move(beside.transfers));
  // Should it not be fetched, the other end asks for it there.
  if (!beside.located.empty()) want_bulk();
  return absl::OkStatus();
}

// Whether a thread will flush what was queued on the calls lane last: the executor's thread, after
// the short tasks that follow; or, when the sender says that there is time, the next thread that
// waits.
bool GrpcConnection::linger(bool sender_has_time) {
  const std::shared_ptr<Flushable> calls(shared_from_this(), &writer(Lane::kCalls));
  if (writer(Lane::kCalls).leave_to_executor(calls)) return true;
  if (!sender_has_time) return false;
  flush_before_wait(calls);
  arm_linger_timer();
  return true;
}

}  // namespace sinew::internal
