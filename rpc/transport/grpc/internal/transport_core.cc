#include "sinew/rpc/transport/grpc/internal/transport_core.h"

#include <algorithm>
#include <utility>

#include "sinew/rpc/transport/grpc/internal/grpc_connection.h"

namespace sinew::internal {

TransportCore::TransportCore(GrpcTransportOptions options) : options_(std::move(options)) {}

TransportCore::Hold& TransportCore::Hold::operator=(Hold&& other) noexcept {
  reset();
  core_ = std::move(other.core_);
  return *this;
}

void TransportCore::Hold::reset() {
  if (auto core = std::exchange(core_, nullptr)) core->release();
}

TransportCore::Hold TransportCore::hold() {
  absl::MutexLock lock(&mutex_);
  if (closing_ && holds_ == 0) return Hold();
  ++holds_;
  return Hold(shared_from_this());
}

TransportCore::Hold TransportCore::add(const std::shared_ptr<GrpcConnection>& connection) {
  absl::MutexLock lock(&mutex_);
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
  absl::MutexLock lock(&mutex_);
  --holds_;
}

TimerQueue::TimerId TransportCore::run_after(std::chrono::nanoseconds delay, Task task) {
  absl::MutexLock lock(&mutex_);
  if (timers_ == nullptr) return 0;
  return timers_->run_at(
      Clock::system().now() + std::chrono::duration_cast<Clock::TimePoint::duration>(delay),
      std::move(task));
}

void TransportCore::cancel_timer(TimerQueue::TimerId timer) {
  absl::MutexLock lock(&mutex_);
  if (timers_ != nullptr) timers_->cancel(timer);
}

bool TransportCore::begin_shutdown() {
  std::vector<std::weak_ptr<GrpcConnection>> connections;
  {
    absl::MutexLock lock(&mutex_);
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
  std::unique_ptr<TimerQueue> timers;
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(
      +[](std::size_t* holds) { return *holds == 0; }, &holds_));
  timers.swap(timers_);
  // The lock goes first, then the queue with its thread, whose last task may want the lock.
}

}  // namespace sinew::internal
