#include "sinew/rpc/planes/plane_turns.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace sinew::internal {

void PlaneTurns::enter(Begin begin) {
  {
    MutexLock lock(mutex_);
    waiting_.push_back(std::move(begin));
    if (std::exchange(busy_, true)) return;
  }
  run_next_after(std::chrono::nanoseconds(0));
}

void PlaneTurns::run_next() {
  std::chrono::nanoseconds pause = kPause;
  for (bool begun = false; !begun;) {
    Begin next;
    {
      MutexLock lock(mutex_);
      if (waiting_.empty()) {
        busy_ = false;
        return;
      }
      next = std::move(waiting_.front());
      waiting_.pop_front();
      pause = std::min(kPause, kTimeForAll / static_cast<std::int64_t>(waiting_.size() + 1));
    }
    begun = std::move(next)();
  }
  run_next_after(pause);
}

void PlaneTurns::run_next_after(std::chrono::nanoseconds delay) {
  run_after_(delay, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->run_next();
  });
}

}  // namespace sinew::internal
