#include "sinew/rpc/transport/grpc/connection/transport_core.h"

#include <algorithm>
#include <utility>

#include "sinew/rpc/base/host_limits.h"
#include "sinew/rpc/base/receive_pool.h"
#include "sinew/rpc/base/warm_heap.h"
#include "sinew/rpc/planes/same_host/same_host_plane.h"
#include "sinew/rpc/transport/grpc/connection/grpc_connection.h"

namespace sinew::internal {

namespace {

constexpr auto kPoolInterval = std::chrono::seconds(2);

Executor::Options aside_options() {
  Executor::Options options;
  options.num_threads = 2;
  // The message whose copy waits for it would wait without end if it could not be started then.
  options.min_threads = 1;
  options.name = "sinew-aside";
  return options;
}

}  // namespace

TransportCore::TransportCore(GrpcTransportOptions options)
    : options_(std::move(options)),
      plane_log_(options_.log),
      strangers_(options_),
      poller_(options_.tuning.max_poll),
      aside_(aside_options()) {
  planes_.log = [this](const std::string& text) { plane_log_.add(text); };
  if (options_.tuning.same_host_plane) planes_.planes.push_back(make_same_host_plane());
  planes_.planes.insert(planes_.planes.end(), options_.planes.begin(), options_.planes.end());
}

void TransportCore::start() {
  keep_heap_warm();
  tend_pool();
}

TransportCore::Hold& TransportCore::Hold::operator=(Hold&& other) noexcept {
  reset();
  core_ = std::move(other.core_);
  return *this;
}

void TransportCore::Hold::reset() {
  if (auto core = std::exchange(core_, nullptr)) core->release();
}

TransportCore::Hold TransportCore::hold() {
  MutexLock lock(mutex_);
  if (closing_ && holds_ == 0) return Hold();
  ++holds_;
  return Hold(shared_from_this());
}

TransportCore::Hold TransportCore::add(const std::shared_ptr<GrpcConnection>& connection) {
  MutexLock lock(mutex_);
  if (closing_) return Hold();
  if (connections_.size() >= sweep_at_) {
    connections_.erase(std::remove_if(connections_.begin(), connections_.end(),
                                      [](const auto& known) { return known.expired(); }),
                       connections_.end());
    sweep_at_ = std::max<std::size_t>(16, connections_.size() * 2);
  }
  connections_.push_back(connection);
  ++holds_;
  return Hold(shared_from_this());
}

void TransportCore::release() {
  MutexLock lock(mutex_);
  if (--holds_ == 0) none_held_.notify_all();
}

TimerQueue::TimerId TransportCore::run_after(std::chrono::nanoseconds delay, Task task) {
  MutexLock lock(mutex_);
  if (timers_ == nullptr) return 0;
  return timers_->run_at(
      Clock::system().now() + std::chrono::duration_cast<Clock::TimePoint::duration>(delay),
      std::move(task));
}

void TransportCore::tend_pool() {
  ReceivePool& pool = ReceivePool::of_process();
  // They may have been changed meanwhile, as Kubernetes does in place.
  if (const auto memory = read_host_limits().memory) {
    pool.set_bounds(ReceivePool::bounds_for(memory->most));
  }
  pool.release_old();
  run_after(kPoolInterval, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->tend_pool();
  });
}

void TransportCore::cancel_timer(TimerQueue::TimerId timer) {
  MutexLock lock(mutex_);
  if (timers_ != nullptr) timers_->cancel(timer);
}

bool TransportCore::begin_shutdown() {
  std::vector<std::weak_ptr<GrpcConnection>> connections;
  {
    MutexLock lock(mutex_);
    if (std::exchange(closing_, true)) return false;
    connections.swap(connections_);
  }
  for (const std::weak_ptr<GrpcConnection>& known : connections) {
    if (auto connection = known.lock()) {
      connection->close(absl::UnavailableError("the transport shuts down"));
    }
  }
  return true;
}

void TransportCore::finish_shutdown() {
  // Goes after the lock, with its thread, whose last task may want the lock.
  std::unique_ptr<TimerQueue> timers;
  {
    MutexLock lock(mutex_);
    while (holds_ > 0) none_held_.wait(mutex_);
    timers.swap(timers_);
  }
  aside_.shutdown();
}

}  // namespace sinew::internal
