#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/rate_limited_log.h"
#include "sinew/rpc/base/threads/executor.h"
#include "sinew/rpc/base/threads/timer_queue.h"
#include "sinew/rpc/planes/plane_set.h"
#include "sinew/rpc/planes/plane_turns.h"
#include "sinew/rpc/transport/grpc/connection/poller.h"
#include "sinew/rpc/transport/grpc/grpc_transport.h"
#include "sinew/rpc/transport/grpc/server/strangers.h"

namespace sinew::internal {

class GrpcConnection;

/// What the connections of one transport share: its settings, the completion queue, one thread for
/// timers and for callbacks that must not run where their cause arose, and the account of what
/// shutdown() has to wait for. Thread-safe.
class TransportCore : public std::enable_shared_from_this<TransportCore> {
 public:
  /// Keeps shutdown() waiting for as long as it lives. Empty when the transport was closing
  /// already.
  class Hold {
   public:
    Hold() = default;
    Hold(Hold&& other) noexcept : core_(std::move(other.core_)) {}
    Hold& operator=(Hold&& other) noexcept;
    ~Hold() { reset(); }
    void reset();
    explicit operator bool() const { return core_ != nullptr; }

   private:
    friend class TransportCore;
    explicit Hold(std::shared_ptr<TransportCore> core) : core_(std::move(core)) {}
    std::shared_ptr<TransportCore> core_;
  };

  explicit TransportCore(GrpcTransportOptions options);
  /// What this does by itself.
  void start();

  const GrpcTransportOptions& options() const { return options_; }
  const Transport::Limits& limits() const { return options_.limits; }
  Poller& poller() { return poller_; }
  Planes& planes() { return planes_; }
  PlaneTurns& plane_turns() { return *plane_turns_; }
  Strangers& strangers() { return strangers_; }

  Hold hold();
  /// Enters a connection whose closing shutdown() sees to. An empty hold: too late.
  Hold add(const std::shared_ptr<GrpcConnection>& connection);

  /// Runs `task` on the timers' thread; drops it after shutdown.
  void post(Task task) { run_after(std::chrono::nanoseconds(0), std::move(task)); }
  /// Runs `task`, which takes a while, on a thread for such; drops it after shutdown.
  void run_aside(Task task) { aside_.post(std::move(task)); }
  /// 0 after shutdown.
  TimerQueue::TimerId run_after(std::chrono::nanoseconds delay, Task task);
  void cancel_timer(TimerQueue::TimerId timer);

  /// Gives no more holds and closes all connections. False when that was done before.
  bool begin_shutdown();
  /// Waits until the last hold is gone, and joins the threads but those that poll.
  void finish_shutdown();

 private:
  void release();
  /// Gives memory of the receive pool back to the system, now and from time to time.
  void tend_pool();

  const GrpcTransportOptions options_;
  Planes planes_;
  const std::shared_ptr<PlaneTurns> plane_turns_ = std::make_shared<PlaneTurns>(
      [this](std::chrono::nanoseconds delay, Task task) { run_after(delay, std::move(task)); });
  RateLimitedLog plane_log_;
  Strangers strangers_;
  Poller poller_;
  Executor aside_;
  Mutex mutex_;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  CondVar none_held_;
  std::size_t holds_ ABSL_GUARDED_BY(mutex_) = 0;
  /// Gone ones are swept when the list has doubled.
  std::vector<std::weak_ptr<GrpcConnection>> connections_ ABSL_GUARDED_BY(mutex_);
  std::size_t sweep_at_ ABSL_GUARDED_BY(mutex_) = 16;
  std::unique_ptr<TimerQueue> timers_ ABSL_GUARDED_BY(mutex_) = std::make_unique<TimerQueue>();
};

}  // namespace sinew::internal
