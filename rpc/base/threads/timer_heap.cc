#include "sinew/rpc/base/threads/timer_heap.h"

#include <algorithm>
#include <utility>

namespace sinew::internal {
namespace {

// Below this many entries the heap is not worth a sweep.
constexpr std::size_t kMinSweep = 64;

}  // namespace

TimerHeap::TimerId TimerHeap::add(TimePoint when, Task task) {
  const TimerId id = ++last_id_;
  tasks_.emplace(id, std::move(task));
  heap_.push_back({when, id});
  std::push_heap(heap_.begin(), heap_.end());
  return id;
}

Task TimerHeap::remove(TimerId id) {
  const auto found = tasks_.find(id);
  if (found == tasks_.end()) return nullptr;
  Task task = std::move(found->second);
  tasks_.erase(found);
  if (heap_.size() > kMinSweep && heap_.size() > 2 * tasks_.size()) {
    const auto removed = [this](const Entry& entry) { return !tasks_.contains(entry.id); };
    heap_.erase(std::remove_if(heap_.begin(), heap_.end(), removed), heap_.end());
    std::make_heap(heap_.begin(), heap_.end());
  }
  return task;
}

Task TimerHeap::pop_due(TimePoint now) {
  if (next_due() > now || heap_.empty()) return nullptr;
  const TimerId id = heap_.front().id;
  std::pop_heap(heap_.begin(), heap_.end());
  heap_.pop_back();
  return remove(id);
}

TimerHeap::TimePoint TimerHeap::next_due() {
  drop_removed_from_top();
  return heap_.empty() ? TimePoint::max() : heap_.front().when;
}

void TimerHeap::drop_removed_from_top() {
  while (!heap_.empty() && !tasks_.contains(heap_.front().id)) {
    std::pop_heap(heap_.begin(), heap_.end());
    heap_.pop_back();
  }
}

}  // namespace sinew::internal
