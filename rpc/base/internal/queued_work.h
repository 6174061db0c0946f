#pragma once

#include <memory>

namespace sinew::internal {

/// What a thread has told devices to do, by the order of its current streams. Thread-safe.
class QueuedWork {
 public:
  virtual ~QueuedWork() = default;
  /// What the calling thread queues from now on comes after this work. Does not wait for a device,
  /// nor throw.
  virtual void precede_this_thread() const = 0;
};

/// Which streams of a thread are asked: events on them have their price.
enum class QueuedOn { kAllStreams, kSideStreams };

/// The calling thread's work up to now; null if there is none. Does not wait for a device, nor
/// throw.
std::shared_ptr<const QueuedWork> queued_work(QueuedOn which);

/// Implements queued_work().
using FindQueuedWork = std::shared_ptr<const QueuedWork> (*)(QueuedOn which);
/// Called by the device layer, once there are devices; until then there is no work.
void set_find_queued_work(FindQueuedWork find);
/// Whether there may be work: there are devices.
bool may_have_queued_work();

}  // namespace sinew::internal
