#pragma once

#include <functional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/transport/frame.h"

namespace sinew::internal {

/// Hands the frames of one lane to the connection's user one batch after the other. They come from
/// several streams (the lane's own, the bulk one when they were waiting for payloads, and for the
/// first calls that of the control lane); a thread that finds another one delivering leaves its
/// frames to that one. Thread-safe.
class FrameDelivery {
 public:
  /// `deliver` runs without a lock held, never twice at a time.
  explicit FrameDelivery(std::function<void(std::vector<Frame>)> deliver)
      : deliver_(std::move(deliver)) {}

  void add(std::vector<Frame> frames);

 private:
  const std::function<void(std::vector<Frame>)> deliver_;
  Mutex mutex_;
  std::vector<Frame> ready_ ABSL_GUARDED_BY(mutex_);
  bool delivering_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sinew::internal
