#pragma once

#include <memory>
#include <vector>

#include "c10/core/Event.h"
#include "c10/core/Stream.h"
#include "sinew/rpc/base/internal/queued_work.h"
#include "sinew/rpc/device/device_runtime.h"

namespace sinew::internal {

/// Events behind what a thread had queued on its current streams.
class StreamWork final : public QueuedWork {
 public:
  /// A FindQueuedWork. Streams that capture a graph have no work yet.
  static std::shared_ptr<const QueuedWork> of_this_thread(QueuedOn which);

  /// Current streams that capture a graph are left out: a capture that waited for what is not in it
  /// would fail.
  void precede_this_thread() const override;

 private:
  struct Mark {
    std::shared_ptr<const DeviceRuntime> runtime;
    c10::Stream stream;
    c10::Event event;
  };

  explicit StreamWork(std::vector<Mark> marks);

  const std::vector<Mark> marks_;
};

}  // namespace sinew::internal
