#pragma once

#include <cstddef>
#include <deque>
#include <exception>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/internal/mutex.h"

namespace sinew::internal {

/// Whether a call has failed since its callee is lost.
bool is_loss(const std::exception_ptr& error);

/// Which of several calls have ended, in order, for one reader. Thread-safe.
class TeamArrivals {
 public:
  void add(std::size_t which);
  /// Completes with the next one.
  Future<std::size_t> take();
  /// What was taken last is not waited for any more. True: it has arrived meanwhile.
  bool give_up(const Future<std::size_t>& taken);

 private:
  Mutex mutex_;
  std::deque<std::size_t> arrived_ ABSL_GUARDED_BY(mutex_);
  std::optional<Promise<std::size_t>> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
