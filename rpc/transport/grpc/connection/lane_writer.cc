#include "sinew/rpc/transport/grpc/connection/lane_writer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "sinew/rpc/base/threads/executor.h"
#include "sinew/rpc/base/threads/wake_up_price.h"
#include "sinew/rpc/transport/grpc/connection/packet_codec.h"

namespace sinew::internal {
namespace {

// Memory for so much is kept for the next packet.
constexpr std::size_t kKeptBytes = std::size_t{16} << 10;

}  // namespace

// The batch is taken under the lock, and handed to gRPC outside of it: `writing_` keeps others from
// the stream, and senders do not wait for a system call.

std::optional<std::size_t> LaneWriter::queue(const PacketFrame& frame) {
  const std::size_t encoded_bytes = encoded_size_bytes(frame);
  // A larger one is copied before the lock is taken; and where memory ends no half of one is left.
  const bool small = encoded_bytes < SliceWriter::kAliasBytes;
  SliceWriter aside;
  if (!small) {
    write_frame(aside, frame);
    aside.flush();
  }
  MutexLock lock(mutex_);
  if (closed_) return std::nullopt;
  if (loads_.empty() || loads_.back().frames.size_bytes() >= packet_bytes_ ||
      loads_.back().count == kMaxFramesPerPacket) {
    std::swap(loads_.emplace_back().frames, spare_);
  }
  Load& load = loads_.back();
  if (small) {
    load.frames.reserve(encoded_bytes);
    write_frame(load.frames, frame);
  } else {
    load.frames.append(std::move(aside));
  }
  ++load.count;
  kept_bytes_.fetch_add(encoded_bytes, std::memory_order_relaxed);
  return ++queued_frames_;
}

void LaneWriter::flush() {
  // First: a thread that finds it set below counts on a flush that is yet to come.
  flush_is_due_.store(false, std::memory_order_relaxed);
  Batch batch;
  {
    MutexLock lock(mutex_);
    batch = take_batch_locked();
  }
  write(std::move(batch));
}

// The calls of a thread that goes to sleep share a packet with the replies of the tasks that run.
void LaneWriter::flush_unless_due() {
  if (!flush_is_due_.load(std::memory_order_relaxed)) flush();
}

bool LaneWriter::leave_to_executor(const std::shared_ptr<Flushable>& self) {
  if (Executor::current() == nullptr) return false;
  // In this order: the flush may come before flush_later() returns.
  const bool was_due = flush_is_due_.exchange(true, std::memory_order_relaxed);
  if (Executor::flush_later(self)) return true;
  if (!was_due) flush_is_due_.store(false, std::memory_order_relaxed);
  return false;
}

void LaneWriter::send_planes(std::vector<std::string> messages) {
  {
    MutexLock lock(mutex_);
    if (closed_) return;
    std::move(messages.begin(), messages.end(), std::back_inserter(planes_));
  }
  flush();
}

bool LaneWriter::add_fetched(std::uint64_t transfer) {
  MutexLock lock(mutex_);
  if (closed_) return true;
  if (fetched_.size() >= kMaxGrantsQueued) return false;
  fetched_.push_back(transfer);
  return true;
}

void LaneWriter::flush_all() {
  {
    MutexLock lock(mutex_);
    fetched_is_due_ = !fetched_.empty();
  }
  flush();
}

void LaneWriter::open(std::shared_ptr<LaneStream> stream, WriterStart start, std::uint64_t riders) {
  Batch batch;
  {
    MutexLock lock(mutex_);
    if (closed_) return;
    stream_ = std::move(stream);
    riders_ = riders;
    writing_ = start == WriterStart::kBusy;
    batch = take_batch_locked();
  }
  write(std::move(batch));
}

void LaneWriter::cork() {
  MutexLock lock(mutex_);
  corked_ = true;
}

void LaneWriter::uncork(Uncork how) {
  Batch batch;
  {
    MutexLock lock(mutex_);
    corked_ = false;
    packet_is_due_ = packet_is_due_ || how == Uncork::kPacket;
    batch = take_batch_locked();
  }
  write(std::move(batch));
}

void LaneWriter::on_written() { write(next_batch()); }

LaneWriter::Batch LaneWriter::next_batch() {
  MutexLock lock(mutex_);
  if (closed_) return Batch();
  writing_ = false;
  return take_batch_locked();
}

bool LaneWriter::has_work_locked() const {
  return !loads_.empty() || !planes_.empty() || fetched_is_due_ || packet_is_due_;
}

LaneWriter::Batch LaneWriter::take_batch_locked() {
  Batch batch;
  if (writing_ || corked_ || !has_work_locked()) return batch;
  batch.stream = stream_;
  writing_ = true;
  // No thread writes, so no thread uses it.
  if (spare_.capacity() == SliceWriter().capacity()) std::swap(spare_, written_);
  packet_is_due_ = false;
  batch.packet.riders = std::exchange(riders_, 0);
  batch.packet.planes.swap(planes_);
  const std::size_t fetched = std::min(fetched_.size(), kMaxGrantsPerPacket);
  batch.packet.fetched.assign(fetched_.begin(), fetched_.begin() + static_cast<long>(fetched));
  fetched_.erase(fetched_.begin(), fetched_.begin() + static_cast<long>(fetched));
  fetched_is_due_ = fetched_is_due_ && !fetched_.empty();
  if (!loads_.empty()) {
    Load& load = loads_.front();
    queued_frames_ -= load.count;
    kept_bytes_.fetch_sub(load.frames.size_bytes(), std::memory_order_relaxed);
    batch.frames = std::move(load.frames);
    loads_.pop_front();
  }
  return batch;
}

// A single frame is written and done with. Where writes follow each other within what it takes a
// polling thread to report the end of one, about as long as to wake one, the end of one
// is left to the polling thread: what becomes ready until it is reported shares the next packet.
WriteMode LaneWriter::next_mode(int written) {
  const auto now = std::chrono::steady_clock::now();
  const bool crowded = now - std::exchange(last_write_, now) < WakeUpPrice::of_host().now();
  return crowded || written >= kMaxWritesInARow ? WriteMode::kEndsLater : WriteMode::kMayEndNow;
}

grpc::ByteBuffer LaneWriter::encode(Batch& batch) {
  write_beside_frames(batch.frames, batch.packet);
  grpc::ByteBuffer message = batch.frames.finish();
  const std::size_t memory = batch.frames.capacity();
  if (memory > written_.capacity() && memory <= kKeptBytes) written_ = std::move(batch.frames);
  return message;
}

void LaneWriter::write(Batch batch) {
  for (int written = 1; batch.stream != nullptr; ++written) {
    const WriteMode mode = next_mode(written);
    if (batch.stream->start_write(encode(batch), mode) == WriteEnd::kLater) return;
    batch = next_batch();
  }
}

void LaneWriter::close() {
  std::deque<Load> dropped;
  std::shared_ptr<LaneStream> stream;
  MutexLock lock(mutex_);
  closed_ = true;
  dropped.swap(loads_);
  stream.swap(stream_);
}

}  // namespace sinew::internal
