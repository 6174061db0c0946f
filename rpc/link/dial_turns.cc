#include "sinew/rpc/link/dial_turns.h"

#include <utility>

namespace sinew::internal {

void DialTurns::enter(Incarnation peer, Begin begin) {
  std::uint64_t turn = 0;
  {
    MutexLock lock(mutex_);
    if (closed_) return;
    if (running_.size() >= kAtOnce) {
      // Modulo 2^64: the ring is closed.
      waiting_.emplace(peer.value - self_.value, std::move(begin));
      return;
    }
    turn = take_turn_locked();
  }
  post(turn, std::move(begin));
}

std::uint64_t DialTurns::take_turn_locked() {
  const std::uint64_t turn = ++last_turn_;
  const auto leave_late = [weak = weak_from_this(), turn] {
    if (const auto self = weak.lock()) self->leave(turn);
  };
  running_.emplace(turn, timers_.run_at(Clock::system().now() + kLongest, leave_late));
  return turn;
}

void DialTurns::post(std::uint64_t turn, Begin begin) {
  Credit end([self = shared_from_this(), turn] { self->leave(turn); });
  executor_.post([begin = std::move(begin), end = std::move(end)]() mutable {
    std::move(begin)(std::move(end));
  });
}

void DialTurns::leave(std::uint64_t turn) {
  Begin next;
  std::uint64_t next_turn = 0;
  {
    MutexLock lock(mutex_);
    const auto found = running_.find(turn);
    if (closed_ || found == running_.end()) return;
    timers_.cancel(found->second);
    running_.erase(found);
    if (waiting_.empty()) return;
    next = std::move(waiting_.begin()->second);
    waiting_.erase(waiting_.begin());
    next_turn = take_turn_locked();
  }
  post(next_turn, std::move(next));
}

void DialTurns::close() {
  decltype(waiting_) dropped;  // Goes after the lock.
  MutexLock lock(mutex_);
  closed_ = true;
  dropped.swap(waiting_);
}

}  // namespace sinew::internal
