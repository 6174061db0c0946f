#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/base/internal/mutex.h"

namespace sinew::internal {

/// The steps of one optimizer that one worker asks for: those of all handles on it that the worker
/// has. Thread-safe.
class StepNumbers {
 public:
  /// `last`: the number of the worker's last step, of any optimizer.
  explicit StepNumbers(std::shared_ptr<std::atomic<std::uint64_t>> last) : last_(std::move(last)) {}

  /// A number that none of the worker's steps has had, and which is live until end().
  std::uint64_t begin();
  void end(std::uint64_t number);
  /// No step with a smaller number is under way or may be repeated; nor will one be.
  std::uint64_t live_from() const;

  /// The greatest OwnerStep::order with which an owner has said to have applied a step; 0: none.
  std::uint64_t acknowledged(Incarnation owner) const;
  void note_acknowledged(Incarnation owner, std::uint64_t order);

 private:
  const std::shared_ptr<std::atomic<std::uint64_t>> last_;
  mutable Mutex mutex_;
  std::set<std::uint64_t> live_ ABSL_GUARDED_BY(mutex_);
  // By the owner's incarnation.
  absl::flat_hash_map<std::uint64_t, std::uint64_t> acknowledged_ ABSL_GUARDED_BY(mutex_);
};

/// The StepNumbers of one worker, by optimizer, as long as they are in use. Numbers go on where
/// others have ended, since all are drawn from one sequence. Thread-safe.
class StepNumbersTable {
 public:
  std::shared_ptr<StepNumbers> of(std::uint64_t optimizer);

 private:
  const std::shared_ptr<std::atomic<std::uint64_t>> last_ =
      std::make_shared<std::atomic<std::uint64_t>>(0);
  Mutex mutex_;
  absl::flat_hash_map<std::uint64_t, std::weak_ptr<StepNumbers>> numbers_ ABSL_GUARDED_BY(mutex_);
  std::size_t size_before_pruning_ ABSL_GUARDED_BY(mutex_) = 64;
};

}  // namespace sinew::internal
