#include "sinew/testing/internal/step_queue.h"

#include <algorithm>
#include <utility>

namespace sinew::internal {

void StepQueue::begin() {
  MutexLock lock(mutex_);
  is_on_ = true;
}

void StepQueue::end() {
  std::map<Place, Waiting> waiting;
  {
    MutexLock lock(mutex_);
    is_on_ = false;
    waiting.swap(waiting_);
  }
  for (auto& [place, each] : waiting) std::move(each.go_on)(std::nullopt);
}

bool StepQueue::is_on() const {
  MutexLock lock(mutex_);
  return is_on_;
}

std::uint64_t StepQueue::new_number() {
  MutexLock lock(mutex_);
  return ++last_number_;
}

void StepQueue::add(testing::Message message, std::uint64_t call_id, GoOn go_on) {
  {
    MutexLock lock(mutex_);
    if (is_on_) {
      const Place place(gone_, message.from(), message.to(), message.leg, call_id, message.number);
      waiting_.emplace(place, Waiting{std::move(message), std::move(go_on)});
      return;
    }
  }
  std::move(go_on)(std::nullopt);
}

std::vector<testing::Message> StepQueue::list() const {
  MutexLock lock(mutex_);
  std::vector<testing::Message> all;
  all.reserve(waiting_.size());
  for (const auto& [place, each] : waiting_) all.push_back(each.message);
  return all;
}

void StepQueue::let_go(std::uint64_t number, std::optional<FaultTable::Verdict> verdict) {
  GoOn go_on;
  {
    MutexLock lock(mutex_);
    const auto found = std::find_if(waiting_.begin(), waiting_.end(), [&](const auto& each) {
      return each.second.message.number == number;
    });
    if (found == waiting_.end()) return;
    ++gone_;
    go_on = std::move(found->second.go_on);
    waiting_.erase(found);
  }
  std::move(go_on)(std::move(verdict));
}

void StepQueue::let_go_of(std::string_view worker) {
  for (const testing::Message& message : list()) {
    if (message.caller == worker || message.callee == worker) let_go(message.number);
  }
}

}  // namespace sinew::internal
