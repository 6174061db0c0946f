#include "sinew/rpc/transport/grpc/bulk/bulk_sender.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/transport/grpc/connection/packet_codec.h"

namespace sinew::internal {
namespace {

// A rest of the allowance that is smaller is not worth a chunk of its own.
constexpr std::size_t kSmallestPieceBytes = std::size_t{64} << 10;
// A frame leaves in two packets at least if they get as large as this: so its receiver copies the
// one while the other is on its way (measured).
constexpr std::size_t kMinHalfBytes = std::size_t{256} << 10;

}  // namespace

std::uint64_t BulkSender::reserve(std::size_t count) {
  MutexLock lock(mutex_);
  const std::uint64_t first = next_transfer_;
  next_transfer_ += count;
  // Known from now on: the ticket may be read and granted before the transfer is submitted here.
  for (std::uint64_t transfer = first; transfer < next_transfer_; ++transfer) ledger_[transfer];
  return first;
}

void BulkSender::submit(Transfers transfers) {
  {
    MutexLock lock(mutex_);
    if (closed_) return;
    Outgoing frame;
    frame.transfers.assign(std::make_move_iterator(transfers.begin()),
                           std::make_move_iterator(transfers.end()));
    std::size_t frame_bytes = 0;
    for (const auto& transfer : frame.transfers) frame_bytes += transfer.second.size();
    frame.packet_bytes = std::min(chunk_bytes_, std::max(kMinHalfBytes, frame_bytes / 2 + 1));
    kept_bytes_.fetch_add(frame_bytes, std::memory_order_relaxed);
    active_.push_back(std::move(frame));
  }
  start_write_if_idle();
}

void BulkSender::forget(std::uint64_t transfer) {
  MutexLock lock(mutex_);
  ledger_.erase(transfer);
}

absl::Status BulkSender::on_granted(const std::vector<std::uint64_t>& transfers) {
  {
    MutexLock lock(mutex_);
    if (closed_) return absl::OkStatus();
    for (const std::uint64_t transfer : transfers) {
      const auto entry = ledger_.find(transfer);
      if (entry == ledger_.end() || entry->second.granted) {
        return absl::InvalidArgumentError(
            absl::StrCat("a grant for transfer ", transfer, ", which is not waiting for one"));
      }
      unannounced_bytes_ -= std::exchange(entry->second.charged_bytes, 0);
      entry->second.granted = true;
      if (entry->second.sent) ledger_.erase(entry);
    }
    std::move(blocked_.begin(), blocked_.end(), std::back_inserter(active_));
    blocked_.clear();
  }
  start_write_if_idle();
  return absl::OkStatus();
}

absl::Status BulkSender::grant(const std::vector<std::uint64_t>& transfers) {
  {
    MutexLock lock(mutex_);
    if (closed_) return absl::OkStatus();
    if (grants_.size() >= kMaxGrantsQueued) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the other end does not read what it is granted: ", grants_.size(),
                       " grants wait for it"));
    }
    grants_.insert(grants_.end(), transfers.begin(), transfers.end());
  }
  start_write_if_idle();
  return absl::OkStatus();
}

void BulkSender::open(std::shared_ptr<LaneStream> stream) {
  {
    MutexLock lock(mutex_);
    if (closed_) return;
    stream_ = std::move(stream);
    writing_ = false;
  }
  start_write_if_idle();
}

void BulkSender::on_written() {
  if (end_write()) start_write_if_idle();
}

bool BulkSender::end_write() {
  MutexLock lock(mutex_);
  if (closed_) return false;
  writing_ = false;
  return true;
}

void BulkSender::start_write_if_idle() {
  for (int written = 1;; ++written) {
    Packet packet;
    std::shared_ptr<LaneStream> stream;
    {
      MutexLock lock(mutex_);
      if (writing_ || closed_ || !take_packet_locked(packet)) return;
      writing_ = true;
      stream = stream_;
    }
    const WriteMode mode =
        written < kMaxWritesInARow ? WriteMode::kMayEndNow : WriteMode::kEndsLater;
    if (stream->start_write(encode_packet(packet), mode) == WriteEnd::kLater || !end_write())
      return;
  }
}

bool BulkSender::take_packet_locked(Packet& packet) {
  if (grants_.size() <= kMaxGrantsPerPacket) {
    packet.granted.swap(grants_);
  } else {
    const auto end = grants_.begin() + kMaxGrantsPerPacket;
    packet.granted.assign(grants_.begin(), end);
    grants_.erase(grants_.begin(), end);
  }
  take_chunks_locked(packet);
  return !packet.granted.empty() || !packet.chunks.empty();
}

void BulkSender::take_chunks_locked(Packet& packet) {
  while (!active_.empty()) {
    Outgoing frame = std::move(active_.front());
    active_.pop_front();
    std::size_t room = frame.packet_bytes;
    while (!frame.transfers.empty() && room > 0 && packet.chunks.size() < kMaxFramesPerPacket) {
      const std::size_t bytes = std::min(room, allowed_locked(frame));
      if (bytes == 0) break;
      take_chunk_locked(frame, bytes, packet);
      room -= bytes;
    }
    if (frame.transfers.empty()) return;
    const bool blocked = allowed_locked(frame) == 0;
    (blocked ? blocked_ : active_).push_back(std::move(frame));
    if (!packet.chunks.empty()) return;
  }
}

std::size_t BulkSender::allowed_locked(const Outgoing& frame) const {
  const std::size_t left = frame.transfers.front().second.size();
  const Ledger& ledger = ledger_.at(frame.transfers.front().first);
  if (ledger.granted) return left;
  const std::size_t overhead = ledger.charged_bytes == 0 ? kTransferOverheadBytes : 0;
  if (unannounced_bytes_ + overhead >= kUnannouncedBytes) return 0;
  const std::size_t room = kUnannouncedBytes - unannounced_bytes_ - overhead;
  if (left <= room) return left;
  return room >= kSmallestPieceBytes ? room : 0;
}

void BulkSender::take_chunk_locked(Outgoing& frame, std::size_t bytes, Packet& packet) {
  auto& [transfer, rest] = frame.transfers.front();
  const auto entry = ledger_.find(transfer);
  Ledger& ledger = entry->second;
  Chunk chunk;
  chunk.transfer = transfer;
  chunk.offset = frame.offset;
  chunk.size_bytes = frame.offset + rest.size();
  chunk.data = rest.Subcord(0, bytes);
  rest.RemovePrefix(bytes);
  kept_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  frame.offset += bytes;
  packet.chunks.push_back(std::move(chunk));
  if (!ledger.granted) {
    const std::size_t charge = bytes + (ledger.charged_bytes == 0 ? kTransferOverheadBytes : 0);
    ledger.charged_bytes += charge;
    unannounced_bytes_ += charge;
  }
  if (!rest.empty()) return;
  ledger.sent = true;
  if (ledger.granted) ledger_.erase(entry);
  frame.transfers.pop_front();
  frame.offset = 0;
}

void BulkSender::close() {
  std::deque<Outgoing> dropped;
  std::deque<Outgoing> also_dropped;
  std::shared_ptr<LaneStream> stream;
  MutexLock lock(mutex_);
  closed_ = true;
  dropped.swap(active_);
  also_dropped.swap(blocked_);
  stream.swap(stream_);
}

}  // namespace sinew::internal
