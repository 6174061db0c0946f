#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "sinew/groups/internal/call_signature.h"
#include "sinew/groups/store.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/threads/timer_queue.h"

namespace sinew::internal {

/// Where ranks whose operation takes long write what they are at, so that all can find out who has
/// not come and who calls something else, and where the first one that finds the group's end says
/// why. In the group's store; functions block, for some seconds at most. Without a store, or while
/// it is out of reach, they know nothing. Thread-safe.
class OperationBoard {
 public:
  OperationBoard(Store store, int rank, int size)
      : store_(std::move(store)), rank_(rank), size_(size) {}

  /// This rank is at the group's collective operation of that number.
  void publish(std::uint64_t number, const CallSignature& signature) const;
  /// Of those who have published: whether all of them who are at that operation call the same.
  absl::Status check_agreement(std::uint64_t number, const CallSignature& own) const;
  /// Who has not published that operation or a later one. Empty also when the store is out of
  /// reach.
  std::vector<int> missing_ranks(std::uint64_t number) const;

  /// What the group's end is due to: the first one's reason, which is returned. `reason` itself
  /// when the store is out of reach, and this rank has not read another one before.
  absl::Status agree_on_end(const absl::Status& reason) const;
  /// OK: no rank has written an end.
  absl::Status end() const;
  /// Returns when these ranks have read the group's end, or after some seconds: for the one that
  /// takes the store along when it ends.
  void await_readers(const std::vector<int>& ranks) const;

 private:
  struct Entry {
    std::uint64_t number = 0;
    std::vector<std::int64_t> numbers;
  };
  std::vector<std::optional<Entry>> read() const;
  /// What `f` says; `otherwise` when the store is out of reach.
  template <class T, class F>
  T ask(T otherwise, F f) const;

  /// Returns `reason`, which this rank has read now.
  absl::Status keep_end(const absl::Status& reason) const;

  // Constant after construction.
  const Store store_;
  const int rank_;
  const int size_;

  /// Who decides about a failure must not wait for each question anew.
  mutable std::atomic<Clock::TimePoint> asks_again_{Clock::TimePoint::min()};

  mutable Mutex mutex_;
  /// The group's end, once this rank has read or written it.
  mutable absl::Status end_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
