#include "sinew/rpc/planes/nccl/internal/abort_thread.h"

#include <pthread.h>

#include <system_error>
#include <utility>

namespace sinew::internal::nccl {

std::shared_ptr<AbortThread> AbortThread::start(std::shared_ptr<NcclApi> nccl,
                                                std::shared_ptr<DeviceApi> device_api, int device,
                                                NcclApi::Comm comm) {
  std::shared_ptr<AbortThread> self(new AbortThread());
  try {
    self->thread_ = std::thread([shared = self->shared_, nccl = std::move(nccl),
                                 device_api = std::move(device_api), device, comm] {
      pthread_setname_np(pthread_self(), "sinew-nccl-end");
      // An error of either changes nothing: the communicator is not used again.
      (void)device_api->bind_thread(device);
      (void)nccl->abort(comm);
      std::vector<Owner> owners;
      std::function<void()> on_return;
      MutexLock lock(shared->mutex);
      shared->done = true;
      owners.swap(shared->owners);
      on_return.swap(shared->on_return);
      // Dropping memory may run anybody's code.
      lock.unlock();
      if (on_return != nullptr) on_return();
    });
  } catch (const std::system_error&) {
    return nullptr;
  }
  return self;
}

AbortThread::~AbortThread() {
  if (thread_.joinable()) thread_.join();
}

bool AbortThread::is_done() const {
  MutexLock lock(shared_->mutex);
  return shared_->done;
}

bool AbortThread::leave_behind(std::vector<Owner> owners, std::function<void()> on_return) {
  thread_.detach();
  MutexLock lock(shared_->mutex);
  if (shared_->done) return false;
  shared_->owners = std::move(owners);
  shared_->on_return = std::move(on_return);
  return true;
}

}  // namespace sinew::internal::nccl
