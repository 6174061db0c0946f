#pragma once

#include <map>

#include "absl/base/thread_annotations.h"
#include "sinew/optim/internal/checkpoint_messages.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/internal/mutex.h"

namespace sinew::internal {

/// Saves of one optimizer that have been begun, and that their trainers have not asked for yet.
/// Thread-safe.
class PendingSaves {
 public:
  void add(const CheckpointId& id, Future<void> written);
  /// Hands it out, once. Throws RpcError kNotFound.
  Future<void> take(const CheckpointId& id);

 private:
  Mutex mutex_;
  std::map<CheckpointId, Future<void>> writing_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
