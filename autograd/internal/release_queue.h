#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "sinew/autograd/context_id.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/threads/timer_queue.h"

namespace sinew::internal {

class WorkerServices;

/// As autograd's notes name it: each is an AutogradRelease.
inline constexpr std::string_view kAutogradLayer = "autograd";

/// Tells other workers that contexts have ended, or that they are here, until they know or are
/// lost. The first one due is told at once, by the thread that adds it; a worker is told every two
/// milliseconds at most, and within ten. Thread-safe; the caller of the first two holds no lock
/// that sending takes.
class ReleaseQueue {
 public:
  explicit ReleaseQueue(WorkerServices& services);
  ~ReleaseQueue();

  /// `live_from`: contexts of the same creator with a smaller serial have ended too.
  void add_ended(const WorkerInfo& worker, const autograd::ContextId& context,
                 std::uint64_t live_from);
  /// A context of `worker`, which may not know that it is here.
  void add_held(const WorkerInfo& worker, const autograd::ContextId& context);
  /// Completes when nothing is left to tell, or at the deadline.
  Future<void> when_empty(Clock::TimePoint deadline) const;
  /// That worker is lost: it need not know.
  void forget(Incarnation worker);
  /// Forgets everything and sends nothing any more.
  void stop();

 private:
  class State;
  const std::shared_ptr<State> state_;
};

}  // namespace sinew::internal
