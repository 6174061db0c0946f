#include "sinew/rpc/worker/member_events.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/log.h"

namespace sinew::internal {

// ---- MemberSubscription.

MemberSubscription::MemberSubscription(std::string name, std::shared_ptr<TaskRunner> runner,
                                       OnMember on_member)
    : name_(std::move(name)), runner_(std::move(runner)), on_member_(std::move(on_member)) {}

void MemberSubscription::post(const MemberEvent& event) {
  {
    MutexLock lock(mutex_);
    if (ended_) return;
    events_.push_back(event);
    if (std::exchange(scheduled_, true)) return;
  }
  if (runner_->post([self = shared_from_this()] { self->run_all(); })) return;
  MutexLock lock(mutex_);
  events_.clear();
  scheduled_ = false;
}

// In one task: what is known when the runner ends its work, such as the eviction that makes it end,
// is still told.
void MemberSubscription::run_all() {
  while (true) {
    MemberEvent event;
    {
      MutexLock lock(mutex_);
      if (ended_ || events_.empty()) {
        scheduled_ = false;
        return;
      }
      event = std::move(events_.front());
      events_.pop_front();
      runs_on_ = std::this_thread::get_id();
    }
    run(event);
  }
}

void MemberSubscription::run(const MemberEvent& event) {
  try {
    on_member_(event);
  } catch (...) {
    log_line(name_, absl::StrCat("a function of on_member() threw: ",
                                 describe(std::current_exception()).message));
  }
  bool ended = false;
  {
    MutexLock lock(mutex_);
    ended = ended_;
  }
  // By itself, or a thread waits for it.
  if (ended) on_member_ = nullptr;
  MutexLock lock(mutex_);
  runs_on_ = std::thread::id();
  changed_.notify_all();
}

void MemberSubscription::end() {
  if (process_.is_orphan()) return;
  ProcessLife::move_on_if_exiting();
  {
    MutexLock lock(mutex_);
    ended_ = true;
    if (runs_on_ == std::this_thread::get_id()) return;
    events_.clear();
    while (runs_on_ != std::thread::id()) changed_.wait(mutex_);
  }
  on_member_ = nullptr;
}

// ---- MemberEvents.

MemberEvents::MemberEvents(std::function<bool(const WorkerInfo&)> is_lost)
    : is_lost_(std::move(is_lost)) {}

bool MemberEvents::add(const std::shared_ptr<MemberSubscription>& subscription) {
  MutexLock lock(mutex_);
  if (evicted_) return false;
  subscriptions_.erase(std::remove_if(subscriptions_.begin(), subscriptions_.end(),
                                      [](const auto& each) { return each.expired(); }),
                       subscriptions_.end());
  subscriptions_.push_back(subscription);
  return true;
}

void MemberEvents::joined(const WorkerInfo& worker) {
  MutexLock lock(mutex_);
  // Another thread may know more by now, and has not found this worker here.
  if (is_lost_(worker) || !known_.emplace(worker.incarnation, Known{worker, false}).second) return;
  publish_locked({MemberEvent::Kind::kJoined, worker, "", {}});
}

void MemberEvents::suspected(const WorkerInfo& worker) { set_suspected(worker, true); }

void MemberEvents::trusted(const WorkerInfo& worker) { set_suspected(worker, false); }

void MemberEvents::set_suspected(const WorkerInfo& worker, bool suspected) {
  MutexLock lock(mutex_);
  const auto found = known_.find(worker.incarnation);
  if (found == known_.end() || found->second.suspected == suspected) return;
  found->second.suspected = suspected;
  const auto kind = suspected ? MemberEvent::Kind::kSuspected : MemberEvent::Kind::kTrusted;
  publish_locked({kind, found->second.worker, "", {}});
}

void MemberEvents::gone(const WorkerInfo& worker, Gone why, const std::string& reason) {
  MutexLock lock(mutex_);
  const auto found = known_.find(worker.incarnation);
  if (found == known_.end()) return;
  MemberEvent event{MemberEvent::Kind::kLost, found->second.worker, reason, why};
  if (why == Gone::kLeft) event = {MemberEvent::Kind::kLeft, found->second.worker, "", why};
  known_.erase(found);
  publish_locked(event);
}

void MemberEvents::evicted(const WorkerInfo& self, const std::string& reason) {
  MutexLock lock(mutex_);
  publish_locked({MemberEvent::Kind::kEvicted, self, reason, {}});
  evicted_ = true;
}

void MemberEvents::publish_locked(const MemberEvent& event) {
  if (evicted_) return;
  for (const auto& each : subscriptions_) {
    if (const auto subscription = each.lock()) subscription->post(event);
  }
}

}  // namespace sinew::internal
