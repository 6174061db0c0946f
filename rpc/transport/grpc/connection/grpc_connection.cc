#include "sinew/rpc/transport/grpc/connection/grpc_connection.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/internal/malformed.h"
#include "sinew/rpc/base/receive_pool.h"
#include "sinew/rpc/base/threads/executor.h"
#include "sinew/rpc/transport/grpc/connection/packet_codec.h"

namespace sinew::internal {
namespace {

// How long a frame may wait for others.
constexpr auto kLongestLinger = std::chrono::milliseconds(1);
// What the thread that reads a lane fetches by itself, while no other thread polls. For more it
// pays to wake another thread.
constexpr std::size_t kMaxFetchedInPlaceBytes = std::size_t{2} << 20;
// From here on the sender hears at once that it need not keep a payload any more.
constexpr std::size_t kToldAtOnceBytes = std::size_t{16} << 20;

bool belongs_to(StreamKind stream, const Packet& packet) {
  const bool bulk = stream == StreamKind::kBulk;
  const bool has_riders = std::any_of(packet.frames.begin(), packet.frames.end(),
                                      [](const PacketFrame& frame) { return frame.is_call; });
  return (bulk ? packet.frames.empty() : packet.chunks.empty() && packet.granted.empty()) &&
         (stream == StreamKind::kControl || (packet.planes.empty() && !has_riders)) &&
         (stream == StreamKind::kCalls || (packet.fetched.empty() && packet.riders == 0));
}

std::size_t index_of(Lane lane) { return static_cast<std::size_t>(lane); }
std::size_t index_of(StreamKind stream) { return static_cast<std::size_t>(stream); }

}  // namespace

GrpcConnection::GrpcConnection(std::shared_ptr<TransportCore> core)
    : core_(std::move(core)),
      bulk_sender_(core_->options().tuning.chunk_bytes),
      planes_(core_->planes()),
      located_(planes_) {
  for (const Lane lane : {Lane::kControl, Lane::kCalls}) {
    writers_[index_of(lane)] = std::make_unique<LaneWriter>(core_->options().tuning.packet_bytes);
    deliveries_[index_of(lane)] = std::make_unique<FrameDelivery>(
        [this, lane](std::vector<Frame> frames) { deliver(lane, std::move(frames)); });
  }
}

GrpcConnection::~GrpcConnection() = default;

bool GrpcConnection::enter() {
  TransportCore::Hold hold = core_->add(shared_from_this());
  const std::chrono::milliseconds timeout = core_->limits().connect_timeout;
  MutexLock lock(mutex_);
  if (!hold) {
    phase_ = Phase::kDown;
    on_down_posted_ = true;
    down_reason_ = absl::UnavailableError("the transport was shut down");
    return false;
  }
  // shutdown() has overtaken it: what is down keeps no hold, since it would keep it permanently.
  if (phase_ == Phase::kDown) return false;
  hold_ = std::move(hold);
  connect_timer_ = core_->run_after(timeout, [weak = weak_from_this(), timeout] {
    if (const auto connection = weak.lock()) {
      connection->take_down(
          absl::UnavailableError(absl::StrCat("no connection within ", timeout.count(), " ms")));
    }
  });
  return true;
}

void GrpcConnection::set_handler(std::shared_ptr<ConnectionHandler> handler) {
  MutexLock lock(mutex_);
  handler_ = std::move(handler);
}

bool GrpcConnection::enter_handshake() {
  MutexLock lock(mutex_);
  if (phase_ != Phase::kOpening) return false;
  ++callbacks_running_;
  return true;
}

void GrpcConnection::set_remote(std::string hello, AuthenticatedPeer remote) {
  remote_hello_ = std::move(hello);
  remote_ = std::move(remote);
}

bool GrpcConnection::add_stream(std::shared_ptr<LaneStream> stream) {
  {
    MutexLock lock(mutex_);
    if (phase_ != Phase::kDown) {
      streams_[index_of(stream->kind())] = std::move(stream);
      return true;
    }
  }
  stream->end(absl::UnavailableError("the connection is down"));
  return false;
}

void GrpcConnection::write_handshake(LaneStream& stream, grpc::ByteBuffer message) {
  if (stream.start_write(message, WriteMode::kMayEndNow) == WriteEnd::kNow) {
    on_written(stream.kind());
  }
}

std::shared_ptr<LaneStream> GrpcConnection::stream(StreamKind kind) {
  MutexLock lock(mutex_);
  return streams_[index_of(kind)];
}

bool GrpcConnection::is_up() const {
  MutexLock lock(mutex_);
  return phase_ == Phase::kUp;
}

bool GrpcConnection::announce_up(ConnectionEnds::Role role) {
  std::shared_ptr<ConnectionHandler> handler;
  TimerQueue::TimerId timer = 0;
  {
    MutexLock lock(mutex_);
    if (phase_ != Phase::kOpening) return false;
    phase_ = Phase::kUp;
    ++callbacks_running_;
    handler = handler_;
    timer = std::exchange(connect_timer_, 0);
  }
  core_->cancel_timer(timer);
  handler->on_up(shared_from_this());
  leave_callback();
  planes_.prepare({role, local_hello_, remote_hello_}, weak_from_this(),
                  [this](absl::StatusOr<std::vector<std::string>> messages) {
                    if (!messages.ok()) {
                      take_down(messages.status());
                      return;
                    }
                    writer(Lane::kControl).send_planes(*std::move(messages));
                  });
  // A connection without large payloads finds out all the same: planes know the process at the
  // other end, so that its end is seen.
  if (role == ConnectionEnds::Role::kOpener && !core_->planes().planes.empty()) {
    core_->plane_turns().enter([weak = weak_from_this()] {
      const std::shared_ptr<GrpcConnection> connection = weak.lock();
      return connection != nullptr && connection->is_up() && connection->planes_.begin();
    });
  }
  return true;
}

// ---- receiving; sending is in grpc_connection_send.cc

void GrpcConnection::on_read(StreamKind stream_kind, grpc::ByteBuffer message) {
  if (!is_up()) {
    on_handshake_read(stream_kind, message);
    return;
  }
  absl::StatusOr<Packet> packet = decode_packet(message, core_->limits());
  message.Clear();
  if (packet.ok() && !belongs_to(stream_kind, *packet)) {
    packet = malformed("not for this lane");
  }
  if (!packet.ok()) {
    take_down(packet.status());
    return;
  }
  switch (stream_kind) {
    case StreamKind::kControl:
      on_control_packet(*std::move(packet));
      return;
    case StreamKind::kCalls:
      on_calls_packet(*std::move(packet));
      return;
    case StreamKind::kBulk:
      on_bulk_packet(*std::move(packet));
      return;
  }
}

bool GrpcConnection::accept_frames(Lane lane, std::vector<PacketFrame> frames) {
  Arrived arrived;
  arrived.ready.reserve(frames.size());
  for (PacketFrame& frame : frames) {
    if (absl::Status status = accept_frame(lane, std::move(frame), arrived); !status.ok()) {
      take_down(status);
      return false;
    }
  }
  process(lane, std::move(arrived));
  return true;
}

absl::Status GrpcConnection::accept_frame(Lane lane, PacketFrame&& frame, Arrived& arrived) {
  if (frame.complete()) {
    Frame& whole = arrived.ready.emplace_back();
    whole.envelope = std::move(frame.envelope);
    whole.payloads = std::move(frame.payloads);
    whole.header = std::move(frame.header);
    return absl::OkStatus();
  }
  absl::Status admitted = ask_handler(lane, frame);
  if (!admitted.ok() && !absl::IsResourceExhausted(admitted)) return admitted;
  absl::StatusOr<BulkReceiver::Announced> announced =
      bulk_receiver_.announce(lane, std::move(frame), std::move(admitted));
  if (!announced.ok()) return announced.status();
  read_bulk_on(kUnannouncedOfStrangers);
  if (announced->completed && announced->completed->lost.ok()) {
    arrived.ready.push_back(std::move(announced->completed->frame));
  } else if (announced->completed) {
    hand_over(*std::move(announced->completed));
  }
  if (!announced->granted.empty()) {
    if (absl::Status status = grant(announced->granted); !status.ok()) return status;
  }
  std::move(announced->to_fetch.begin(), announced->to_fetch.end(),
            std::back_inserter(arrived.to_fetch));
  return absl::OkStatus();
}

absl::Status GrpcConnection::ask_handler(Lane lane, const PacketFrame& frame) {
  const std::shared_ptr<ConnectionHandler> handler = enter_callback();
  if (handler == nullptr) return absl::CancelledError("the connection is down");
  absl::Status status = handler->on_announced(shared_from_this(), lane, frame.header,
                                              frame.size_bytes(), frame.payloads.size());
  leave_callback();
  return status;
}

void GrpcConnection::process(Lane lane, Arrived arrived) {
  deliveries_[index_of(lane)]->add(std::move(arrived.ready));
  std::size_t in_place_bytes = 0;
  for (BulkReceiver::ToFetch& wanted : arrived.to_fetch) {
    if (planes_.fetches_in_place(wanted.plane)) in_place_bytes += wanted.size_bytes;
    if (in_place_bytes <= kMaxFetchedInPlaceBytes) {
      fetch_one(wanted);
      continue;
    }
    // Dropped when the transport shuts down: the connection does not outlive that.
    core_->run_aside(
        [self = shared_from_this(), wanted = std::move(wanted)] { self->fetch_one(wanted); });
  }
}

void GrpcConnection::fetch_one(const BulkReceiver::ToFetch& wanted) {
  const std::size_t size_bytes = wanted.size_bytes;
  if (wanted.is_lost) {
    end_fetch(wanted.transfer, size_bytes, bulk_receiver_.lost(wanted.transfer));
    return;
  }
  std::shared_ptr<ReceiveBlock> block;
  try {
    block = ReceivePool::of_process().allocate(size_bytes);
  } catch (const std::bad_alloc&) {
    end_fetch(wanted.transfer, size_bytes, bulk_receiver_.lost(wanted.transfer));
    return;
  }
  char* const to = block->data();
  planes_.fetch(wanted.plane, wanted.location, {to, size_bytes, block},
                [self = shared_from_this(), transfer = wanted.transfer,
                 bytes = absl::MakeCordFromExternal({to, size_bytes}, [block] {})](
                    const absl::Status& status) mutable {
                  self->on_fetch_end(transfer, std::move(bytes), status);
                });
}

void GrpcConnection::on_fetch_end(std::uint64_t transfer, absl::Cord bytes,
                                  const absl::Status& status) {
  if (absl::IsInvalidArgument(status)) {
    take_down(status);
    return;
  }
  if (!status.ok()) {
    if (!bulk_receiver_.not_fetched(transfer)) return;
    if (absl::Status granted = grant({transfer}); !granted.ok()) take_down(granted);
    return;
  }
  const std::size_t size_bytes = bytes.size();
  end_fetch(transfer, size_bytes, bulk_receiver_.fetched(transfer, std::move(bytes)));
}

void GrpcConnection::end_fetch(std::uint64_t transfer, std::size_t size_bytes,
                               absl::StatusOr<std::optional<BulkReceiver::Completed>> completed) {
  want_calls();
  if (!writer(Lane::kCalls).add_fetched(transfer)) {
    take_down(absl::ResourceExhaustedError("the other end does not read what has been fetched"));
    return;
  }
  if (size_bytes >= kToldAtOnceBytes) {
    // The receipt should not come much earlier: see LinkLanes::may_keep().
    writer(Lane::kCalls).flush_all();
  } else {
    arm_linger_timer();
  }
  if (completed.ok() && completed->has_value()) hand_over(**std::move(completed));
}

void GrpcConnection::hand_over(BulkReceiver::Completed completed) {
  if (completed.lost.ok()) {
    std::vector<Frame> frames;
    frames.push_back(std::move(completed.frame));
    deliveries_[index_of(completed.lane)]->add(std::move(frames));
    return;
  }
  const std::shared_ptr<ConnectionHandler> handler = enter_callback();
  if (handler == nullptr) return;
  handler->on_lost(shared_from_this(), completed.lane, completed.frame.header, completed.size_bytes,
                   completed.payloads, completed.lost);
  leave_callback();
}

void GrpcConnection::on_control_packet(Packet packet) {
  for (const std::string& message : packet.planes) planes_.on_message(message);
  // One that made no sense.
  if (!is_up()) return;
  std::vector<PacketFrame>& frames = packet.frames;
  const auto riders = std::stable_partition(
      frames.begin(), frames.end(), [](const PacketFrame& frame) { return !frame.is_call; });
  std::vector<PacketFrame> calls(std::make_move_iterator(riders),
                                 std::make_move_iterator(frames.end()));
  frames.erase(riders, frames.end());
  if (!accept_frames(Lane::kControl, std::move(frames))) return;
  if (!calls.empty() && !accept_riders(std::move(calls))) return;
  if (auto lane = stream(StreamKind::kControl)) core_->poller().read_later(std::move(lane));
}

bool GrpcConnection::accept_riders(std::vector<PacketFrame> frames) {
  const std::size_t count = frames.size();
  on_riders(count);
  if (!accept_frames(Lane::kCalls, std::move(frames))) return false;
  std::optional<Packet> next;
  {
    MutexLock lock(rides_mutex_);
    riders_come_ += count;
    if (held_back_.has_value() && held_back_->riders <= riders_come_) next.swap(held_back_);
  }
  if (next.has_value()) on_calls_packet(*std::move(next));
  return true;
}

std::optional<Packet> GrpcConnection::hold_back(Packet packet) {
  MutexLock lock(rides_mutex_);
  if (packet.riders <= riders_come_) return packet;
  held_back_ = std::move(packet);
  return std::nullopt;
}

void GrpcConnection::end_rides() {
  if (!calls_ride_.load(std::memory_order_acquire)) return;
  MutexLock lock(rides_mutex_);
  calls_ride_.store(false, std::memory_order_release);
}

void GrpcConnection::open_calls(std::shared_ptr<LaneStream> stream) {
  std::uint64_t riders = 0;
  {
    MutexLock lock(rides_mutex_);
    riders = riders_sent_;
  }
  writer(Lane::kCalls).open(std::move(stream), WriterStart::kIdle, riders);
}

void GrpcConnection::on_calls_packet(Packet packet) {
  if (packet.riders > 0) {
    std::optional<Packet> due = hold_back(std::move(packet));
    if (!due.has_value()) return;
    packet = *std::move(due);
  }
  if (!located_.release(packet.fetched)) {
    take_down(absl::InvalidArgumentError("the peer fetched what was not located for it"));
    return;
  }
  for (const std::uint64_t transfer : packet.fetched) bulk_sender_.forget(transfer);
  if (!accept_frames(Lane::kCalls, std::move(packet.frames))) return;
  if (auto lane = stream(StreamKind::kCalls)) core_->poller().read_later(std::move(lane));
}

void GrpcConnection::arm_linger_timer() {
  if (linger_timer_.exchange(LingerTimer::kNeeded, std::memory_order_acq_rel) ==
      LingerTimer::kOff) {
    start_linger_timer();
  }
}

// Goes on for as long as it is needed: setting it anew from another thread each time would wake the
// timers' thread once more.
void GrpcConnection::start_linger_timer() {
  core_->run_after(kLongestLinger, [weak = weak_from_this()] {
    const std::shared_ptr<GrpcConnection> self = weak.lock();
    if (self == nullptr) return;
    // First: what lingers from here on sets it to kNeeded.
    LingerTimer state =
        self->linger_timer_.exchange(LingerTimer::kRunning, std::memory_order_acq_rel);
    self->writer(Lane::kCalls).flush_all();
    if (state == LingerTimer::kRunning &&
        self->linger_timer_.compare_exchange_strong(state, LingerTimer::kOff,
                                                    std::memory_order_acq_rel)) {
      return;
    }
    self->start_linger_timer();
  });
}

void GrpcConnection::on_bulk_packet(Packet packet) {
  if (absl::Status status = bulk_sender_.on_granted(packet.granted); !status.ok()) {
    take_down(status);
    return;
  }
  for (const std::uint64_t transfer : packet.granted) {
    std::optional<LocatedPayloads::Payload> payload = located_.take(transfer);
    if (!payload.has_value()) continue;
    planes_.on_failed(payload->location.plane);
    BulkSender::Transfers transfers;
    transfers.emplace_back(transfer, std::move(payload->bytes));
    submit(std::move(transfers));
  }
  absl::StatusOr<std::vector<BulkReceiver::Completed>> completed =
      bulk_receiver_.receive(std::move(packet.chunks));
  if (!completed.ok()) {
    take_down(completed.status());
    return;
  }
  for (BulkReceiver::Completed& each : *completed) hand_over(std::move(each));
  const std::shared_ptr<ConnectionHandler> handler = enter_callback();
  if (handler == nullptr) return;
  const bool may_send_ahead = handler->may_send_ahead();
  leave_callback();
  bulk_waits_.store(true);
  read_bulk_on(may_send_ahead ? kUnannouncedBytes : kUnannouncedOfStrangers);
}

// Of two that see that it may go on one reads.
void GrpcConnection::read_bulk_on(std::size_t most_unannounced) {
  if (!bulk_waits_.load() || bulk_receiver_.unannounced_bytes() > most_unannounced) return;
  if (!bulk_waits_.exchange(false)) return;
  if (const auto lane = stream(StreamKind::kBulk)) lane->start_read();
}

void GrpcConnection::deliver(Lane lane, std::vector<Frame> frames) {
  const std::shared_ptr<ConnectionHandler> handler = enter_callback();
  if (handler == nullptr) return;
  writer(lane).cork();
  handler->on_frames(shared_from_this(), lane, std::move(frames));
  writer(lane).uncork();
  leave_callback();
}

void GrpcConnection::on_written(StreamKind stream_kind) {
  switch (stream_kind) {
    case StreamKind::kControl:
      writer(Lane::kControl).on_written();
      return;
    case StreamKind::kCalls:
      writer(Lane::kCalls).on_written();
      return;
    case StreamKind::kBulk:
      bulk_sender_.on_written();
      return;
  }
}

// ---- going down

void GrpcConnection::close(absl::Status reason) {
  take_down(absl::CancelledError(absl::StrCat("closed from here: ", reason.message())),
            absl::UnavailableError(reason.message()));
}

void GrpcConnection::take_down(absl::Status reason, const absl::Status& for_peer) {
  std::array<std::shared_ptr<LaneStream>, kStreamCount> streams;
  TimerQueue::TimerId timer = 0;
  {
    MutexLock lock(mutex_);
    if (phase_ == Phase::kDown) return;
    phase_ = Phase::kDown;
    down_reason_ = std::move(reason);
    streams = streams_;
    timer = std::exchange(connect_timer_, 0);
    // Like a callback: on_down comes when nothing can be sent any more.
    ++callbacks_running_;
  }
  core_->cancel_timer(timer);
  for (const auto& stream : streams) {
    if (stream != nullptr) stream->end(for_peer);
  }
  for (const auto& writer : writers_) writer->close();
  // What the peer still reads as it is freed must not pass for what it was.
  planes_.close();
  located_.close();
  bulk_sender_.close();
  bulk_receiver_.clear();
  leave_callback();
}

void GrpcConnection::on_ended(StreamKind stream_kind, const absl::Status& status,
                              bool said_by_acceptor) {
  // Declared first, so that it goes after the lock: it may be the last to hold the stream.
  std::shared_ptr<LaneStream> ended;
  bool was_up = false;
  {
    MutexLock lock(mutex_);
    ended = std::exchange(streams_[index_of(stream_kind)], nullptr);
    if (phase_ == Phase::kDown) return;
    was_up = phase_ == Phase::kUp;
  }
  if (was_up && said_by_acceptor) {
    take_down(absl::UnavailableError(absl::StrCat("closed by the other end: ", status.message())));
    return;
  }
  take_down(explain_end(status, said_by_acceptor));
}

std::shared_ptr<ConnectionHandler> GrpcConnection::enter_callback() {
  MutexLock lock(mutex_);
  if (phase_ != Phase::kUp) return nullptr;
  ++callbacks_running_;
  return handler_;
}

void GrpcConnection::leave_callback() {
  MutexLock lock(mutex_);
  if (--callbacks_running_ == 0 && phase_ == Phase::kDown) post_on_down_locked();
}

void GrpcConnection::post_on_down_locked() {
  if (std::exchange(on_down_posted_, true)) return;
  core_->post([self = shared_from_this()] { self->run_on_down(); });
}

void GrpcConnection::run_on_down() {
  std::shared_ptr<ConnectionHandler> handler;
  absl::Status reason;
  TransportCore::Hold hold;
  {
    MutexLock lock(mutex_);
    handler.swap(handler_);
    reason = down_reason_;
    hold = std::move(hold_);
  }
  release();
  // An acceptor's end that was refused, or was not asked about, has no handler to tell.
  if (handler != nullptr) handler->on_down(shared_from_this(), reason);
  // The handler goes before the hold, so that shutdown() outlasts it.
  handler.reset();
}

}  // namespace sinew::internal
