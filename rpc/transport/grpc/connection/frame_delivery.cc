#include "sinew/rpc/transport/grpc/connection/frame_delivery.h"

#include <iterator>
#include <utility>

namespace sinew::internal {

void FrameDelivery::add(std::vector<Frame> frames) {
  if (frames.empty()) return;
  {
    MutexLock lock(mutex_);
    if (delivering_) {
      std::move(frames.begin(), frames.end(), std::back_inserter(ready_));
      return;
    }
    delivering_ = true;
  }
  while (!frames.empty()) {
    deliver_(std::move(frames));
    frames.clear();
    MutexLock lock(mutex_);
    frames.swap(ready_);
    if (frames.empty()) delivering_ = false;
  }
}

}  // namespace sinew::internal
