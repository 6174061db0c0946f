#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/planes/nccl/nccl_api.h"

namespace sinew::internal::nccl {

/// Aborts a communicator on a thread of its own, since ncclCommAbort may never return. Not
/// thread-safe.
class AbortThread {
 public:
  using Owner = std::shared_ptr<const void>;

  /// Null if the system has no thread left.
  static std::shared_ptr<AbortThread> start(std::shared_ptr<NcclApi> nccl,
                                            std::shared_ptr<DeviceApi> device_api, int device,
                                            NcclApi::Comm comm);
  /// Waits for the thread unless it was left behind.
  ~AbortThread();
  AbortThread(const AbortThread&) = delete;
  AbortThread& operator=(const AbortThread&) = delete;

  bool is_done() const;
  /// Stops waiting for the thread. When the abort returns after all, `owners` of what the device
  /// may still touch are dropped, and `on_return` runs on the thread. False if it has returned by
  /// now.
  bool leave_behind(std::vector<Owner> owners, std::function<void()> on_return);

 private:
  struct Shared {
    Mutex mutex;
    bool done ABSL_GUARDED_BY(mutex) = false;
    std::vector<Owner> owners ABSL_GUARDED_BY(mutex);
    std::function<void()> on_return ABSL_GUARDED_BY(mutex);
  };

  AbortThread() = default;

  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::thread thread_;
};

}  // namespace sinew::internal::nccl
