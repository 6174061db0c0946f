// The calls that a CallLink serves; the rest is in call_link.cc.

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "sinew/rpc.pb.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/calls/call_link.h"
#include "sinew/rpc/calls/call_link_content.h"
#include "sinew/rpc/calls/call_server.h"
#include "sinew/rpc/calls/envelope.h"
#include "sinew/rpc/calls/error_codec.h"
#include "sinew/rpc/calls/extension.h"
#include "sinew/rpc/calls/queue_limits.h"
#include "sinew/rpc/calls/worker_services.h"

namespace sinew::internal {
namespace {

// More than are on their way from the link to here at any time; most are of calls that are done.
constexpr std::size_t kMaxCancelledEarly = 1024;

Clock::TimePoint deadline_of(const LinkHeader& header, Clock::TimePoint now) {
  return header.time_left.count() < 0 ? Clock::TimePoint::max() : now + header.time_left;
}

}  // namespace

// ---- Frames.

void CallLink::on_frames(std::vector<Inbound> frames) {
  const WakeBatch wakes;
  std::vector<ArrivedCall> calls;
  Clock::TimePoint now;
  Entries answered = take_answered(frames);
  Entry* answered_next = answered.begin();
  for (Inbound& frame : frames) {
    const bool is_reply = frame.header.kind == FrameKind::kReply;
    CallerOrder::Ticket ticket = take_ticket(frame);
    if (frame.header.is_void) continue;
    Entry entry = is_reply ? std::move(*answered_next++) : Entry();
    if (!frame.lost.ok()) {
      end_lost(frame, std::move(entry));
      continue;
    }
    switch (frame.header.kind) {
      case FrameKind::kReply:
        receive_reply(std::move(frame), std::move(entry));
        break;
      case FrameKind::kRequest:
        if (calls.empty()) {
          calls.reserve(frames.size());
          now = services_.clock().now();
        }
        if (auto call = receive_request(std::move(frame), now, std::move(ticket))) {
          calls.push_back(*std::move(call));
        }
        break;
      case FrameKind::kControl:
        receive_control(std::move(frame));
        break;
      case FrameKind::kLink:
        break;
    }
  }
  if (!calls.empty()) begin(std::move(calls));
}

CallerOrder::Ticket CallLink::take_ticket(const Inbound& frame) {
  if (order_ == nullptr || lane_of(frame.header.kind) != Lane::kCalls) return {};
  if (frame.header.kind == FrameKind::kRequest) return order_->on_call(frame.header.number);
  order_->on_frame(frame.header.number);
  return {};
}

// What there was no room for: the one that waits for it is told.
void CallLink::end_lost(const Inbound& frame, Entry answered) {
  // It may have been a note, which would be missing permanently: then better no link.
  if (frame.header.kind == FrameKind::kControl) return close(frame.lost);
  const std::uint64_t id = frame.header.subject;
  const std::uint64_t room = frame.room();
  if (frame.header.kind == FrameKind::kRequest) {
    return refuse_call(id, RequestRoom(runner_, room),
                       absl::ResourceExhaustedError(
                           absl::StrFormat("worker '%s' could not take a call of %d bytes: %s",
                                           services_.self().name, room, frame.lost.message())));
  }
  if (answered.call == nullptr) return;
  end_with_error(std::move(answered),
                 absl::ResourceExhaustedError(absl::StrFormat(
                     "worker '%s' answered with %d bytes, which could not be taken: %s", name_,
                     room, frame.lost.message())),
                 Execution::kMayHaveRun, ErrorOrigin::kThisWorker);
}

std::optional<ArrivedCall> CallLink::receive_request(Inbound frame, Clock::TimePoint now,
                                                     CallerOrder::Ticket ticket) {
  const std::uint64_t room = frame.room();
  ArrivedCall call;
  call.ticket = std::move(ticket);
  call.id = frame.header.subject;
  call.arrived = now;
  call.deadline = deadline_of(frame.header, now);
  call.bytes = std::move(frame.envelope);
  call.payloads = std::move(frame.payloads);
  call.size_bytes = room;
  call.room = RequestRoom(runner_, room);
  const bool member = is_member();
  if (member && !guest_calls_wait_.load(std::memory_order_relaxed)) return call;
  // The list had it by the time that this looked, and there is no second notice.
  if (member) on_member(rank_.load(std::memory_order_acquire));
  // Who is a guest hears at once of what would wait in vain.
  if (const absl::Status read = call.read(); !read.ok()) {
    refuse_call(call.id, std::move(call.room), read);
    return std::nullopt;
  }
  if (hold(call, std::move(frame.guest_room))) return std::nullopt;
  if (is_member()) return call;
  refuse_call(call.id, std::move(call.room),
              absl::PermissionDeniedError(absl::StrFormat(
                  "worker '%s' is no member of the job: it may not call methods", name_)));
  return std::nullopt;
}

// False: it need not wait, or there is no room for it to.
bool CallLink::hold(ArrivedCall& call, GuestRoom guest_room) {
  ArrivedCall dropped;  // Its room is given back after the lock.
  MutexLock lock(mutex_);
  // Behind those that are held already, until on_member() has begun them. Until then they are no
  // calls that this worker serves: they must not keep it from coming to rest.
  if (!retired_.ok()) {
    dropped = std::move(call);
    return true;
  }
  const bool wait = !guest_calls_.empty() || rank_.load(std::memory_order_acquire) < 0;
  if (!wait || guest_calls_.size() >= kMaxHeldFrames) return false;
  if (take_cancelled_locked(call.id)) {
    dropped = std::move(call);
    return true;
  }
  guest_calls_wait_.store(true, std::memory_order_relaxed);
  const Clock::TimePoint until = held_until(call.deadline);
  arm_held_locked(until);
  guest_calls_.push_back({std::move(call), std::move(guest_room), until});
  return true;
}

void CallLink::begin(std::vector<ArrivedCall> calls) {
  std::vector<std::shared_ptr<Invocation>> made;
  made.reserve(calls.size());
  for (ArrivedCall& call : calls) {
    // Not before: its rank may have arrived with its membership.
    call.caller = peer();
    std::shared_ptr<ReplySink> sink = services_.server().sink_for(call, shared_from_this());
    made.push_back(std::make_shared<Invocation>(services_, std::move(call), std::move(sink)));
  }
  std::vector<std::shared_ptr<Invocation>> begun;
  std::vector<std::shared_ptr<Invocation>> cancelled;
  begun.reserve(made.size());
  {
    MutexLock lock(mutex_);
    for (std::shared_ptr<Invocation>& each : made) {
      // Whose ids are not his own gets no second answer.
      if (!retired_.ok() || !served_.emplace(each->call_id(), each).second) continue;
      if (take_cancelled_locked(each->call_id())) cancelled.push_back(each);
      watch_queue_locked(QueueLimits::look_at(each->arrived(), each->deadline(), each->arrived()));
      begun.push_back(std::move(each));
    }
  }
  if (!begun.empty()) services_.server().start(std::move(begun));
  for (const std::shared_ptr<Invocation>& each : cancelled) each->cancel();
}

// Requests are started only as the answers to earlier ones leave. Asked when a thread is free for
// the call, since those before it may have filled the room while it waited for one.
bool CallLink::may_start(const std::shared_ptr<Invocation>& invocation) {
  if (!runner_->replies_blocked()) return true;
  {
    MutexLock lock(mutex_);
    if (!retired_.ok()) return true;  // Its reply takes no room any more.
    held_.push_back(invocation);
  }
  // There may be room by now, and there is no second notice of that.
  post_held();
  return false;
}

void CallLink::post_held() {
  if (runner_->replies_blocked()) return;
  std::vector<std::shared_ptr<Invocation>> held;
  {
    MutexLock lock(mutex_);
    held.swap(held_);
  }
  if (!held.empty()) services_.server().start(std::move(held));
}

// The rank is what the list of members says, whatever the peer does.
bool CallLink::is_member() {
  if (rank_.load(std::memory_order_acquire) >= 0) return true;
  const std::int32_t rank = services_.rank_of(runner_->peer());
  if (rank < 0) return false;
  rank_.store(rank, std::memory_order_release);
  return true;
}

void CallLink::on_member(std::int32_t rank) {
  rank_.store(rank, std::memory_order_release);
  std::deque<HeldCall> held;
  {
    // Under the lock, so that nothing overtakes them.
    MutexLock lock(mutex_);
    serve_held_control_locked();
    held.swap(guest_calls_);
    guest_calls_wait_.store(false, std::memory_order_relaxed);
  }
  std::vector<ArrivedCall> calls;
  calls.reserve(held.size());
  for (HeldCall& each : held) calls.push_back(std::move(each.call));
  begin(std::move(calls));
}

void CallLink::serve_held_control_locked() {
  for (ArrivedControl& control : held_control_) serve_control(std::move(control));
  held_control_.clear();
}

// ---- Running the job.

void CallLink::receive_control(Inbound frame) {
  // Whatever becomes of it, dropped or not, its sender is told when this goes.
  Credit handled;
  if (frame.header.is_note()) {
    handled = Credit([runner = runner_, number = frame.header.number, room = frame.room()] {
      runner->handled(number, room);
    });
  }
  ReceivedEnvelope envelope = ReceivedEnvelope::make();
  if (absl::Status parsed = parse_envelope(frame.envelope, *envelope); !parsed.ok()) {
    if (frame.header.subject == 0) return;
    if (std::optional<Credit> room = take_control_room(0); room.has_value()) {
      refuse(frame.header.subject, Lane::kControl, parsed, Execution::kDidNotRun, *std::move(room));
    }
    return;
  }
  switch (envelope->body_case()) {
    case proto::Envelope::kReply: {
      Entry answered = take_entry(frame.header.subject);
      receive_reply(std::move(frame), std::move(answered));
      return;
    }
    case proto::Envelope::kCancel: {
      const proto::Cancel& cancel = envelope->cancel();
      // One that comes after this is dropped by the link.
      if (!runner_->void_incoming(Lane::kCalls, cancel.number())) cancel_served(cancel.id());
      return;
    }
    case proto::Envelope::kCall:
    case proto::Envelope::kNote:
      break;
    default:
      return;
  }
  std::optional<Credit> room = take_control_room(frame.room());
  if (!room.has_value()) return;
  serve_or_hold({std::move(envelope), *std::move(room),
                 held_until(deadline_of(frame.header, services_.clock().now())), std::move(handled),
                 std::move(frame.guest_room)});
}

void CallLink::serve_or_hold(ArrivedControl control) {
  const bool for_guests =
      control.envelope->has_call() && CallServer::is_for_guests(control.envelope->call().method());
  const bool may_speak = for_guests || is_member();
  absl::Status retired;
  {
    MutexLock lock(mutex_);
    retired = retired_;
    const bool wait = !may_speak && rank_.load(std::memory_order_acquire) < 0;
    // Behind what is held already: there may be no second notice that this is a member.
    if (retired.ok() && !wait && !for_guests) serve_held_control_locked();
    if (retired.ok() && !wait) return serve_control(std::move(control));
    // The list with it may be on its way.
    if (retired.ok() && held_control_.size() < kMaxHeldFrames) {
      arm_held_locked(control.held_until);
      held_control_.push_back(std::move(control));
      return;
    }
  }
  if (!retired.ok()) return refuse_retired(std::move(control), retired);
  refuse_control(std::move(control),
                 absl::PermissionDeniedError(absl::StrFormat(
                     "worker '%s' is no member of the job: it is not heard", name_)));
}

// A peer that has said goodbye may still wait for the answer to its last control calls.
void CallLink::refuse_retired(ArrivedControl control, const absl::Status& status) {
  if (!control.envelope->has_call()) return;
  refuse(control.envelope->call().id(), Lane::kControl, status, Execution::kDidNotRun,
         std::move(control.credit));
}

// A note that is dropped would be missing permanently, references among others: then better no
// link.
void CallLink::refuse_control(ArrivedControl control, const absl::Status& status) {
  if (!control.envelope->has_call()) return close(status);
  refuse(control.envelope->call().id(), Lane::kControl, status, Execution::kDidNotRun,
         std::move(control.credit));
}

// ---- What guests have sent.

Clock::TimePoint CallLink::held_until(Clock::TimePoint deadline) const {
  return std::min(deadline, services_.clock().now() + std::max<std::chrono::nanoseconds>(
                                                          services_.options().lease, kMinHeldTime));
}

void CallLink::arm_held_locked(Clock::TimePoint when) {
  if (when >= held_armed_for_) return;
  if (held_timer_ != 0) services_.timers().cancel(held_timer_);
  held_armed_for_ = when;
  held_timer_ = services_.timers().run_at(when, [weak = weak_from_this()] {
    if (auto self = weak.lock()) self->refuse_held();
  });
}

void CallLink::refuse_held() {
  // on_member() may have been too early for some of it.
  const bool member = is_member();
  const Clock::TimePoint now = services_.clock().now();
  std::deque<HeldCall> calls;
  std::vector<ArrivedControl> controls;
  {
    MutexLock lock(mutex_);
    held_armed_for_ = Clock::TimePoint::max();
    held_timer_ = 0;
    if (!retired_.ok()) return;
    if (member) {
      lock.unlock();
      return on_member(rank_.load(std::memory_order_acquire));
    }
    for (HeldCall& call : std::exchange(guest_calls_, {})) {
      (call.held_until <= now ? calls : guest_calls_).push_back(std::move(call));
    }
    for (ArrivedControl& control : std::exchange(held_control_, {})) {
      (control.held_until <= now ? controls : held_control_).push_back(std::move(control));
    }
    guest_calls_wait_.store(!guest_calls_.empty(), std::memory_order_relaxed);
    for (const HeldCall& call : guest_calls_) arm_held_locked(call.held_until);
    for (const ArrivedControl& control : held_control_) arm_held_locked(control.held_until);
  }
  // Where lists differ, as after a cut, it is on its own one.
  const absl::Status refused = absl::UnavailableError(absl::StrFormat(
      "worker '%s' is not on the list of members that worker '%s' has, and has not come onto it "
      "while its call waited for that",
      name_, services_.options().name));
  for (HeldCall& held : calls) {
    refuse_call(held.call.id, std::move(held.call.room), refused);
  }
  for (ArrivedControl& control : controls) refuse_control(std::move(control), refused);
}

// A peer that sends calls and takes no answers must not fill this worker with either.
std::optional<Credit> CallLink::take_control_room(std::uint64_t bytes) {
  if (control_frames_.load(std::memory_order_relaxed) < kMaxControlFrames &&
      control_bytes_.load(std::memory_order_relaxed) < kMaxControlBytes) {
    return occupy_control(1, static_cast<std::int64_t>(bytes));
  }
  if (!flood_is_told_.exchange(true)) {
    services_.log(absl::StrFormat(
        "worker '%s' sends control messages and takes no answers: further ones are dropped",
        name_));
  }
  return std::nullopt;
}

Credit CallLink::occupy_control(std::int64_t frames, std::int64_t bytes) {
  control_frames_.fetch_add(frames, std::memory_order_relaxed);
  control_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  return Credit([self = shared_from_this(), frames, bytes] {
    self->control_frames_.fetch_sub(frames, std::memory_order_relaxed);
    self->control_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  });
}

bool CallLink::is_answering() const {
  MutexLock lock(mutex_);
  return control_frames_.load(std::memory_order_relaxed) >
         static_cast<std::int64_t>(held_control_.size());
}

void CallLink::cancel_served(std::uint64_t id) {
  std::shared_ptr<Invocation> running;
  HeldCall held;  // Its room is given back after the lock.
  {
    MutexLock lock(mutex_);
    const auto found = served_.find(id);
    const auto waits = std::find_if(guest_calls_.begin(), guest_calls_.end(),
                                    [id](const HeldCall& each) { return each.call.id == id; });
    if (found != served_.end()) {
      running = found->second;
    } else if (waits != guest_calls_.end()) {
      held = std::move(*waits);
      guest_calls_.erase(waits);
      guest_calls_wait_.store(!guest_calls_.empty(), std::memory_order_relaxed);
    } else {
      note_cancelled_locked(id);
    }
  }
  if (running != nullptr) running->cancel();
}

void CallLink::note_cancelled_locked(std::uint64_t id) {
  if (!retired_.ok() || !cancelled_early_.insert(id).second) return;
  cancelled_order_.push_back(id);
  if (cancelled_order_.size() <= kMaxCancelledEarly) return;
  cancelled_early_.erase(cancelled_order_.front());
  cancelled_order_.pop_front();
}

bool CallLink::take_cancelled_locked(std::uint64_t id) {
  return !cancelled_early_.empty() && cancelled_early_.erase(id) > 0;
}

// Only posts, so it may be called under the lock.
void CallLink::serve_control(ArrivedControl control) {
  services_.control_executor().post(
      [self = shared_from_this(), control = std::move(control)]() mutable {
        self->serve_control_here(std::move(control));
      });
}

// On the control executor. A peer that has joined earlier may speak to layers that this worker,
// which joins, has not made yet.
void CallLink::serve_control_here(ArrivedControl control) {
  absl::Status retired;
  {
    MutexLock lock(mutex_);
    retired = retired_;
  }
  if (!retired.ok()) return refuse_retired(std::move(control), retired);
  const proto::Envelope& envelope = *control.envelope;
  const bool has_taker = envelope.has_call()
                             ? services_.find_control_method(envelope.call().method()) != nullptr
                             : services_.extension(envelope.note().layer()) != nullptr;
  if (!has_taker && services_.waits_for_layers()) {
    return services_.when_layers_are_made(
        [weak = weak_from_this(), control = std::move(control)]() mutable {
          if (auto self = weak.lock()) self->serve_control_here(std::move(control));
        });
  }
  if (envelope.has_call()) return serve_control_call(std::move(control));
  proto::Note& note = *control.envelope->mutable_note();
  Extension* extension = services_.extension(note.layer());
  if (extension != nullptr) extension->on_note(peer(), std::move(*note.mutable_body()));
}

absl::Status CallLink::check_control_caller(const std::string& method) const {
  const MethodRules* const rules = services_.options().methods.restriction(method);
  if (rules == nullptr || rules->allows_everyone()) return absl::OkStatus();
  return services_.server().check_caller(*rules, method, peer().name, remote());
}

void CallLink::serve_control_call(ArrivedControl control) {
  const proto::Call& call = control.envelope->call();
  const std::uint64_t id = call.id();
  Future<std::string> answer;
  const ControlHandler handler = services_.find_control_method(call.method());
  if (handler == nullptr) {
    answer = make_failed_future<std::string>(make_error(absl::UnimplementedError(
        absl::StrFormat("no control method '%s'", printable(call.method(), 128)))));
  } else if (const absl::Status allowed = check_control_caller(call.method()); !allowed.ok()) {
    answer = make_failed_future<std::string>(make_error(allowed));
  } else if (call.arguments_size() != 1) {
    answer = make_failed_future<std::string>(
        make_error(absl::InvalidArgumentError("a control call has one argument")));
  } else {
    try {
      answer = handler(peer(), call.arguments(0).binary());
    } catch (...) {
      answer = make_failed_future<std::string>(std::current_exception());
    }
  }
  // Held until the answer has arrived.
  auto room = std::make_shared<Credit>(std::move(control.credit));
  answer.on_done([self = shared_from_this(), id, room](const Future<std::string>& done) {
    proto::Envelope reply;
    reply.mutable_reply()->set_id(id);
    if (const std::exception_ptr error = done.error()) {
      write_error(describe(error), *reply.mutable_reply()->mutable_error());
    } else {
      reply.mutable_reply()->mutable_value()->set_binary(done.value());
    }
    auto content = std::make_shared<Content>();
    content->kind = FrameKind::kControl;
    content->subject = id;
    content->envelope = reply.SerializeAsString();
    content->on_end.push_back(
        [room, kept = self->occupy_control(0, static_cast<std::int64_t>(content->envelope.size()))](
            CarrierEnd) mutable {
          kept.reset();
          room->reset();
        });
    self->send_reply(content);
  });
}

// ---- Answers.

void CallLink::on_reply(std::uint64_t call_id, Frame reply, std::vector<OnCarrierEnd> on_end) {
  auto content = std::make_shared<Content>();
  content->kind = FrameKind::kReply;
  content->subject = call_id;
  content->envelope = std::move(reply.envelope);
  content->payloads = std::move(reply.payloads);
  content->on_end = std::move(on_end);
  std::shared_ptr<Invocation> finished;  // Its destructor may run anything: not under the lock.
  bool wanted = false;
  {
    MutexLock lock(mutex_);
    const auto found = served_.find(call_id);
    if (found != served_.end()) {
      wanted = true;
      finished = std::move(found->second);
      served_.erase(found);
    }
  }
  if (wanted) return send_reply(content);
  for (OnCarrierEnd& end : content->on_end) std::move(end)(CarrierEnd::kNotSent);
}

void CallLink::on_error(std::uint64_t call_id, const proto::Error& error) {
  proto::Envelope envelope;
  envelope.mutable_reply()->set_id(call_id);
  *envelope.mutable_reply()->mutable_error() = error;
  Frame frame;
  frame.envelope = envelope.SerializeAsString();
  on_reply(call_id, std::move(frame), {});
}

const CallContext::Metadata& CallLink::metadata() const {
  static const auto& none = *new CallContext::Metadata();
  return none;
}

void CallLink::send_reply(const std::shared_ptr<Content>& content) {
  const absl::Status taken =
      runner_->send(Content::outgoing(content), LinkRunner::WhenFull::kQueue).status();
  if (taken.ok()) return;
  for (OnCarrierEnd& end : content->on_end) std::move(end)(CarrierEnd::kNotSent);
  if (!absl::IsResourceExhausted(taken)) return;
  refuse(content->subject, lane_of(content->kind),
         absl::ResourceExhaustedError(
             absl::StrFormat("the result cannot be sent: %s", taken.message())),
         Execution::kMayHaveRun);
}

// Answers a call with an error. The room that the call took is given back when the answer has
// arrived, so that a peer that reads no answers cannot fill this worker with them.
void CallLink::refuse(std::uint64_t call_id, Lane lane, const absl::Status& status,
                      Execution execution, Credit credit) {
  if (call_id == 0) return;
  proto::Envelope envelope;
  proto::Reply& reply = *envelope.mutable_reply();
  reply.set_id(call_id);
  ErrorInfo info;
  info.code = static_cast<ErrorCode>(status.code());
  info.message = std::string(status.message());
  info.execution = execution;
  info.origin = ErrorOrigin::kCallee;
  write_error(info, *reply.mutable_error());
  auto content = std::make_shared<Content>();
  content->kind = lane == Lane::kCalls ? FrameKind::kReply : FrameKind::kControl;
  content->subject = call_id;
  content->envelope = envelope.SerializeAsString();
  content->on_end.push_back([room = std::move(credit)](CarrierEnd) mutable { room.reset(); });
  runner_->send(Content::outgoing(std::move(content)), LinkRunner::WhenFull::kQueue)
      .status()
      .IgnoreError();
}

// Before it has begun.
void CallLink::refuse_call(std::uint64_t call_id, RequestRoom room, const absl::Status& status) {
  refuse(call_id, Lane::kCalls, status, Execution::kDidNotRun,
         Credit([kept = std::move(room)]() mutable { kept.give_back(); }));
}

}  // namespace sinew::internal
