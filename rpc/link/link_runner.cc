#include "sinew/rpc/link/link_runner.h"

#include <algorithm>
#include <new>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/link/header_codec.h"
#include "sinew/rpc/link/link_runner_wire.h"
#include "sinew/rpc/link/link_table.h"

namespace sinew::internal {
namespace {

const char* text_of(Link::State state) {
  switch (state) {
    case Link::State::kIdle:
      return "idle";
    case Link::State::kQueued:
      return "waits for its turn";
    case Link::State::kBackingOff:
      return "waits after a failed attempt";
    case Link::State::kDialling:
    case Link::State::kAccepted:
      return "connects";
    case Link::State::kUp:
      return "up";
    case Link::State::kEnded:
      break;
  }
  return "ended";
}

// Room for requests that may be given back without the other end hearing of it at once.
constexpr std::uint64_t kFewFrames = 64;
constexpr std::uint64_t kFewBytes = std::uint64_t{32} << 10;

Link::Options link_options(const LinkTable& table, const WorkerInfo& peer) {
  const LinkTableOptions& options = table.options();
  return {options.self.worker.incarnation, peer.incarnation,    options.limits, options.terms,
          options.send_window_bytes,       /*takes_turns=*/true};
}

}  // namespace

LinkRunner::LinkRunner(LinkTable& table, WorkerInfo peer, std::string address)
    : table_(table),
      peer_(std::move(peer)),
      loopback_(peer_.incarnation == table.self().worker.incarnation),
      address_(std::move(address)),
      link_(link_options(table, peer_), now()),
      few_frames_(std::min(kFewFrames, table.options().limits.request_window_frames / 8)),
      few_bytes_(std::min(kFewBytes, table.options().limits.request_window_bytes / 8)),
      guest_room_(std::make_shared<Quota>(LinkTable::kMaxGuestBytes, LinkTable::kMaxGuestBytes)),
      reversal_(table.options().terms.lease) {}

// ---- What follows from a step of the machine.

void LinkRunner::leave_locked(Outcome& outcome) {
  Link::Outputs& outputs = outcome.outputs;
  const bool blocked = !outputs.end.has_value() && link_.lanes().replies_blocked();
  if (blocked != replies_blocked_.load(std::memory_order_relaxed)) {
    replies_blocked_.store(blocked, std::memory_order_release);
  }
  look_for_way_locked(outcome);
  if (!outputs.writes.empty() && connection_ != nullptr &&
      !link_.lanes().may_keep(connection_->kept_bytes())) {
    outcome.lied_on = connection_;
  }
  // Frames leave in the order of their numbers: one thread writes at a time, and takes over what
  // others leave behind meanwhile. Without a connection they are sent again with the next one.
  if (!outputs.writes.empty() && connection_ != nullptr) {
    Writing nobody = Writing::kNobody;
    if (writing_.compare_exchange_strong(nobody, Writing::kOne) ||
        !leave_behind_locked(outputs.writes)) {
      outcome.write_to = connection_;
    }
  }
  for (const ConnectionName& name : outputs.close) {
    for (const std::shared_ptr<Wire>& wire : wires_) {
      if (wire->name != name || wire->connection == nullptr) continue;
      outcome.to_close.push_back(wire->connection);
      if (connection_ == wire->connection) connection_ = nullptr;
    }
  }
  if (outputs.end.has_value()) {
    connection_ = nullptr;
    if (closed_.ok()) closed_ = end_status_locked(*outputs.end);
    if (timer_ != 0) table_.timers().cancel(std::exchange(timer_, 0));
    outcome.reason = closed_;
  } else {
    if (watch_.is_up() != (connection_ != nullptr)) watch_.set_up(connection_ != nullptr, now());
    arm_locked();
    if (outputs.unreachable) {
      // An attempt without an answer, not even a refusal, does not fail.
      const std::string why =
          last_failure_.ok()
              ? absl::StrCat("nothing comes back from ", address_, ", nor has it connected itself")
              : std::string(last_failure_.message());
      outcome.reason = absl::UnavailableError(
          absl::StrFormat("worker '%s' cannot be reached: %s", peer_.name, why));
    }
  }
}

// Until there was contact: who opens connections to this end has not come by itself.
void LinkRunner::look_for_way_locked(Outcome& outcome) {
  if (link_.was_up() || connection_ != nullptr) return;
  // Two that cannot reach each other must not go on asking for each other when nothing waits.
  if (link_.lanes().frames() == 0) return reversal_.reset();
  const BootClock::TimePoint time = now();
  if (link_.state() == Link::State::kDialling) reversal_.on_dial(time);
  outcome.unreached = reversal_.take_question(time);
  // The peer that was asked to connect may be about to do so.
  if (outcome.outputs.unreachable && reversal_.awaits(time)) {
    outcome.outputs.unreachable = false;
    link_.connect(time, outcome.outputs);
  }
  if (link_.state() == Link::State::kIdle) reversal_.reset();
}

absl::Status LinkRunner::end_status_locked(Gone cause) const {
  switch (cause) {
    case Gone::kSilent:
      return absl::UnavailableError(
          absl::StrFormat("worker '%s' is lost: it has not answered for %.6g s", peer_.name,
                          std::chrono::duration<double>(link_.lease()).count()));
    case Gone::kAddressRefuses:
      return absl::UnavailableError(
          absl::StrFormat("worker '%s' is gone: %s", peer_.name, last_failure_.message()));
    case Gone::kLinkEndedThere:
      return absl::UnavailableError(absl::StrFormat(
          "worker '%s' is gone: it has ended the link with this worker", peer_.name));
    case Gone::kProcessEnded:
      return absl::UnavailableError(
          absl::StrFormat("worker '%s' is gone: its process has ended", peer_.name));
    default:
      return absl::CancelledError("the link was closed");
  }
}

// False: the thread that wrote has ended, and the caller writes in its place.
bool LinkRunner::leave_behind_locked(decltype(LinkOutputs::writes)& writes) {
  Writing one = Writing::kOne;
  if (!writing_.compare_exchange_strong(one, Writing::kMore) && one == Writing::kNobody) {
    writing_.store(Writing::kOne);
    return false;
  }
  behind_.push_back({connection_, std::exchange(writes, {})});
  return true;
}

void LinkRunner::write(Connection& to, Link::Outputs& outputs) {
  for (LinkOutputs::Write& each : outputs.writes) write(to, each);
  while (true) {
    Writing alone = Writing::kOne;
    if (writing_.compare_exchange_strong(alone, Writing::kNobody)) return;
    WriteBatches behind;
    {
      MutexLock lock(mutex_);
      behind.swap(behind_);
      writing_.store(Writing::kOne);
    }
    for (Writes& batch : behind) {
      for (LinkOutputs::Write& each : batch.writes) write(*batch.to, each);
    }
  }
}

// Memory may be short for large frames; whatever happens, others count on this thread to write what
// they leave behind.
void LinkRunner::write(Connection& to, LinkOutputs::Write& write) {
  try {
    write_frame(to, write);
  } catch (const std::bad_alloc&) {
    // Its number is missing on this connection; with the next one it is sent again.
    to.close(absl::ResourceExhaustedError("there is no memory for a message that is to be sent"));
  }
}

void LinkRunner::write_frame(Connection& to, LinkOutputs::Write& write) {
  Frame frame;
  frame.header = write_header(write.header);
  if (write.content != nullptr) {
    frame.envelope = write.content->envelope;
    frame.payloads = write.content->payloads;
  }
  frame.may_linger = write.may_linger;
  to.send(lane_of(write.header.kind), std::move(frame)).IgnoreError();
}

void LinkRunner::perform(Outcome& outcome) {
  Link::Outputs& outputs = outcome.outputs;
  if (outcome.write_to != nullptr) write(*outcome.write_to, outputs);
  for (const auto& connection : outcome.to_close) {
    connection->close(outcome.reason.ok()
                          ? absl::CancelledError("another connection has taken its place")
                          : outcome.reason);
  }
  if (outcome.lied_on != nullptr) {
    outcome.lied_on->close(absl::ResourceExhaustedError(
        absl::StrFormat("worker '%s' says to have received what it has not taken", peer_.name)));
  }
  if (outputs.wants_turn) {
    table_.dial_turns().enter(peer_.incarnation, [weak = weak_from_this()](Credit turn) {
      if (const auto self = weak.lock()) self->take_turn(std::move(turn));
    });
  }
  if (outputs.dial != 0) {
    // Not here: names may have to be looked up.
    table_.executor().post(
        [self = shared_from_this(), attempt = outputs.dial] { self->open(attempt, Credit()); });
  }
  if (tells_user(outcome)) tell_user(outcome);
}

bool LinkRunner::tells_user(const Outcome& outcome) {
  const Link::Outputs& outputs = outcome.outputs;
  return !outputs.ended.empty() || outputs.room || outputs.suspected.has_value() ||
         outcome.unreached || outputs.unreachable || outputs.end.has_value();
}

void LinkRunner::tell_user(const Outcome& outcome) {
  const std::shared_ptr<LinkUser> user = user_.lock();
  if (user == nullptr) return;
  const Link::Outputs& outputs = outcome.outputs;
  if (!outputs.ended.empty()) user->on_frames_ended(outputs.ended);
  if (outputs.room) user->on_room();
  if (outputs.suspected.has_value()) user->on_suspected(*outputs.suspected);
  if (outcome.unreached) user->on_unreached();
  if (outputs.unreachable) user->on_unreachable(outcome.reason);
  if (outputs.end.has_value()) {
    user->on_end(*outputs.end, outcome.reason);
    table_.forget(*this);
  }
}

void LinkRunner::arm_locked() {
  const BootClock::TimePoint wake = std::min({link_.wake(), watch_.wake(), reversal_.wake()});
  if (wake >= armed_for_ || closed_.ok() == false) return;
  if (timer_ != 0) table_.timers().cancel(timer_);
  armed_for_ = wake;
  // TimePoint::min() is "at once", and too far from now to subtract.
  const BootClock::TimePoint time = now();
  const std::chrono::nanoseconds delay = wake <= time ? std::chrono::nanoseconds(0) : wake - time;
  timer_ = table_.timers().run_at(Clock::system().now() + delay, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->on_timer();
  });
}

void LinkRunner::on_timer() {
  Outcome outcome;
  {
    MutexLock lock(mutex_);
    armed_for_ = BootClock::TimePoint::max();
    timer_ = 0;
    if (!closed_.ok()) return;
    const BootClock::TimePoint time = now();
    // It may have become known since the connection was made.
    if (connection_ != nullptr) watch_.hold(connection_->remote_process());
    if (watch_.has_ended(time)) {
      link_.on_process_ended(outcome.outputs);
    } else {
      return_room_locked(time, outcome);
      link_.poll(time, outcome.outputs);
    }
    leave_locked(outcome);
  }
  perform(outcome);
}

// ---- Frames.

absl::Status LinkRunner::check_limits_locked(const OutgoingFrame& frame) const {
  LinkLimits limits = table_.options().limits;
  const char* whose = "WorkerOptions::max_message_bytes here";
  if (const auto& theirs = link_.lanes().their_limits(); theirs.has_value()) {
    if (theirs->max_frame_bytes < limits.max_frame_bytes) {
      limits.max_frame_bytes = theirs->max_frame_bytes;
      whose = "WorkerOptions::max_message_bytes of the receiver";
    }
    limits.max_payloads = std::min(limits.max_payloads, theirs->max_payloads);
    limits.max_envelope_bytes = std::min(limits.max_envelope_bytes, theirs->max_envelope_bytes);
  }
  if (frame.bytes > limits.max_frame_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("a message to worker '%s' has %d bytes, and the limit is %d (%s)",
                        peer_.name, frame.bytes, limits.max_frame_bytes, whose));
  }
  if (frame.payloads > limits.max_payloads) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("a message to worker '%s' has %d tensors, and the limit is %d: send fewer, "
                        "larger ones, or several messages",
                        peer_.name, frame.payloads, limits.max_payloads));
  }
  if (frame.envelope_bytes > limits.max_envelope_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("a message to worker '%s' has %d bytes apart from its tensors, and the "
                        "limit is %d: pass bulk data as tensors",
                        peer_.name, frame.envelope_bytes, limits.max_envelope_bytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<FrameToken> LinkRunner::send(OutgoingFrame frame, WhenFull when_full,
                                            Clock::TimePoint deadline) {
  std::optional<std::chrono::nanoseconds> left;
  if (deadline != Clock::TimePoint::max()) left = deadline - Clock::system().now();
  if (loopback_) return send_to_self(std::move(frame), when_full, left);
  Outcome outcome;
  FrameToken token = 0;
  {
    MutexLock lock(mutex_);
    if (!closed_.ok()) return closed_;
    if (absl::Status fits = check_limits_locked(frame); !fits.ok()) return fits;
    if (frame.kind == FrameKind::kRequest && when_full == WhenFull::kFail &&
        !link_.lanes().has_room(frame.room())) {
      return absl::ResourceExhaustedError(absl::StrFormat(
          "%d bytes wait for worker '%s', and WorkerOptions::send_window_bytes is %d: wait for "
          "Peer::ready()",
          link_.lanes().requests_here_bytes(), peer_.name, table_.options().send_window_bytes));
    }
    const BootClock::TimePoint time = now();
    if (left.has_value()) frame.deadline = time + *left;
    return_room_locked(time, outcome);
    token = link_.send(std::move(frame), time, outcome.outputs);
    leave_locked(outcome);
  }
  perform(outcome);
  return token;
}

// There is nothing that could get lost, so numbers and receipts have no use.
absl::StatusOr<FrameToken> LinkRunner::send_to_self(OutgoingFrame frame, WhenFull when_full,
                                                    std::optional<std::chrono::nanoseconds> left) {
  {
    MutexLock lock(mutex_);
    if (!closed_.ok()) return closed_;
    if (absl::Status fits = check_limits_locked(frame); !fits.ok()) return fits;
    if (frame.kind == FrameKind::kRequest) {
      const std::uint64_t window = table_.options().send_window_bytes;
      if (when_full == WhenFull::kFail && self_bytes_ != 0 && self_bytes_ + frame.room() > window) {
        return absl::ResourceExhaustedError(absl::StrFormat(
            "%d bytes of calls to itself wait in worker '%s', and WorkerOptions::send_window_bytes "
            "is %d: wait for Peer::ready()",
            self_bytes_, peer_.name, window));
      }
      self_bytes_ += frame.room() + LinkLanes::kFrameCostBytes;
    }
  }
  std::vector<Inbound> frames(1);
  Inbound& inbound = frames.front();
  inbound.header.kind = frame.kind;
  inbound.header.subject = frame.subject;
  if (left.has_value()) {
    inbound.header.time_left = std::max(
        std::chrono::duration_cast<std::chrono::microseconds>(*left), std::chrono::microseconds(0));
  }
  inbound.envelope = frame.content->envelope;
  inbound.payloads = frame.content->payloads;
  if (const auto user = user_.lock()) {
    user->on_frames(std::move(frames));
    const LinkOutputs::Ended ended{std::move(frame.content), FrameEnd::kReceived};
    user->on_frames_ended(absl::MakeConstSpan(&ended, 1));
  }
  // No other frame's, and not that of none.
  return ~FrameToken{0};
}

LinkLanes::GivenUp LinkRunner::give_up(FrameToken token) {
  if (loopback_) return {};
  Outcome outcome;
  LinkLanes::GivenUp given_up;
  {
    MutexLock lock(mutex_);
    given_up = link_.give_up(token, now(), outcome.outputs);
    leave_locked(outcome);
  }
  perform(outcome);
  return given_up;
}

bool LinkRunner::void_incoming(Lane lane, std::uint64_t number) {
  MutexLock lock(mutex_);
  return link_.lanes().void_incoming(lane, number);
}

void LinkRunner::return_room(std::uint64_t room) {
  if (loopback_) {
    std::shared_ptr<LinkUser> user;
    {
      MutexLock lock(mutex_);
      self_bytes_ -= room + LinkLanes::kFrameCostBytes;
      user = user_.lock();
    }
    if (user != nullptr) user->on_room();
    return;
  }
  // In this order: what is taken out meanwhile has all the bytes of its frames.
  const std::uint64_t size = LinkLanes::cost(room);
  const std::uint64_t returned = returned_bytes_.fetch_add(size) + size;
  const std::uint64_t frames = returned_frames_.fetch_add(1) + 1;
  // Mostly the reply will tell it, or the next beat. The table may be gone by now.
  if (frames < few_frames_ && returned < few_bytes_) return;
  Outcome outcome;
  {
    MutexLock lock(mutex_);
    return_room_locked(now(), outcome);
    if (outcome.outputs.writes.empty() && !outcome.outputs.end.has_value()) {
      return arm_locked();
    }
    leave_locked(outcome);
  }
  perform(outcome);
}

void LinkRunner::return_room_locked(BootClock::TimePoint time, Outcome& outcome) {
  const std::uint64_t frames = returned_frames_.exchange(0);
  if (frames == 0) return;
  link_.return_room(frames, returned_bytes_.exchange(0), time, outcome.outputs);
}

void LinkRunner::handled(std::uint64_t number, std::uint64_t room) {
  if (loopback_) return;
  MutexLock lock(mutex_);
  if (!closed_.ok()) return;
  link_.handled(number, room, now());
  arm_locked();
}

void LinkRunner::answer_beat(std::uint64_t beat) {
  Outcome outcome;
  {
    MutexLock lock(mutex_);
    const BootClock::TimePoint time = now();
    return_room_locked(time, outcome);
    link_.answer_beat(beat, time, outcome.outputs);
    leave_locked(outcome);
  }
  perform(outcome);
}

bool LinkRunner::has_room(std::uint64_t bytes) const {
  MutexLock lock(mutex_);
  if (loopback_) {
    return self_bytes_ == 0 || self_bytes_ + bytes <= table_.options().send_window_bytes;
  }
  return link_.lanes().has_room(bytes);
}

bool LinkRunner::replies_blocked() const {
  return replies_blocked_.load(std::memory_order_acquire);
}

absl::Status LinkRunner::check_limits(const OutgoingFrame& frame) const {
  MutexLock lock(mutex_);
  return check_limits_locked(frame);
}

FrameToken LinkRunner::last_token() const {
  MutexLock lock(mutex_);
  return link_.lanes().last_token();
}

std::size_t LinkRunner::replies_until(FrameToken last) const {
  MutexLock lock(mutex_);
  return link_.lanes().replies_until(last);
}

std::size_t LinkRunner::frames() const {
  MutexLock lock(mutex_);
  return link_.lanes().frames();
}

// ---- The link.

void LinkRunner::connect(Turn turn) {
  if (loopback_) return;
  Outcome outcome;
  {
    MutexLock lock(mutex_);
    if (!closed_.ok()) return;
    if (turn == Turn::kWaits) {
      link_.connect(now(), outcome.outputs);
    } else {
      link_.connect_at_once(now(), outcome.outputs);
    }
    leave_locked(outcome);
  }
  perform(outcome);
}

void LinkRunner::on_asked(bool is_asked) {
  MutexLock lock(mutex_);
  reversal_.on_answer(is_asked, now());
}

bool LinkRunner::ended() const {
  MutexLock lock(mutex_);
  return !closed_.ok();
}

bool LinkRunner::is_up() const {
  MutexLock lock(mutex_);
  return link_.state() == Link::State::kUp;
}

LinkRunner::Seen LinkRunner::seen() const {
  Seen seen;
  std::shared_ptr<Connection> connection;
  {
    MutexLock lock(mutex_);
    seen.address = address_;
    seen.state = text_of(link_.state());
    seen.suspected = link_.suspected();
    seen.frames = link_.lanes().frames();
    seen.request_bytes = link_.lanes().requests_here_bytes();
    seen.window_bytes = link_.options().send_window_bytes;
    connection = connection_;
  }
  seen.why_down = why_down();
  if (connection != nullptr) seen.planes = connection->planes();
  return seen;
}

bool LinkRunner::is_answered() const {
  MutexLock lock(mutex_);
  return link_.state() == Link::State::kUp && !link_.suspected();
}

bool LinkRunner::is_reached_at(const std::string& address) const {
  MutexLock lock(mutex_);
  return link_.state() == Link::State::kUp && reached_at_ == address;
}

bool LinkRunner::was_up() const {
  MutexLock lock(mutex_);
  return link_.was_up();
}

bool LinkRunner::is_unused() const {
  MutexLock lock(mutex_);
  return link_.state() == Link::State::kIdle && !link_.was_up() && link_.lanes().frames() == 0;
}

Clock::TimePoint LinkRunner::drop_at() const {
  MutexLock lock(mutex_);
  if (!link_.was_up()) return Clock::system().now();
  return Clock::system().now() + (link_.drop_at() - now());
}

void LinkRunner::set_address(const std::string& address) {
  MutexLock lock(mutex_);
  if (!address.empty()) address_ = address;
}

std::string LinkRunner::address() const {
  MutexLock lock(mutex_);
  return address_;
}

std::string LinkRunner::why_down() const {
  MutexLock lock(mutex_);
  if (loopback_ || connection_ != nullptr || last_failure_.ok()) return "";
  return std::string(last_failure_.message());
}

AuthenticatedPeer LinkRunner::remote() const {
  MutexLock lock(mutex_);
  return remote_;
}

void LinkRunner::close(const absl::Status& reason) {
  Outcome outcome;
  {
    MutexLock lock(mutex_);
    if (!closed_.ok()) return;
    closed_ = reason;
    link_.close(outcome.outputs);
    leave_locked(outcome);
  }
  perform(outcome);
}

}  // namespace sinew::internal
