#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/server_builder.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/threads/polling_duty.h"

namespace sinew::internal {

/// What an operation of gRPC reports its end to: the tag of the operation.
class Completion {
 public:
  /// Runs on a polling thread; must not block.
  virtual void on_completion(bool ok) = 0;

 protected:
  ~Completion() = default;
};

/// Reports to a member function.
template <class Owner>
class MemberCompletion final : public Completion {
 public:
  using Method = void (Owner::*)(bool ok);
  MemberCompletion(Owner* owner, Method method) : owner_(owner), method_(method) {}
  void on_completion(bool ok) override { (owner_->*method_)(ok); }

 private:
  Owner* const owner_;
  const Method method_;
};

class LaneStream;

/// The one completion queue of a transport, for the calls that it makes and those that it serves.
/// Two threads are there to poll it, and more where tasks that they run wait. One at a time does,
/// and threads that wait for an answer do in their place: see PollingDuty. Thread-safe.
class Poller final : private EventSource {
 public:
  /// `max_poll` as PollingDuty's. Throws RpcError kResourceExhausted when the threads cannot be
  /// started.
  explicit Poller(std::chrono::nanoseconds max_poll);
  /// As shutdown().
  ~Poller() override;
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  /// The builder of the server whose calls the queue reports. gRPC hands out a queue for servers
  /// only through the builder of one, hence here.
  grpc::ServerBuilder& server_builder() { return builder_; }
  grpc::ServerCompletionQueue* queue() { return queue_.get(); }
  const std::shared_ptr<PollingDuty>& duty() const { return duty_; }

  /// Runs `start`, which starts the operation of `tag`. What ends before `start` returns, as a
  /// write does that the socket takes, wakes no polling thread: the result is returned, and `tag`
  /// is not called. Must not be called inside `start`.
  std::optional<bool> try_now(Completion* tag, absl::FunctionRef<void()> start);

  /// Starts the next read of `stream` before the next poll. Until then it would bring nothing; but
  /// gRPC sends an acknowledgement of what was read in a packet of its own with the start of a
  /// read, unless a write, such as the answer, has taken it along.
  void read_later(std::shared_ptr<LaneStream> stream);

  /// Waits for the end of all operations and joins the threads. No operation is started any more,
  /// and the server is shut down. Idempotent; not on a polling thread.
  void shutdown();

 private:
  Event next(TimePoint deadline) override;
  void handle(const Event& event) override;
  void interrupt() override;
  bool add_thread() override;
  void start_one_locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(threads_mutex_);
  void join_all();

  grpc::ServerBuilder builder_;
  const std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  /// Those who wait may know of it for longer than this object lives.
  const std::shared_ptr<PollingDuty> duty_;
  Mutex threads_mutex_;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(threads_mutex_);
  /// There will be no more.
  bool is_shut_down_ ABSL_GUARDED_BY(threads_mutex_) = false;

  using Reads = absl::InlinedVector<std::shared_ptr<LaneStream>, 2>;
  void start_reads();
  Mutex reads_mutex_;
  Reads reads_ ABSL_GUARDED_BY(reads_mutex_);
  /// There are some.
  std::atomic<bool> reads_wait_{false};
};

}  // namespace sinew::internal
