#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "sinew/autograd/context_id.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/internal/mutex.h"

namespace sinew::internal {

class WorkerServices;

/// The control call that says which contexts have ended.
inline constexpr std::string_view kReleaseMethod = "sinew.autograd.release";

/// Tells other workers that contexts have ended, until they know or are lost. What becomes due for
/// a worker within two milliseconds travels together, and so does what is due by the time it has
/// answered. Thread-safe.
class ReleaseQueue {
 public:
  explicit ReleaseQueue(WorkerServices& services);
  ~ReleaseQueue();

  /// `live_from`: contexts of the same creator with a smaller serial have ended too.
  void add(const WorkerInfo& worker, const autograd::ContextId& context, std::uint64_t live_from);
  /// Completes when nothing is left to tell.
  Future<void> when_empty() const;
  /// Forgets everything and sends nothing any more.
  void stop();

 private:
  class State;
  const std::shared_ptr<State> state_;
};

}  // namespace sinew::internal
