#include "sinew/rpc/calls/caller_record.h"

#include <utility>

#include "sinew/rpc/worker/worker_core.h"

namespace sinew::internal {
namespace {

// A caller that reads slowly gets its replies in time, one that has stopped costs a look now and
// then.
constexpr auto kRetryUnsent = std::chrono::milliseconds(20);

Frame copy_of(const Frame& frame) {
  Frame copy;
  copy.envelope = frame.envelope;
  copy.payloads = frame.payloads;
  return copy;
}

}  // namespace

CallerRecord::CallerRecord(WorkerCore& core, WorkerInfo caller)
    : core_(core), caller_(std::move(caller)), last_beat_(core.clock().now()) {}

void CallerRecord::set_connection(std::shared_ptr<Connection> connection) {
  std::shared_ptr<Connection> previous;
  {
    MutexLock lock(mutex_);
    previous = std::exchange(connection_, std::move(connection));
  }
  if (previous != nullptr) {
    previous->close(absl::CancelledError("the caller has opened another connection"));
  }
}

void CallerRecord::connection_lost(const std::shared_ptr<Connection>& connection) {
  MutexLock lock(mutex_);
  if (connection_ == connection) connection_ = nullptr;
}

void CallerRecord::on_beat(Clock::TimePoint now) {
  MutexLock lock(mutex_);
  last_beat_ = now;
}

Clock::TimePoint CallerRecord::last_beat() const {
  MutexLock lock(mutex_);
  return last_beat_;
}

CallerRecord::Admission CallerRecord::admit(std::uint64_t call_id, Lane lane) {
  Frame again;
  {
    MutexLock lock(mutex_);
    if (closed_) return Admission::kRefuse;
    if (call_id < forgotten_below_) return Admission::kDrop;
    const auto [found, inserted] = served_.try_emplace(call_id);
    if (inserted) {
      found->second.lane = lane;
      return Admission::kRun;
    }
    if (!found->second.answered) return Admission::kDrop;
    again = copy_of(found->second.reply);
    lane = found->second.lane;
  }
  send(call_id, lane, std::move(again));
  return Admission::kDrop;
}

void CallerRecord::begin(std::uint64_t call_id, const std::shared_ptr<Invocation>& invocation) {
  MutexLock lock(mutex_);
  const auto found = served_.find(call_id);
  if (found != served_.end() && !found->second.answered) found->second.running = invocation;
}

void CallerRecord::on_reply(std::uint64_t call_id, Frame reply, std::vector<OnCarrierEnd> on_end) {
  std::shared_ptr<Invocation> finished;  // Its destructor may run anything: not under the lock.
  Lane lane = Lane::kCalls;
  bool wanted = false;
  {
    MutexLock lock(mutex_);
    const auto found = served_.find(call_id);
    if (found != served_.end() && !closed_) {
      wanted = true;
      Served& served = found->second;
      finished = std::move(served.running);
      served.answered = true;
      served.reply = copy_of(reply);
      served.on_end.swap(on_end);
      lane = served.lane;
    }
  }
  if (wanted) {
    send(call_id, lane, std::move(reply));
  } else {
    for (OnCarrierEnd& end : on_end) std::move(end)(CarrierEnd::kNotSent);
  }
}

void CallerRecord::send(std::uint64_t call_id, Lane lane, Frame frame) {
  std::shared_ptr<Connection> connection;
  {
    MutexLock lock(mutex_);
    connection = connection_;
  }
  // Without a connection the caller asks again when it has a new one.
  if (connection == nullptr) return;
  if (!absl::IsResourceExhausted(connection->send(lane, std::move(frame)))) return;
  MutexLock lock(mutex_);
  unsent_.insert(call_id);
  if (retrying_) return;
  retrying_ = true;
  core_.timers().run_at(core_.clock().now() + kRetryUnsent, [weak = weak_from_this()] {
    if (auto self = weak.lock()) self->retry_unsent();
  });
}

void CallerRecord::retry_unsent() {
  struct Unsent {
    std::uint64_t id;
    Lane lane;
    Frame frame;
  };
  std::vector<Unsent> unsent;
  {
    MutexLock lock(mutex_);
    retrying_ = false;
    for (const std::uint64_t id : unsent_) {
      const auto found = served_.find(id);
      if (found == served_.end() || !found->second.answered) continue;
      unsent.push_back({id, found->second.lane, copy_of(found->second.reply)});
    }
    unsent_.clear();
  }
  for (Unsent& reply : unsent) send(reply.id, reply.lane, std::move(reply.frame));
}

void CallerRecord::cancel(std::uint64_t call_id) {
  std::shared_ptr<Invocation> running;
  {
    MutexLock lock(mutex_);
    const auto found = served_.find(call_id);
    if (found == served_.end()) return;
    running = found->second.running;
  }
  if (running != nullptr) running->cancel();
}

void CallerRecord::forget_below(std::uint64_t call_id) {
  std::vector<Served> forgotten;
  {
    MutexLock lock(mutex_);
    if (call_id <= forgotten_below_) return;
    forgotten_below_ = call_id;
    const auto end = served_.lower_bound(call_id);
    for (auto at = served_.begin(); at != end; ++at) forgotten.push_back(std::move(at->second));
    served_.erase(served_.begin(), end);
  }
  for (Served& served : forgotten) {
    // The caller gave up on one that still runs, and its Cancel got lost.
    if (served.running != nullptr) served.running->cancel();
    for (OnCarrierEnd& end : served.on_end) std::move(end)(CarrierEnd::kAnswered);
  }
}

void CallerRecord::close(const absl::Status& reason) {
  absl::btree_map<std::uint64_t, Served> served;
  std::shared_ptr<Connection> connection;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    served.swap(served_);
    unsent_.clear();
    connection = std::exchange(connection_, nullptr);
  }
  for (auto& [id, call] : served) {
    if (call.running != nullptr) call.running->cancel();
    for (OnCarrierEnd& end : call.on_end) std::move(end)(CarrierEnd::kFailed);
  }
  if (connection != nullptr) connection->close(reason);
}

}  // namespace sinew::internal
