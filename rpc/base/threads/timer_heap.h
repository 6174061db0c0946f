#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sinew/rpc/base/threads/timer_queue.h"

namespace sinew::internal {

/// Which callback is due when, without a clock, a thread or a lock. Adding costs O(log n); removing
/// O(1) on average, since an entry leaves the map at once and the heap later: at the latest when
/// the removed ones outnumber the others.
class TimerHeap {
 public:
  using TimePoint = Clock::TimePoint;
  using TimerId = Timers::TimerId;

  TimerId add(TimePoint when, Task task);
  /// The callback, which the caller may destroy without a lock; null if it is not here any more.
  Task remove(TimerId id);
  /// Removes and returns the earliest callback that is due at `now`; null if there is none.
  Task pop_due(TimePoint now);
  /// TimePoint::max() if there is none.
  TimePoint next_due();
  std::size_t size() const { return tasks_.size(); }
  /// For tests: entries in memory, those of removed callbacks included.
  std::size_t heap_size() const { return heap_.size(); }

 private:
  struct Entry {
    TimePoint when;
    TimerId id;
    // Turned around, since the standard heaps have the greatest on top.
    friend bool operator<(const Entry& a, const Entry& b) {
      return a.when != b.when ? b.when < a.when : b.id < a.id;
    }
  };
  void drop_removed_from_top();

  std::vector<Entry> heap_;
  absl::flat_hash_map<TimerId, Task> tasks_;
  TimerId last_id_ = 0;
};

}  // namespace sinew::internal
