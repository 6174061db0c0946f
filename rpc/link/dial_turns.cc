#include "sinew/rpc/link/dial_turns.h"

#include <utility>

namespace sinew::internal {

void DialTurns::enter(Incarnation peer, Begin begin) {
  std::vector<Ready> ready;
  {
    MutexLock lock(mutex_);
    if (closed_) return;
    // Two links may be with one incarnation: one may have ended, or a peer claims a false identity.
    std::swap(begins_[peer], begin);
    if (begin != nullptr) ready.push_back({0, std::move(begin)});
    order_.enter(peer, clock_.now());
    step_locked(ready);
  }
  post(std::move(ready));
}

void DialTurns::on_accepted(Incarnation peer) {
  std::vector<Ready> ready;
  {
    MutexLock lock(mutex_);
    if (closed_) return;
    if (const auto found = begins_.find(peer); found != begins_.end()) {
      ready.push_back({0, std::move(found->second)});
      begins_.erase(found);
    }
    order_.on_accepted(peer, clock_.now());
    step_locked(ready);
  }
  post(std::move(ready));
}

void DialTurns::step_locked(std::vector<Ready>& ready) {
  for (const DialOrder::Begun& begun : order_.begin(clock_.now())) {
    const auto found = begins_.find(begun.peer);
    ready.push_back({begun.turn, std::move(found->second)});
    begins_.erase(found);
  }
  // One that goes off early does no harm, so it is only set anew for an earlier time.
  const Clock::TimePoint wake = order_.wake();
  if (wake < armed_for_) {
    if (timer_ != 0) timers_.cancel(timer_);
    armed_for_ = wake;
    timer_ = timers_.run_at(wake, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->on_timer();
    });
  }
}

void DialTurns::post(std::vector<Ready> ready) {
  for (Ready& each : ready) {
    Credit end;
    if (each.turn != 0) {
      end = Credit([self = shared_from_this(), turn = each.turn] { self->leave(turn); });
    }
    executor_.post([begin = std::move(each.begin), end = std::move(end)]() mutable {
      std::move(begin)(std::move(end));
    });
  }
}

void DialTurns::leave(DialOrder::Turn turn) {
  std::vector<Ready> ready;
  {
    MutexLock lock(mutex_);
    order_.end(turn);
    if (closed_) return;
    step_locked(ready);
  }
  post(std::move(ready));
}

void DialTurns::on_timer() {
  std::vector<Ready> ready;
  {
    MutexLock lock(mutex_);
    armed_for_ = Clock::TimePoint::max();
    timer_ = 0;
    if (closed_) return;
    step_locked(ready);
  }
  post(std::move(ready));
}

void DialTurns::close() {
  decltype(begins_) dropped;  // Goes after the lock.
  MutexLock lock(mutex_);
  closed_ = true;
  dropped.swap(begins_);
  if (timer_ != 0) timers_.cancel(timer_);
  timer_ = 0;
}

}  // namespace sinew::internal
