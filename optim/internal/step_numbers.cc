#include "sinew/optim/internal/step_numbers.h"

#include <algorithm>

namespace sinew::internal {

std::uint64_t StepNumbers::begin() {
  MutexLock lock(mutex_);
  const std::uint64_t number = ++*last_;
  live_.insert(number);
  return number;
}

void StepNumbers::end(std::uint64_t number) {
  MutexLock lock(mutex_);
  live_.erase(number);
}

std::uint64_t StepNumbers::live_from() const {
  MutexLock lock(mutex_);
  // Whatever begins later gets a greater number: it waits for the lock.
  return live_.empty() ? *last_ + 1 : *live_.begin();
}

std::uint64_t StepNumbers::acknowledged(Incarnation owner) const {
  MutexLock lock(mutex_);
  const auto found = acknowledged_.find(owner.value);
  return found == acknowledged_.end() ? 0 : found->second;
}

void StepNumbers::note_acknowledged(Incarnation owner, std::uint64_t order) {
  MutexLock lock(mutex_);
  std::uint64_t& greatest = acknowledged_[owner.value];
  greatest = std::max(greatest, order);
}

std::shared_ptr<StepNumbers> StepNumbersTable::of(std::uint64_t optimizer) {
  MutexLock lock(mutex_);
  std::weak_ptr<StepNumbers>& known = numbers_[optimizer];
  if (auto numbers = known.lock()) return numbers;
  auto numbers = std::make_shared<StepNumbers>(last_);
  known = numbers;
  if (numbers_.size() >= size_before_pruning_) {
    absl::erase_if(numbers_, [](const auto& one) { return one.second.expired(); });
    size_before_pruning_ = std::max<std::size_t>(64, 2 * numbers_.size());
  }
  return numbers;
}

}  // namespace sinew::internal
