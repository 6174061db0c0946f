#include "sinew/rpc/worker/worker_links.h"

#include <algorithm>
#include <optional>
#include <thread>

#include "absl/strings/str_format.h"
#include "sinew/rpc.pb.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/call_options.h"
#include "sinew/rpc/calls/call_server.h"
#include "sinew/rpc/calls/extension.h"
#include "sinew/rpc/calls/pending_call.h"
#include "sinew/rpc/link/identity_codec.h"
#include "sinew/rpc/membership/control_plane.h"
#include "sinew/rpc/membership/scheduler.h"
#include "sinew/rpc/worker/thread_plan.h"
#include "sinew/rpc/worker/worker_core.h"

namespace sinew::internal {
namespace {

// Longer than leaving takes.
constexpr auto kLeavingTime = std::chrono::seconds(5);
constexpr std::size_t kMaxLost = 4096;
// Of beats, where the user has no wish.
constexpr std::chrono::nanoseconds kLongestInterval = std::chrono::seconds(2);
// Nothing tells of the last receipt.
constexpr auto kReceiptPoll = std::chrono::milliseconds(5);
constexpr std::chrono::nanoseconds kLongestWait = std::chrono::hours(24);

CallLink& calls_of(const std::shared_ptr<LinkUser>& user) { return static_cast<CallLink&>(*user); }

}  // namespace

LeaseTerms terms_of(const WorkerOptions& options) {
  const bool chosen = options.heartbeat_interval > std::chrono::nanoseconds(0);
  return {chosen ? options.heartbeat_interval : std::min(options.lease / 7, kLongestInterval),
          options.lease};
}

WorkerLinks::WorkerLinks(WorkerCore& core)
    : core_(core), table_(table_options(), core.control_executor(), core.timers()) {}

LinkTableOptions WorkerLinks::table_options() const {
  const WorkerOptions& options = core_.options();
  LinkTableOptions table;
  table.self = core_.description();
  table.limits.max_frame_bytes = options.max_message_bytes;
  table.limits.request_window_bytes = receive_window(options, read_host_limits());
  table.limits.reply_window_bytes = table.limits.request_window_bytes;
  table.terms = terms_of(options);
  table.send_window_bytes = options.send_window_bytes;
  WorkerCore& core = core_;
  table.make_user = [&core](const std::shared_ptr<LinkRunner>& runner) {
    return std::make_shared<CallLink>(core, runner);
  };
  table.known_as = [this](const WorkerInfo& worker) {
    return is_lost(worker) ? Refusal::kLostHere : Refusal::kNone;
  };
  table.on_registrar_asked = [&core](const proto::Hello& said) {
    return core.on_registrar_asked(said);
  };
  table.is_member = [&core](const WorkerInfo& worker) { return core.rank_of(worker) >= 0; };
  return table;
}

// ---- Peers.

absl::StatusOr<std::shared_ptr<CallLink>> WorkerLinks::link_with(const Member& member) {
  absl::StatusOr<LinkTable::Link> link = table_.find_or_make(member.worker, member.address);
  if (!link.ok()) return link.status();
  // After it was made: code that takes the peer for lost notes that before it looks for its link.
  absl::Status lost;
  bool left = false;
  {
    MutexLock lock(mutex_);
    const auto found = lost_.find(member.worker.incarnation);
    if (found != lost_.end()) {
      lost = found->second.reason;
      left = found->second.left;
    }
  }
  auto calls = std::static_pointer_cast<CallLink>(link->user);
  calls->set_rank(member.worker.rank);
  if (left && !link->runner->is_unused()) {
    calls->retire(lost, CallLink::LastAnswers::kMayCome);
  } else if (!lost.ok()) {
    calls->close(lost);
  } else {
    link->runner->set_address(member.address);
  }
  return calls;
}

absl::StatusOr<std::shared_ptr<CallLink>> WorkerLinks::find(const WorkerInfo& worker) {
  absl::StatusOr<Member> member = core_.directory().find(worker);
  if (member.ok()) return link_with(*member);
  // What it was is still an error that says so.
  if (!is_lost(worker)) return member.status();
  return link_with({worker, ""});
}

absl::StatusOr<std::shared_ptr<CallLink>> WorkerLinks::find(std::string_view name) {
  absl::StatusOr<Member> member = core_.directory().find(name);
  if (!member.ok()) return member.status();
  return link_with(*member);
}

absl::StatusOr<std::shared_ptr<CallLink>> WorkerLinks::find(std::int32_t rank) {
  absl::StatusOr<Member> member = core_.directory().find(rank);
  if (!member.ok()) return member.status();
  return link_with(*member);
}

void WorkerLinks::on_joined(const std::vector<Member>& members) {
  for (const Member& member : members) {
    if (const auto link = table_.find(member.worker); link.runner != nullptr) {
      link.runner->set_address(member.address);
      calls_of(link.user).on_member(member.worker.rank);
    }
  }
}

// ---- Loss.

bool WorkerLinks::is_lost(const WorkerInfo& worker) const {
  MutexLock lock(mutex_);
  return lost_.contains(worker.incarnation);
}

void WorkerLinks::remember_locked(const WorkerInfo& worker, const absl::Status& reason) {
  lost_[worker.incarnation].reason = reason;
  lost_order_.push_back(worker.incarnation);
  if (lost_order_.size() <= kMaxLost) return;
  lost_.erase(lost_order_.front());
  lost_order_.pop_front();
}

void WorkerLinks::on_link_ended(const WorkerInfo& peer, EndedLink link) {
  // A guest that has gone is not lost.
  if (peer.rank < 0 && core_.rank_of(peer) < 0) return link.retire(link.reason);
  if (link.cause == Gone::kProcessEnded) return on_judged({peer, std::move(link)});
  judge(peer, std::move(link));
}

// Nothing can be sent any more. What waits is not told that the other end is lost if it is this
// one.
void WorkerLinks::judge(const WorkerInfo& worker, EndedLink link) {
  // Whichever of the two is evicted: from here on this worker uses nothing of the other one.
  core_.tell_fenced(worker);
  // That it has ended the link is no silence.
  if (link.cause != Gone::kLinkEndedThere) core_.member_events().suspected(worker);
  Judged judged{worker, std::move(link)};
  std::uint64_t id = 0;
  bool closed = false;
  {
    MutexLock lock(mutex_);
    closed = closed_;
    id = next_judged_++;
    if (!closed) judging_.emplace(id, std::move(judged));
  }
  if (closed) return on_judged(judged);
  core_.when_sure([weak = core_.weak_from_this(), id] {
    if (const auto core = weak.lock()) core->links().end_judging(id);
  });
}

std::optional<EndedLink> WorkerLinks::find_judged_locked(const WorkerInfo& worker) const {
  for (const auto& [id, judged] : judging_) {
    if (judged.worker.incarnation == worker.incarnation) return judged.link;
  }
  return std::nullopt;
}

void WorkerLinks::end_judging(std::uint64_t id) {
  std::optional<Judged> judged;
  {
    MutexLock lock(mutex_);
    const auto found = judging_.find(id);
    if (found == judging_.end()) return;
    judged = std::move(found->second);
    judging_.erase(found);
  }
  on_judged(*judged);
}

void WorkerLinks::on_judged(const Judged& judged) {
  const EndedLink& link = judged.link;
  const absl::Status evicted = core_.evicted();
  const absl::Status reason = evicted.ok() ? link.reason : evicted;
  // Who has ended the link itself, or has ended, uses nothing of ours any more.
  const bool may_live = link.cause != Gone::kProcessEnded && link.cause != Gone::kLinkEndedThere;
  note_lost(judged.worker, reason, {link.cause, may_live}, link);
  link.retire(reason);
  if (may_live) drop_at(judged.worker, link.drop_at);
}

void WorkerLinks::note_lost(const WorkerInfo& worker, const absl::Status& reason, Loss loss,
                            std::optional<EndedLink> ended) {
  if (worker.incarnation == core_.self().incarnation) return;
  const bool left = loss.why == Gone::kLeft;
  const bool is_listed = !ended.has_value() && !loss.may_live;
  bool is_first = false;
  bool was_silent = false;
  {
    MutexLock lock(mutex_);
    is_first = !lost_.contains(worker.incarnation);
    if (is_first) {
      remember_locked(worker, reason);
      // A caller that knows which one is evicted need not wait for the verdict.
      if (!ended.has_value()) ended = find_judged_locked(worker);
      lost_[worker.incarnation].silent = ended.has_value() && ended->cause == Gone::kSilent;
      lost_[worker.incarnation].left = left;
    }
    was_silent = lost_[worker.incarnation].silent;
  }
  if (is_first) {
    // Its own eviction a worker logs once, not for each of the others.
    const bool is_news = !left && !core_.is_leaving();
    if (is_news && core_.evicted().ok()) core_.log(std::string(reason.message()));
    if (ended.has_value()) ended->retire(reason);
    // Also one that was made while it was judged; it was of no effect.
    Clock::TimePoint safe_at = end_link(worker, reason, left);
    if (ended.has_value()) safe_at = std::max(safe_at, ended->drop_at);
    if (left || !core_.is_leaving()) {
      core_.member_events().gone(worker, loss.why, std::string(reason.message()));
    }
    core_.tell_fenced(worker);
    // A peer that may live counts on its beats which were answered here: what it holds is kept
    // until it has fenced itself.
    if (loss.may_live) drop_at(worker, safe_at);
    core_.tell_membership_lost(worker, loss.why == Gone::kProcessEnded,
                               std::string(reason.message()));
  }
  if (loss.may_live || (is_listed && !left && was_silent)) return;
  drop(worker);
}

Clock::TimePoint WorkerLinks::end_link(const WorkerInfo& worker, const absl::Status& reason,
                                       bool left) {
  const LinkTable::Link link = table_.find(worker);
  if (link.runner == nullptr) return core_.clock().now();
  const Clock::TimePoint safe_at = link.runner->drop_at();
  calls_of(link.user).retire(reason,
                             left ? CallLink::LastAnswers::kMayCome : CallLink::LastAnswers::kNone);
  if (!left) {
    link.runner->close(reason);
    return safe_at;
  }
  // It still waits for the answer to its goodbye, and others may know that before its last messages
  // have arrived here. It mostly ends the link itself.
  core_.timers().run_at(core_.clock().now() + kLeavingTime,
                        [runner = link.runner, reason] { runner->close(reason); });
  return safe_at;
}

void WorkerLinks::drop_at(const WorkerInfo& worker, Clock::TimePoint when) {
  if (when <= core_.clock().now()) return drop(worker);
  core_.timers().run_at(when, [weak = core_.weak_from_this(), worker] {
    if (auto core = weak.lock()) core->links().drop(worker);
  });
}

void WorkerLinks::drop(const WorkerInfo& worker) {
  {
    MutexLock lock(mutex_);
    const auto found = lost_.find(worker.incarnation);
    if (found == lost_.end() || found->second.dropped) return;
    found->second.dropped = true;
  }
  core_.tell_lost(worker);
}

// ---- Running the job.

Future<std::string> WorkerLinks::call(CallLink& link, std::string_view method, std::string body,
                                      std::chrono::nanoseconds timeout) {
  proto::Envelope envelope;
  envelope.mutable_call()->set_method(std::string(method));
  envelope.mutable_call()->add_arguments()->set_binary(std::move(body));
  auto pending = std::make_unique<TypedPendingCall<Bytes>>(core_.control_executor().runner());
  pending->method = std::string(method);
  pending->started = core_.clock().now();
  pending->deadline = deadline_after(pending->started, timeout);
  Future<Bytes> answer = pending->future();
  link.start_call(std::move(pending), envelope, {}, Lane::kControl);
  return answer.then([](const Bytes& bytes) { return bytes.data; });
}

void WorkerLinks::flush(std::chrono::nanoseconds patience) const {
  const auto end = std::chrono::steady_clock::now() + patience;
  const auto is_done = [this] {
    const std::vector<LinkTable::Link> links = table_.all();
    return std::all_of(links.begin(), links.end(), [](const LinkTable::Link& link) {
      // An answer that is only just known has not become a frame yet.
      return !link.runner->is_up() ||
             (!calls_of(link.user).is_answering() && link.runner->frames() == 0);
    });
  };
  // Rare, and short.
  while (!is_done() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(kReceiptPoll);
  }
}

absl::Status WorkerLinks::deliver_results(std::chrono::nanoseconds patience) {
  const auto end = std::chrono::steady_clock::now() + std::min(patience, kLongestWait);
  const std::vector<LinkTable::Link> links = table_.all();
  // Others call until they know that this worker leaves: what it answers meanwhile does not count.
  std::vector<FrameToken> last;
  last.reserve(links.size());
  for (const LinkTable::Link& link : links) last.push_back(link.runner->last_token());
  Future<std::string> heard;
  for (std::size_t i = 0; i < links.size();) {
    const LinkRunner& runner = *links[i].runner;
    const std::size_t missing = runner.is_up() ? runner.replies_until(last[i]) : 0;
    if (missing == 0) {
      ++i;
      heard = {};
    } else if (std::chrono::steady_clock::now() >= end) {
      return absl::DeadlineExceededError(absl::StrCat(missing,
                                                      " results have not arrived at worker '",
                                                      calls_of(links[i].user).peer().name, "'"));
    } else {
      // A receipt for little comes with what is said next: an answer, or the next heartbeat.
      if (!heard.valid() || heard.done()) {
        heard = call(calls_of(links[i].user), CallServer::kHeardMethod, "", patience);
      }
      std::this_thread::sleep_for(kReceiptPoll);
    }
  }
  return absl::OkStatus();
}

void WorkerLinks::add_methods() {
  core_.add_control_method(
      std::string(CallServer::kHeardMethod),
      [](const WorkerInfo&, const std::string&) { return make_ready_future(std::string()); });
}

// What closes a connection drops what it has not written, and the other end may drop what it has
// not read. Receipts are in no hurry, so each peer is asked for one: who answers has heard what was
// said before. Any answer will do.
void WorkerLinks::deliver_answers(std::chrono::nanoseconds patience) {
  const Clock::TimePoint end = core_.clock().now() + patience;
  const auto wait = [&](const auto& future) {
    try {
      future.wait_for(std::max<std::chrono::nanoseconds>(end - core_.clock().now(),
                                                         std::chrono::nanoseconds(1)));
    } catch (const RpcError&) {
      // No peer is there any more to take an answer, or takes it now.
    }
  };
  // Answers that are decided become frames: each is one task ahead of this one.
  const Promise<void> behind_them(&core_.control_executor());
  if (!core_.control_executor().post([behind_them] { behind_them.set_value(); })) return;
  wait(behind_them.future());
  std::vector<Future<std::string>> heard;
  for (const LinkTable::Link& link : table_.all()) {
    CallLink& calls = calls_of(link.user);
    if (link.runner->is_loopback() || !link.runner->is_up() || !calls.is_answering()) continue;
    heard.push_back(call(calls, CallServer::kHeardMethod, "", patience));
  }
  for (const Future<std::string>& each : heard) wait(each);
}

void WorkerLinks::close(const absl::Status& reason) {
  table_.close(reason);
  std::map<std::uint64_t, Judged> judging;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    judging.swap(judging_);
  }
  for (const auto& [id, judged] : judging) on_judged(judged);
}

}  // namespace sinew::internal
