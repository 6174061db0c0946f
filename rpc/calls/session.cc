#include "sinew/rpc/calls/session.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sinew/rpc.pb.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/calls/envelope.h"
#include "sinew/rpc/calls/received_reply.h"
#include "sinew/rpc/worker/worker_core.h"

namespace sinew::internal {
namespace {

// With so many calls on their way another one is in no hurry: answers keep coming.
constexpr std::size_t kManyCalls = 8;

// Growing pauses between attempts to connect, with jitter so that workers which lost the same peer
// do not return in step.
Clock::TimePoint::duration back_off(int failed_attempts) {
  if (failed_attempts <= 1) return std::chrono::nanoseconds(0);
  const double base_ms = std::min(2000.0, 20.0 * std::pow(2.0, std::min(failed_attempts - 2, 10)));
  thread_local std::minstd_rand engine(std::random_device{}());
  const double factor = std::uniform_real_distribution<double>(0.75, 1.25)(engine);
  return std::chrono::microseconds(static_cast<std::int64_t>(base_ms * factor * 1000));
}

}  // namespace

Session::Session(WorkerCore& core, Member peer, Mode mode)
    : core_(core), peer_(std::move(peer)), mode_(mode) {}

Session::~Session() { close(absl::CancelledError("the worker was shut down")); }

bool Session::alive() const {
  MutexLock lock(mutex_);
  return state_ != State::kClosed;
}

// ---- Calls.

std::uint64_t Session::completed_below_locked() const {
  return pending_.empty() ? last_id_ + 1 : pending_.begin()->first;
}

void Session::start_call(std::unique_ptr<PendingCall> call, proto::Envelope& envelope,
                         std::vector<absl::Cord> payloads, Lane lane) {
  const std::vector<CancellationToken> cancellations = call->cancellations;
  const std::uint64_t id = register_call(std::move(call), lane, envelope);
  if (id == 0) return;
  // Registered before it is sent, so that a cancellation never gets lost between the two.
  watch_cancellations(id, cancellations);
  Frame frame;
  frame.envelope = envelope.SerializeAsString();
  if (const absl::Status fits = check_envelope_size(frame.envelope); !fits.ok()) {
    return cancel_call(id, fits);
  }
  frame.payloads = std::move(payloads);
  send_registered(id, std::move(frame));
}

void Session::watch_cancellations(std::uint64_t id, const std::vector<CancellationToken>& tokens) {
  if (std::none_of(tokens.begin(), tokens.end(),
                   [](const CancellationToken& token) { return token.can_be_cancelled(); })) {
    return;
  }
  std::vector<std::uint64_t> numbers;
  for (const CancellationToken& token : tokens) {
    if (!token.can_be_cancelled()) {
      numbers.push_back(0);
      continue;
    }
    numbers.push_back(token.notify([weak = weak_from_this(), id] {
      if (auto self = weak.lock()) {
        self->cancel_call(id, absl::CancelledError("the call was cancelled"));
      }
    }));
  }
  {
    MutexLock lock(mutex_);
    const auto found = pending_.find(id);
    if (found != pending_.end()) {
      found->second.cancellation_numbers = std::move(numbers);
      return;
    }
  }
  // It has ended already.
  for (std::size_t i = 0; i < numbers.size(); ++i) tokens[i].forget(numbers[i]);
}

void Session::forget_cancellations(const Entry& entry) {
  for (std::size_t i = 0; i < entry.cancellation_numbers.size(); ++i) {
    entry.call->cancellations[i].forget(entry.cancellation_numbers[i]);
  }
}

std::uint64_t Session::register_call(std::unique_ptr<PendingCall> call, Lane lane,
                                     proto::Envelope& envelope) {
  requests_started_.fetch_add(1, std::memory_order_relaxed);
  if (lane == Lane::kCalls) {
    active_calls_.fetch_add(1, std::memory_order_acq_rel);
    calls_started_.fetch_add(1, std::memory_order_acq_rel);
  }
  absl::Status refused;
  {
    MutexLock lock(mutex_);
    if (state_ != State::kClosed) {
      const std::uint64_t id = ++last_id_;
      const Clock::TimePoint deadline = call->deadline;
      Entry& entry = pending_[id];
      entry.call = std::move(call);
      entry.lane = lane;
      if (deadline != Clock::TimePoint::max()) {
        deadlines_.emplace(deadline, id);
        arm_deadline_locked();
      }
      envelope.mutable_call()->set_id(id);
      envelope.set_completed_below(completed_below_locked());
      return id;
    }
    refused = closed_;
  }
  Entry entry;
  entry.call = std::move(call);
  entry.lane = lane;
  end_with_error(std::move(entry), refused);
  return 0;
}

void Session::send_registered(std::uint64_t id, Frame frame) {
  std::shared_ptr<Connection> connection;
  Lane lane = Lane::kCalls;
  {
    MutexLock lock(mutex_);
    const auto found = pending_.find(id);
    if (found == pending_.end()) return;  // Cancelled or timed out while it was written.
    Entry& entry = found->second;
    lane = entry.lane;
    entry.frame.envelope = frame.envelope;
    entry.frame.payloads = frame.payloads;
    frame.may_linger = pending_.size() >= kManyCalls;
    if (state_ == State::kUp) {
      connection = connection_;
      entry.sent = true;
    } else if (state_ == State::kIdle) {
      start_connecting_locked();
    }
  }
  if (connection == nullptr) return;
  const absl::Status sent = connection->send(lane, std::move(frame));
  if (!absl::IsResourceExhausted(sent))
    return;  // When the connection is down the next one sends it again.
  Entry entry;
  {
    MutexLock lock(mutex_);
    if (!take_entry_locked(id, entry)) return;
    entry.sent = false;
  }
  end_with_error(std::move(entry), sent);
}

bool Session::take_entry_locked(std::uint64_t id, Entry& entry) {
  const auto found = pending_.find(id);
  if (found == pending_.end()) return false;
  entry = std::move(found->second);
  pending_.erase(found);
  if (entry.call->deadline != Clock::TimePoint::max()) deadlines_.erase({entry.call->deadline, id});
  return true;
}

void Session::end_with_error(Entry entry, const absl::Status& status) {
  PendingCall& call = *entry.call;
  forget_cancellations(entry);
  std::exception_ptr error = call.explain ? call.explain() : nullptr;
  if (error == nullptr) {
    error = make_error(status, peer_.worker.name, call.method,
                       entry.sent ? Execution::kMayHaveRun : Execution::kDidNotRun);
  }
  call.on_error(std::move(error));
  end(entry, entry.sent ? CarrierEnd::kFailed : CarrierEnd::kNotSent);
}

void Session::end(Entry& entry, CarrierEnd how) {
  for (OnCarrierEnd& on_end : entry.call->on_end) std::move(on_end)(how);
  // Last: what follows from the call must be seen to be under way before the call itself is not.
  if (entry.lane == Lane::kCalls) active_calls_.fetch_sub(1, std::memory_order_release);
}

void Session::cancel_call(std::uint64_t id, const absl::Status& reason) {
  Entry entry;
  {
    MutexLock lock(mutex_);
    if (!take_entry_locked(id, entry)) return;
  }
  if (entry.sent) send_cancel(id, entry.lane);
  end_with_error(std::move(entry), reason);
}

void Session::send_cancel(std::uint64_t id, Lane lane) {
  std::shared_ptr<Connection> connection;
  proto::Envelope envelope;
  {
    MutexLock lock(mutex_);
    connection = connection_;
    envelope.set_completed_below(completed_below_locked());
  }
  if (connection == nullptr)
    return;  // The next call or beat tells the callee that this one is completed.
  envelope.mutable_cancel()->set_id(id);
  Frame frame;
  frame.envelope = envelope.SerializeAsString();
  // On the lane of the call, so that it cannot overtake it.
  connection->send(lane, std::move(frame)).IgnoreError();
}

// ---- Deadlines: one timer for the earliest one, which mostly never fires.

void Session::arm_deadline_locked() {
  const Clock::TimePoint earliest =
      deadlines_.empty() ? Clock::TimePoint::max() : deadlines_.begin()->first;
  if (earliest >= armed_for_) return;
  if (deadline_timer_ != 0) core_.timers().cancel(deadline_timer_);
  armed_for_ = earliest;
  deadline_timer_ = core_.timers().run_at(earliest, [weak = weak_from_this()] {
    if (auto self = weak.lock()) self->on_deadline();
  });
}

void Session::on_deadline() {
  Entries expired;
  const Clock::TimePoint now = core_.clock().now();
  {
    MutexLock lock(mutex_);
    armed_for_ = Clock::TimePoint::max();
    deadline_timer_ = 0;
    while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
      const std::uint64_t id = deadlines_.begin()->second;
      Entry entry;
      if (!take_entry_locked(id, entry)) break;
      expired.emplace_back(id, std::move(entry));
    }
    if (state_ != State::kClosed) arm_deadline_locked();
  }
  for (auto& [id, entry] : expired) {
    const auto waited = std::chrono::duration<double>(now - entry.call->started).count();
    const absl::Status status = absl::DeadlineExceededError(
        absl::StrFormat("worker '%s' did not answer within %.6g s", peer_.worker.name, waited));
    if (entry.sent) send_cancel(id, entry.lane);
    end_with_error(std::move(entry), status);
  }
}

// ---- Connections.

void Session::connect() {
  MutexLock lock(mutex_);
  if (state_ == State::kIdle) start_connecting_locked();
}

Future<bool> Session::probe() {
  Promise<bool> promise(&core_.control_executor());
  Future<bool> future = promise.future();
  std::shared_ptr<Connection> connection;
  {
    MutexLock lock(mutex_);
    if (state_ == State::kClosed) {
      promise.set_value(true);
      return future;
    }
    probes_.push_back(promise);
    if (state_ == State::kIdle) start_connecting_locked();
    connection = connection_;
  }
  // A connection that is up may lead to a process that is gone: only a new one tells.
  if (connection != nullptr) connection->close(absl::UnavailableError("probing"));
  return future;
}

void Session::start_connecting_locked() {
  state_ = State::kConnecting;
  if (failed_attempts_ == 0 && mode_ == Mode::kMember) on_first_attempt_locked();
  // Not under the lock: a transport may report at once.
  core_.control_executor().post([self = shared_from_this()] { self->open_connection(); });
}

void Session::on_first_attempt_locked() {
  if (lease_.has_value()) return;
  // The lease counts from before the peer can have accepted: see Lease.
  Lease::Options lease;
  lease.beat_interval = core_.options().heartbeat_interval;
  lease.duration = core_.options().lease;
  const Clock::TimePoint now = core_.clock().now();
  lease_.emplace(lease, now, now);
  arm_beat_locked(now + lease.beat_interval);
}

void Session::open_connection() {
  if (!alive()) return;
  std::shared_ptr<Connection> connection = core_.transport().connect(
      peer_.address, core_.hello(peer_.worker), peer_.worker.name, shared_from_this());
  MutexLock lock(mutex_);
  // on_up or on_down may have come already; then the state has moved on.
  if (state_ == State::kConnecting && connection_ == nullptr) connecting_ = std::move(connection);
}

void Session::on_up(const std::shared_ptr<Connection>& connection) {
  std::vector<std::pair<Lane, Frame>> frames;
  std::vector<Promise<bool>> probes;
  {
    MutexLock lock(mutex_);
    if (state_ != State::kClosed) {
      state_ = State::kUp;
      connection_ = connection;
      connecting_ = nullptr;
      failed_attempts_ = 0;
      probes.swap(probes_);
      for (auto& [id, entry] : pending_) {
        if (entry.frame.envelope.empty()) continue;  // Its own thread will send it.
        entry.sent = true;
        Frame& frame = frames.emplace_back(entry.lane, Frame()).second;
        frame.envelope = entry.frame.envelope;
        frame.payloads = entry.frame.payloads;
      }
    }
  }
  if (!alive()) {
    connection->close(absl::CancelledError("the session was closed"));
    return;
  }
  for (const Promise<bool>& probe : probes) probe.try_set_value(false);
  // A full window drops some of them here; they are sent again with the next connection, or time
  // out.
  for (auto& [lane, frame] : frames) connection->send(lane, std::move(frame)).IgnoreError();
  on_beat();
}

void Session::on_down(const std::shared_ptr<Connection>& connection, const absl::Status& reason) {
  const bool gone = absl::IsNotFound(reason);
  const bool refused = absl::IsPermissionDenied(reason) || absl::IsUnauthenticated(reason) ||
                       absl::IsFailedPrecondition(reason);
  {
    MutexLock lock(mutex_);
    if (state_ == State::kClosed) return;
    if (connection_ != nullptr && connection_ != connection) return;
    connection_ = nullptr;
    connecting_ = nullptr;
    ++failed_attempts_;
    if (!gone && !refused && mode_ == Mode::kMember) {
      back_off_locked();
      return;
    }
  }
  if (mode_ == Mode::kOneShot) {
    close(reason);
    return;
  }
  lost(gone ? absl::UnavailableError(
                  absl::StrFormat("worker '%s' is gone: %s", peer_.worker.name, reason.message()))
            : reason,
       gone ? Certainty::kGone : Certainty::kSuspected);
}

void Session::back_off_locked() {
  state_ = State::kBackingOff;
  core_.timers().run_at(core_.clock().now() + back_off(failed_attempts_),
                        [weak = weak_from_this()] {
                          auto self = weak.lock();
                          if (self == nullptr) return;
                          MutexLock lock(self->mutex_);
                          if (self->state_ == State::kBackingOff) self->start_connecting_locked();
                        });
}

// ---- Heartbeats.

void Session::arm_beat_locked(Clock::TimePoint when) {
  beat_timer_ = core_.timers().run_at(when, [weak = weak_from_this()] {
    if (auto self = weak.lock()) self->on_beat();
  });
}

void Session::on_beat() {
  std::shared_ptr<Connection> connection;
  Lease::Step step;
  {
    MutexLock lock(mutex_);
    if (state_ == State::kClosed || !lease_.has_value()) return;
    const Clock::TimePoint now = core_.clock().now();
    step = lease_->poll(now);
    if (beat_timer_ != 0) core_.timers().cancel(beat_timer_);
    beat_timer_ = 0;
    if (step.state != LeaseState::kLost) {
      arm_beat_locked(std::max(step.wake, now + std::chrono::milliseconds(1)));
    }
    connection = connection_;
  }
  report(step);
  if (connection != nullptr) send_beat(connection, step.beat);
}

void Session::send_beat(const std::shared_ptr<Connection>& connection, std::uint64_t sequence) {
  if (sequence == 0) return;  // None is due.
  proto::Envelope envelope;
  envelope.mutable_beat()->set_sequence(sequence);
  {
    MutexLock lock(mutex_);
    envelope.set_completed_below(completed_below_locked());
  }
  Frame frame;
  frame.envelope = envelope.SerializeAsString();
  connection->send(Lane::kControl, std::move(frame)).IgnoreError();
}

void Session::report(const Lease::Step& step) {
  if (step.state == LeaseState::kLost) {
    lost(absl::UnavailableError(absl::StrFormat(
             "worker '%s' is lost: it has not answered for %.6g s", peer_.worker.name,
             std::chrono::duration<double>(core_.options().lease).count())),
         Certainty::kSuspected);
  } else if (step.changed) {
    core_.log(absl::StrFormat("worker '%s' %s", peer_.worker.name,
                              step.state == LeaseState::kSuspected
                                  ? "does not answer; it is suspected to be lost"
                                  : "answers again"));
  }
}

// ---- What comes back.

void Session::on_frames(const std::shared_ptr<Connection>& connection, Lane lane,
                        std::vector<Frame> frames) {
  (void)lane;
  const WakeBatch wakes;
  for (Frame& frame : frames) {
    auto envelope = std::make_unique<proto::Envelope>();
    if (absl::Status parsed = parse_envelope(frame.envelope, *envelope); !parsed.ok()) {
      connection->close(std::move(parsed));
      return;
    }
    switch (envelope->body_case()) {
      case proto::Envelope::kReply:
        on_reply(std::move(envelope), frame);
        break;
      case proto::Envelope::kBeatReply: {
        Lease::Step step;
        {
          MutexLock lock(mutex_);
          if (!lease_.has_value()) break;
          const Clock::TimePoint now = core_.clock().now();
          // An answer shows that the peer lives. Its own beats say so too, but they reach its
          // CallerRecord only.
          const Lease::Step first = lease_->on_beat(now);
          step = lease_->on_beat_reply(envelope->beat_reply().sequence(), now);
          step.changed = step.changed || first.changed;
          step.beat = std::max(step.beat, first.beat);
        }
        report(step);
        send_beat(connection, step.beat);
        break;
      }
      default:
        connection->close(absl::InvalidArgumentError(
            "a message came that is neither a reply nor a heartbeat's answer"));
        return;
    }
  }
}

void Session::on_reply(std::unique_ptr<proto::Envelope> envelope, Frame& frame) {
  Entry entry;
  {
    MutexLock lock(mutex_);
    // Late, or a second copy: dropped.
    if (!take_entry_locked(envelope->reply().id(), entry)) return;
  }
  PendingCall& call = *entry.call;
  forget_cancellations(entry);
  const bool ask = envelope->reply().has_error() && call.explain;
  if (std::exception_ptr error = ask ? call.explain() : nullptr) {
    call.on_error(std::move(error));
  } else {
    auto data = std::make_unique<ReceivedReply::Data>(core_, peer_.worker, call,
                                                      std::move(envelope), std::move(frame));
    call.on_reply(ReceivedReply(std::move(data)));
  }
  end(entry, CarrierEnd::kAnswered);
}

void Session::send_note(proto::Envelope& envelope) {
  requests_started_.fetch_add(1, std::memory_order_relaxed);
  std::shared_ptr<Connection> connection;
  {
    MutexLock lock(mutex_);
    if (state_ == State::kIdle) start_connecting_locked();
    connection = connection_;
    envelope.set_completed_below(completed_below_locked());
  }
  if (connection == nullptr) return;
  Frame frame;
  frame.envelope = envelope.SerializeAsString();
  connection->send(Lane::kControl, std::move(frame)).IgnoreError();
}

// ---- The end.

void Session::lost(const absl::Status& reason, Certainty certainty) {
  close(reason);
  core_.worker_lost(peer_.worker, reason, certainty);
}

void Session::close(const absl::Status& reason) {
  absl::btree_map<std::uint64_t, Entry> pending;
  std::shared_ptr<Connection> connection;
  std::vector<Promise<bool>> probes;
  {
    MutexLock lock(mutex_);
    if (state_ == State::kClosed) return;
    state_ = State::kClosed;
    closed_ = reason;
    pending.swap(pending_);
    deadlines_.clear();
    connection = connection_ != nullptr ? std::move(connection_) : std::move(connecting_);
    connection_ = nullptr;
    connecting_ = nullptr;
    probes.swap(probes_);
    if (deadline_timer_ != 0) core_.timers().cancel(deadline_timer_);
    if (beat_timer_ != 0) core_.timers().cancel(beat_timer_);
  }
  if (connection != nullptr) connection->close(absl::CancelledError(reason.message()));
  for (const Promise<bool>& probe : probes) probe.try_set_value(true);
  for (auto& [id, entry] : pending) end_with_error(std::move(entry), reason);
}

}  // namespace sinew::internal
