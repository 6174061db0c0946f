#include "sinew/rpc/worker/pauses.h"

#include <utility>

#include "sinew/rpc/base/error.h"

namespace sinew::internal {

Future<void> Pauses::wait_until(Clock::TimePoint when, Executor* executor) {
  const Promise<void> promise(executor);
  absl::Status ended;
  {
    MutexLock lock(mutex_);
    ended = ended_;
    if (ended.ok()) {
      const std::uint64_t number = ++last_number_;
      const Timers::TimerId timer = timers_.run_at(when, [weak = weak_from_this(), number] {
        if (const auto self = weak.lock()) self->on_time(number);
      });
      pauses_.emplace(number, Pause{promise, timer});
    }
  }
  if (!ended.ok()) promise.set_error(make_error(ended));
  return promise.future();
}

void Pauses::on_time(std::uint64_t number) {
  MutexLock lock(mutex_);
  const auto found = pauses_.find(number);
  if (found == pauses_.end()) return;
  const Promise<void> promise = std::move(found->second.promise);
  pauses_.erase(found);
  lock.unlock();
  promise.try_set_value();
}

void Pauses::end(const absl::Status& reason) {
  std::map<std::uint64_t, Pause> pauses;
  {
    MutexLock lock(mutex_);
    if (ended_.ok()) ended_ = reason;
    pauses.swap(pauses_);
  }
  for (const auto& [number, pause] : pauses) {
    timers_.cancel(pause.timer);
    pause.promise.try_set_error(make_error(reason));
  }
}

}  // namespace sinew::internal
