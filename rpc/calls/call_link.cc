#include "sinew/rpc/calls/call_link.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sinew/rpc.pb.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/flight_recorder.h"
#include "sinew/rpc/base/trace.h"
#include "sinew/rpc/calls/call_link_content.h"
#include "sinew/rpc/calls/call_server.h"
#include "sinew/rpc/calls/envelope.h"
#include "sinew/rpc/calls/received_reply.h"
#include "sinew/rpc/calls/worker_services.h"

namespace sinew::internal {
namespace {

// With so many calls on their way another one is in no hurry: answers keep coming.
constexpr std::size_t kManyCalls = 8;
// Between two attempts to reach a peer that was never reached, for notes that wait.
constexpr auto kUnreachablePause = std::chrono::seconds(2);

}  // namespace

CallLink::CallLink(WorkerServices& services, std::shared_ptr<LinkRunner> runner)
    : services_(services),
      runner_(std::move(runner)),
      name_(runner_->peer().name),
      incarnation_(runner_->peer().incarnation),
      order_(services_.server().has_turns() ? std::make_shared<CallerOrder>() : nullptr) {}

CallLink::~CallLink() = default;

WorkerInfo CallLink::peer() const {
  return {name_, rank_.load(std::memory_order_acquire), incarnation_};
}

absl::Status CallLink::retired() const {
  MutexLock lock(mutex_);
  return retired_;
}

// ---- Starting.

void CallLink::start_call(std::unique_ptr<PendingCall> call, proto::Envelope& envelope,
                          std::vector<absl::Cord> payloads, Lane lane) {
  const std::uint64_t id = last_id_.fetch_add(1, std::memory_order_relaxed) + 1;
  envelope.mutable_call()->set_id(id);
  const auto content = std::make_shared<Content>();
  content->kind = lane == Lane::kCalls ? FrameKind::kRequest : FrameKind::kControl;
  content->subject = id;
  content->is_call = true;
  content->envelope = envelope.SerializeAsString();
  content->payloads = std::move(payloads);
  OutgoingFrame frame = Content::outgoing(content);
  const Clock::TimePoint deadline = call->deadline;
  const auto when_full = lane == Lane::kCalls && !call->waits_for_room
                             ? LinkRunner::WhenFull::kFail
                             : LinkRunner::WhenFull::kQueue;
  const std::vector<CancellationToken> cancellations = call->cancellations;
  Entry entry;
  entry.call = std::move(call);
  entry.id = id;
  entry.lane = lane;
  // Registered before it is sent, so that a cancellation never gets lost between the two.
  if (cancellations.empty()) entry.content = content;
  const std::optional<std::size_t> on_their_way = register_call(id, std::move(entry));
  if (!on_their_way.has_value()) return;
  if (content->envelope.empty()) {
    return end_unsent(id, *content, check_envelope_size(content->envelope, envelope));
  }
  if (!cancellations.empty()) {
    watch_cancellations(id, cancellations);
    if (!begin_sending(id, content)) return;
  }
  frame.may_linger = lane == Lane::kCalls && *on_their_way >= kManyCalls;
  send_registered(content, std::move(frame), when_full, deadline);
}

// How many are on their way now. nullopt: the link has ended, which the call is told.
std::optional<std::size_t> CallLink::register_call(std::uint64_t id, Entry entry) {
  count_request();
  if (entry.lane == Lane::kCalls) {
    FlightRecorder::of_process().add_call("call made", entry.call->method, id);
    services_.server().made().active.fetch_add(1, std::memory_order_acq_rel);
    services_.server().made().started.fetch_add(1, std::memory_order_acq_rel);
  }
  absl::Status refused;
  {
    MutexLock lock(mutex_);
    if (retired_.ok()) {
      const Clock::TimePoint deadline = entry.call->deadline;
      pending_.emplace(id, std::move(entry));
      if (deadline != Clock::TimePoint::max()) {
        deadlines_.emplace(deadline, id);
        arm_deadline_locked();
      }
      return pending_.size();
    }
    refused = retired_;
  }
  end_with_error(std::move(entry), refused, Execution::kDidNotRun, origin_of_end());
  return std::nullopt;
}

// False: it was cancelled, or its time was over, before it was sent.
bool CallLink::begin_sending(std::uint64_t id, const std::shared_ptr<Content>& content) {
  MutexLock lock(mutex_);
  const auto found = pending_.find(id);
  if (found == pending_.end()) return false;
  found->second.content = content;
  return true;
}

void CallLink::send_registered(const std::shared_ptr<Content>& content, OutgoingFrame frame,
                               LinkRunner::WhenFull when_full, Clock::TimePoint deadline) {
  const absl::StatusOr<FrameToken> token = runner_->send(std::move(frame), when_full, deadline);
  if (!token.ok()) return end_unsent(content->subject, *content, token.status());
  // If it was given up meanwhile: the thread that did so did not know the token yet.
  if (content->token.exchange(*token) == Content::kGivenUp) {
    give_up(content->subject, lane_of(content->kind), *token);
  }
}

// What hangs on a frame that the link has not taken ends here, also where the call itself was given
// up while it was being sent.
void CallLink::end_unsent(std::uint64_t id, Content& content, const absl::Status& status) {
  Entry entry;
  std::vector<OnCarrierEnd> on_end;
  {
    MutexLock lock(mutex_);
    take_entry_locked(id, entry);
    content.ended = true;
    on_end.swap(content.on_end);
  }
  if (entry.call != nullptr) {
    // No room, or too large; otherwise the link has ended.
    const bool is_refused_here =
        absl::IsResourceExhausted(status) || absl::IsInvalidArgument(status);
    end_with_error(std::move(entry), status, Execution::kDidNotRun,
                   is_refused_here ? ErrorOrigin::kThisWorker : origin_of_end());
  }
  for (OnCarrierEnd& each : on_end) std::move(each)(CarrierEnd::kNotSent);
}

void CallLink::count_request() {
  if (runner_->is_loopback()) return;
  services_.server().made().requests.fetch_add(1, std::memory_order_relaxed);
}

void CallLink::send_note(proto::Envelope& envelope, OnCarrierEnd on_end) {
  count_request();
  auto content = std::make_shared<Content>();
  content->kind = FrameKind::kControl;
  content->envelope = envelope.SerializeAsString();
  if (on_end != nullptr) content->on_end.push_back(std::move(on_end));
  const absl::Status sent =
      runner_->send(Content::outgoing(content), LinkRunner::WhenFull::kQueue).status();
  if (sent.ok()) return;
  const bool too_large = absl::IsResourceExhausted(sent);
  if (too_large) services_.log(absl::StrCat("a note is dropped: ", sent.message()));
  for (OnCarrierEnd& each : content->on_end) {
    std::move(each)(too_large ? CarrierEnd::kFailed : CarrierEnd::kNotSent);
  }
}

Future<void> CallLink::ready(std::uint64_t bytes) {
  Promise<void> promise = FutureAccess::make_promise<void>(services_.executor()->runner());
  Future<void> future = promise.future();
  absl::Status retired;
  {
    MutexLock lock(mutex_);
    retired = retired_;
    if (retired.ok()) waiters_.push_back({bytes, promise});
  }
  if (retired.ok()) {
    on_room();
  } else {
    promise.set_error(make_error(retired, name_, "", Execution::kDidNotRun, origin_of_end()));
  }
  return future;
}

void CallLink::on_room() {
  std::vector<Promise<void>> served;
  {
    MutexLock lock(mutex_);
    if (waiters_.empty() && held_.empty()) return;
    std::vector<Waiter> waiting;
    waiting.swap(waiters_);
    for (Waiter& waiter : waiting) {
      // All that fit now are told, although one of them may take the room from the others.
      if (runner_->has_room(waiter.bytes)) {
        served.push_back(std::move(waiter.promise));
      } else {
        waiters_.push_back(std::move(waiter));
      }
    }
  }
  for (const Promise<void>& promise : served) promise.try_set_value();
  post_held();
}

// ---- Cancelling.

void CallLink::watch_cancellations(std::uint64_t id, const std::vector<CancellationToken>& tokens) {
  std::vector<std::uint64_t> numbers;
  numbers.reserve(tokens.size());
  for (const CancellationToken& token : tokens) {
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

void CallLink::forget_cancellations(const Entry& entry) {
  for (std::size_t i = 0; i < entry.cancellation_numbers.size(); ++i) {
    entry.call->cancellations[i].forget(entry.cancellation_numbers[i]);
  }
}

void CallLink::cancel_call(std::uint64_t id, const absl::Status& reason) {
  Entry entry;
  {
    MutexLock lock(mutex_);
    if (!take_entry_locked(id, entry)) return;
  }
  abandon(id, std::move(entry), reason, ErrorOrigin::kThisWorker);
}

// The call's own end comes at once. What hangs on its frame waits until it is certain that the
// frame has no effect any more that it has not had: a Delete must not overtake a creating call.
void CallLink::abandon(std::uint64_t id, Entry entry, const absl::Status& status,
                       ErrorOrigin origin) {
  if (entry.content == nullptr) {
    return end_with_error(std::move(entry), status, Execution::kDidNotRun, origin);
  }
  // It is being sent at this moment by its own thread, which then gives it up.
  const FrameToken token = entry.content->token.exchange(Content::kGivenUp);
  if (token == 0) {
    return end_with_error(std::move(entry), status, Execution::kMayHaveRun, origin);
  }
  const bool ran = give_up(id, entry.lane, token);
  end_with_error(std::move(entry), status, ran ? Execution::kMayHaveRun : Execution::kDidNotRun,
                 origin);
}

// False: the frame never left, so the call did not run.
bool CallLink::give_up(std::uint64_t id, Lane lane, FrameToken token) {
  const LinkLanes::GivenUp given_up = runner_->give_up(token);
  if (given_up.state == LinkLanes::GivenUp::State::kNotSent) return false;
  // Each lane has its own numbers; a cancel names one of the calls' lane.
  send_cancel(id, lane == Lane::kCalls ? given_up.number : 0);
  return true;
}

void CallLink::send_cancel(std::uint64_t id, std::uint64_t number) {
  proto::Envelope envelope;
  envelope.mutable_cancel()->set_id(id);
  envelope.mutable_cancel()->set_number(number);
  auto content = std::make_shared<Content>();
  content->kind = FrameKind::kControl;
  content->envelope = envelope.SerializeAsString();
  // A peer that cannot be told any more is lost; other code finds that out.
  runner_->send(Content::outgoing(std::move(content)), LinkRunner::WhenFull::kQueue)
      .status()
      .IgnoreError();
}

// ---- Deadlines: one timer for the earliest one, which mostly never fires.

void CallLink::arm_deadline_locked() {
  const Clock::TimePoint earliest = deadlines_.begin()->first;
  if (earliest >= armed_for_) return;
  if (deadline_timer_ != 0) services_.timers().cancel(deadline_timer_);
  armed_for_ = earliest;
  deadline_timer_ = services_.timers().run_at(earliest, [weak = weak_from_this()] {
    if (auto self = weak.lock()) self->on_deadline();
  });
}

void CallLink::on_deadline() {
  std::vector<std::pair<std::uint64_t, Entry>> expired;
  const Clock::TimePoint now = services_.clock().now();
  {
    MutexLock lock(mutex_);
    armed_for_ = Clock::TimePoint::max();
    deadline_timer_ = 0;
    while (deadlines_.begin()->first <= now) {
      const std::uint64_t id = deadlines_.begin()->second;
      Entry entry;
      if (!take_entry_locked(id, entry)) {
        deadlines_.erase(deadlines_.begin());
        continue;
      }
      expired.emplace_back(id, std::move(entry));
    }
    arm_deadline_locked();
  }
  const std::string why_down = expired.empty() ? "" : runner_->why_down();
  const std::string why = why_down.empty() ? "" : ", and cannot be reached: " + why_down;
  for (auto& [id, entry] : expired) {
    const auto waited = std::chrono::duration<double>(now - entry.call->started).count();
    abandon(id, std::move(entry),
            absl::DeadlineExceededError(
                absl::StrFormat("worker '%s' did not answer within %.6g s%s", name_, waited, why)),
            ErrorOrigin::kNetwork);
  }
}

// ---- Ends.

bool CallLink::take_entry_locked(std::uint64_t id, Entry& entry) {
  const auto found = pending_.find(id);
  if (found == pending_.end()) return false;
  entry = std::move(found->second);
  pending_.erase(found);
  if (entry.call->deadline != Clock::TimePoint::max()) deadlines_.erase({entry.call->deadline, id});
  return true;
}

ErrorOrigin CallLink::origin_of_end() const {
  // A worker that ends, or is out of the job, ends its links itself.
  const bool is_ours = !services_.is_running() || !services_.evicted().ok();
  return is_ours ? ErrorOrigin::kThisWorker : ErrorOrigin::kNetwork;
}

void CallLink::end_with_error(Entry entry, const absl::Status& status, Execution execution,
                              ErrorOrigin origin) {
  PendingCall& call = *entry.call;
  forget_cancellations(entry);
  std::exception_ptr error = call.explain ? call.explain() : nullptr;
  if (error == nullptr) error = make_error(status, name_, call.method, execution, origin);
  call.on_error(std::move(error));
  if (execution == Execution::kDidNotRun) {
    end(entry, CarrierEnd::kNotSent);
  } else {
    end_after_frame(entry);
  }
}

void CallLink::write_trace(const Entry& entry) const {
  Trace* const trace = Trace::of_process();
  const Trace::CallId call{services_.self().incarnation.value, incarnation_.value, entry.id};
  if (trace == nullptr || entry.lane != Lane::kCalls || !trace->has(call)) return;
  trace->part(call, absl::StrCat(entry.call->method, " at ", name_), entry.call->started,
              services_.clock().now());
}

void CallLink::end(Entry& entry, CarrierEnd how) {
  write_trace(entry);
  for (OnCarrierEnd& on_end : entry.call->on_end) std::move(on_end)(how);
  // Last: what follows from the call must be seen to be under way before the call itself is not.
  if (entry.lane != Lane::kCalls) return;
  FlightRecorder::of_process().add_call("call ended", entry.call->method, entry.id);
  services_.server().made().active.fetch_sub(1, std::memory_order_release);
}

void CallLink::end_after_frame(Entry& entry) {
  if (entry.content != nullptr && !entry.call->on_end.empty()) {
    MutexLock lock(mutex_);
    if (!entry.content->ended) entry.content->on_end = std::move(entry.call->on_end);
  }
  end(entry, CarrierEnd::kFailed);
}

void CallLink::on_frames_ended(absl::Span<const LinkOutputs::Ended> frames) {
  std::vector<FrameEnded> told;
  {
    MutexLock lock(mutex_);
    for (const LinkOutputs::Ended& each : frames) {
      note_end_locked(static_cast<Content&>(*each.content), each.how, told);
    }
  }
  for (FrameEnded& ended : told) tell_end(ended);
}

void CallLink::note_end_locked(Content& content, FrameEnd how, std::vector<FrameEnded>& told) {
  content.ended = true;
  FrameEnded ended;
  if (content.is_call && how == FrameEnd::kTooLarge) {
    take_entry_locked(content.subject, ended.too_large);
  } else if (content.is_call && how == FrameEnd::kNotSent) {
    const auto found = pending_.find(content.subject);
    // As if it had not been sent yet: then it did not run.
    if (found != pending_.end()) found->second.content = nullptr;
  }
  if (content.on_end.empty() && how != FrameEnd::kTooLarge) return;
  ended.content = &content;
  ended.how = how;
  ended.on_end.swap(content.on_end);
  told.push_back(std::move(ended));
}

void CallLink::tell_end(FrameEnded& ended) {
  const Content& content = *ended.content;
  if (ended.how == FrameEnd::kTooLarge && content.is_note()) {
    services_.log(absl::StrCat("a note is dropped: ",
                               runner_->check_limits(Content::sizes(content)).message()));
  }
  if (ended.too_large.call != nullptr) {
    end_with_error(std::move(ended.too_large), runner_->check_limits(Content::sizes(content)),
                   Execution::kDidNotRun, ErrorOrigin::kThisWorker);
  }
  const bool arrived = ended.how == FrameEnd::kReceived && !content.is_call;
  for (OnCarrierEnd& each : ended.on_end) {
    std::move(each)(arrived ? CarrierEnd::kAnswered : CarrierEnd::kFailed);
  }
}

// The calls that the replies among the frames answer, in that order; without a call for one that is
// late.
CallLink::Entries CallLink::take_answered(const std::vector<Inbound>& frames) {
  Entries entries;
  const auto is_reply = [](const Inbound& frame) {
    return frame.header.kind == FrameKind::kReply && !frame.header.is_void;
  };
  if (std::none_of(frames.begin(), frames.end(), is_reply)) return entries;
  MutexLock lock(mutex_);
  for (const Inbound& frame : frames) {
    if (!is_reply(frame)) continue;
    take_entry_locked(frame.header.subject, entries.emplace_back());
  }
  return entries;
}

CallLink::Entry CallLink::take_entry(std::uint64_t id) {
  Entry entry;
  MutexLock lock(mutex_);
  take_entry_locked(id, entry);
  return entry;
}

void CallLink::receive_reply(Inbound frame, Entry entry) {
  if (entry.call == nullptr) return;
  ReceivedEnvelope envelope = ReceivedEnvelope::make();
  const absl::Status parsed = parse_envelope(frame.envelope, *envelope);
  if (!parsed.ok() || !envelope->has_reply()) {
    return end_with_error(
        std::move(entry),
        absl::InternalError(absl::StrFormat("worker '%s' sent an answer that cannot be read: %s",
                                            name_, parsed.message())),
        Execution::kMayHaveRun, ErrorOrigin::kCallee);
  }
  PendingCall& call = *entry.call;
  forget_cancellations(entry);
  // A call that was refused may not have been read: who keeps something for what it carried is to
  // ask, rather than to keep it until the call's time and a lease are over.
  const proto::Reply& reply = envelope->reply();
  const bool did_not_run = reply.has_error() && reply.error().execution() == proto::DID_NOT_RUN;
  const bool ask = reply.has_error() && call.explain;
  if (std::exception_ptr error = ask ? call.explain() : nullptr) {
    call.on_error(std::move(error));
  } else {
    auto data = std::make_unique<ReceivedReply::Data>(services_, peer(), call, std::move(envelope),
                                                      std::move(frame.payloads));
    call.on_reply(ReceivedReply(std::move(data)));
  }
  end(entry, did_not_run ? CarrierEnd::kFailed : CarrierEnd::kAnswered);
}

void CallLink::fail_all(const absl::Status& reason, LastAnswers last) {
  std::vector<std::pair<std::uint64_t, Entry>> entries;
  std::vector<Waiter> waiters;
  {
    MutexLock lock(mutex_);
    std::vector<std::uint64_t> failing;
    for (const auto& [id, entry] : pending_) {
      if (last == LastAnswers::kNone || entry.lane == Lane::kCalls) failing.push_back(id);
    }
    for (const std::uint64_t id : failing)
      take_entry_locked(id, entries.emplace_back(id, Entry()).second);
    waiters.swap(waiters_);
  }
  // In the order in which they were made.
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  const ErrorOrigin origin = origin_of_end();
  for (auto& [id, entry] : entries) abandon(id, std::move(entry), reason, origin);
  for (const Waiter& waiter : waiters) {
    waiter.promise.try_set_error(make_error(reason, name_, "", Execution::kDidNotRun, origin));
  }
}

void CallLink::on_unreached() { services_.on_unreached(peer()); }

void CallLink::on_unreachable(const absl::Status& reason) {
  // The other end may have connected meanwhile, and what waited has left.
  if (runner_->was_up()) return;
  fail_all(reason);
  // Notes have no deadline: they stay, and that link may never be used again otherwise.
  if (runner_->frames() == 0) return;
  services_.timers().run_at(services_.clock().now() + kUnreachablePause, [weak = weak_from_this()] {
    if (auto self = weak.lock()) self->reach_again();
  });
}

void CallLink::reach_again() {
  if (alive() && runner_->frames() > 0) runner_->connect();
}

void CallLink::retire(const absl::Status& reason, LastAnswers last) {
  absl::Status first;
  {
    MutexLock lock(mutex_);
    if (retired_.ok()) retired_ = reason;
    first = retired_;
    if (last == LastAnswers::kNone && deadline_timer_ != 0) {
      services_.timers().cancel(std::exchange(deadline_timer_, 0));
    }
  }
  fail_all(first, last);
  end_served();
}

void CallLink::close(const absl::Status& reason) {
  retire(reason);
  runner_->close(reason);
}

void CallLink::on_suspected(bool suspected) {
  if (!is_member()) return;
  const std::string why_down = runner_->why_down();
  const std::string why = why_down.empty() ? "" : absl::StrCat(": ", why_down);
  services_.log(
      absl::StrFormat("worker '%s' %s", name_,
                      suspected ? absl::StrCat("does not answer; it is suspected to be lost", why)
                                : "answers again"));
  services_.on_suspected(peer(), suspected);
}

void CallLink::on_end(Gone cause, const absl::Status& reason) {
  if (cause == Gone::kLinkClosed) return retire(reason);
  services_.on_link_ended(
      peer(), {cause, reason, runner_->drop_at(),
               [self = shared_from_this()](const absl::Status& why) { self->retire(why); }});
}

void CallLink::on_beat(std::uint64_t beat) {
  // The latest answer says all that earlier ones would.
  if (unanswered_beat_.exchange(beat) != 0) return;
  services_.control_executor().post([self = shared_from_this()] {
    const std::uint64_t latest = self->unanswered_beat_.exchange(0);
    // A pool that can never run a task again must not look alive, even though this thread is.
    if (!self->services_.executor()->is_stalled()) self->runner_->answer_beat(latest);
  });
}

}  // namespace sinew::internal
