#include "actor/transition_queue.h"

#include <algorithm>

namespace actor_learner {

void TransitionQueue::push(const Step& step) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (overflow_ == Overflow::kBlock) {
    changed_.wait(lock, [&] { return closed_ || steps_.size() < capacity_; });
  }
  if (closed_) {
    ++dropped_;
    return;
  }
  if (steps_.size() == capacity_) {
    steps_.pop_front();
    ++dropped_;
  }
  steps_.push_back(step);
  changed_.notify_all();
}

std::vector<Step> TransitionQueue::take(std::size_t least, std::size_t most) {
  std::unique_lock<std::mutex> lock(mutex_);
  // A queue for fewer never has as many.
  const std::size_t wanted = std::min(least, capacity_);
  changed_.wait(lock, [&] { return closed_ || steps_.size() >= wanted; });
  const auto end = steps_.begin() + static_cast<std::ptrdiff_t>(std::min(most, steps_.size()));
  std::vector<Step> taken(steps_.begin(), end);
  steps_.erase(steps_.begin(), end);
  changed_.notify_all();
  return taken;
}

void TransitionQueue::close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

std::int64_t TransitionQueue::dropped() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return dropped_;
}

}  // namespace actor_learner
