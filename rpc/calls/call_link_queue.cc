// The calls that a CallLink serves, as long as they wait for a thread or for their turn.

#include <algorithm>
#include <cstddef>
#include <utility>

#include "sinew/rpc/calls/call_link.h"
#include "sinew/rpc/calls/call_server.h"
#include "sinew/rpc/calls/queue_limits.h"
#include "sinew/rpc/calls/worker_services.h"

namespace sinew::internal {
namespace {

// Beats and others that the control executor serves come in between.
constexpr std::size_t kMostAtOnce = 256;

}  // namespace

// One timer for all calls of the link, which is set anew for the first of many only.
void CallLink::watch_queue_locked(Clock::TimePoint when) {
  if (when >= queue_armed_for_) return;
  if (queue_timer_ != 0) services_.timers().cancel(queue_timer_);
  queue_armed_for_ = when;
  // Refusing reads the call, which is not for the thread of the timers.
  queue_timer_ = services_.timers().run_at(when, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    self->services_.control_executor().post([self] { self->look_at_queue(); });
  });
}

void CallLink::watch_queued(const Invocation& invocation) {
  MutexLock lock(mutex_);
  if (!retired_.ok()) return;
  watch_queue_locked(
      QueueLimits::look_at(invocation.arrived(), invocation.deadline(), services_.clock().now()));
}

void CallLink::look_at_queue() {
  const Clock::TimePoint now = services_.clock().now();
  std::vector<std::shared_ptr<Invocation>> late;
  Clock::TimePoint oldest = now;
  {
    MutexLock lock(mutex_);
    queue_armed_for_ = Clock::TimePoint::max();
    queue_timer_ = 0;
    if (!retired_.ok()) return;
    Clock::TimePoint next = Clock::TimePoint::max();
    for (const auto& [id, call] : served_) {
      if (!call->is_queued()) continue;
      if (!call->waits_for_turn()) oldest = std::min(oldest, call->arrived());
      if (QueueLimits::refused_at(call->arrived(), call->deadline()) > now) {
        next = std::min(next, QueueLimits::look_at(call->arrived(), call->deadline(), now));
      } else if (late.size() < kMostAtOnce) {
        late.push_back(call);
      } else {
        next = now;
      }
    }
    watch_queue_locked(next);
  }
  services_.server().note_queued(now - oldest);
  for (const std::shared_ptr<Invocation>& call : late) {
    call->refuse_queued(now - call->arrived());
  }
}

void CallLink::end_served() {
  absl::flat_hash_map<std::uint64_t, std::shared_ptr<Invocation>> served;
  std::vector<std::shared_ptr<Invocation>> held;
  std::vector<ArrivedControl> control;
  std::deque<HeldCall> calls;
  {
    MutexLock lock(mutex_);
    served.swap(served_);
    held.swap(held_);
    control.swap(held_control_);
    calls.swap(guest_calls_);
    guest_calls_wait_.store(false, std::memory_order_relaxed);
    cancelled_early_ = {};
    cancelled_order_ = {};
    if (held_timer_ != 0) services_.timers().cancel(std::exchange(held_timer_, 0));
    if (queue_timer_ != 0) services_.timers().cancel(std::exchange(queue_timer_, 0));
  }
  for (auto& [id, running] : served) running->cancel();
  if (order_ != nullptr) order_->end();
}

}  // namespace sinew::internal
