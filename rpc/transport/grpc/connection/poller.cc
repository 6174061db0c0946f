#include "sinew/rpc/transport/grpc/connection/poller.h"

#include <pthread.h>

#include <chrono>
#include <utility>

#include "grpc/grpc.h"
#include "grpc/support/time.h"
#include "grpcpp/alarm.h"
#include "grpcpp/impl/codegen/completion_queue_tag.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/process_life.h"
#include "sinew/rpc/base/process_room.h"
#include "sinew/rpc/transport/grpc/connection/lane_stream.h"

namespace sinew::internal {
namespace {

/// Brings the end of an operation, of which a thread learned that must not report it, to a polling
/// thread.
class Forwarded final : public Completion {
 public:
  static void send(grpc::CompletionQueue* queue, Completion* to, bool ok) {
    auto* forwarded = new Forwarded(to, ok);
    // Not now: gRPC's timers are whole milliseconds, rounded up, and only what is past is due at
    // once.
    forwarded->alarm_.Set(queue, gpr_inf_past(GPR_CLOCK_MONOTONIC),
                          static_cast<Completion*>(forwarded));
  }
  void on_completion(bool) override {
    to_->on_completion(ok_);
    delete this;
  }

 private:
  Forwarded(Completion* to, bool ok) : to_(to), ok_(ok) {}
  ~Forwarded() = default;
  Completion* const to_;
  const bool ok_;
  grpc::Alarm alarm_;
};

// What an event leads to that only makes a thread look up.
class Nothing final : public Completion {
 public:
  void on_completion(bool) override {}
};
Nothing nothing;

gpr_timespec to_gpr(std::chrono::steady_clock::time_point deadline) {
  using SteadyClock = std::chrono::steady_clock;
  // Asked for a million times a second.
  if (deadline == SteadyClock::time_point::min()) return gpr_inf_past(GPR_CLOCK_MONOTONIC);
  const auto now = SteadyClock::now();
  if (deadline <= now) return gpr_inf_past(GPR_CLOCK_MONOTONIC);
  const std::chrono::nanoseconds left = deadline - now;
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_nanos(left.count(), GPR_TIMESPAN));
}

// One that polls, and one that can take over.
constexpr int kThreads = 2;

}  // namespace

Poller::Poller(std::chrono::nanoseconds max_poll)
    : queue_(builder_.AddCompletionQueue()),
      duty_(std::make_shared<PollingDuty>(static_cast<EventSource*>(this), max_poll)) {
  ProcessLife::let_no_child_start_workers();
  bool is_served = false;
  try {
    MutexLock lock(threads_mutex_);
    for (int i = 0; i < kThreads; ++i) {
      start_one_locked();
      is_served = true;
    }
  } catch (...) {
    queue_->Shutdown();
    // A thread has to see the end of the queue.
    if (!is_served) duty_->serve();
    join_all();
    throw;
  }
}

void Poller::start_one_locked() {
  threads_.push_back(start_thread([this] {
    pthread_setname_np(pthread_self(), "sinew-grpc");
    duty_->serve();
  }));
}

bool Poller::add_thread() {
  MutexLock lock(threads_mutex_);
  if (is_shut_down_) return false;
  try {
    start_one_locked();
  } catch (const RpcError&) {
    // Out of threads: it goes on with those that there are.
    return false;
  }
  return true;
}

void Poller::join_all() {
  std::vector<std::thread> threads;
  {
    MutexLock lock(threads_mutex_);
    is_shut_down_ = true;
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
}

Poller::~Poller() { shutdown(); }

void Poller::read_later(std::shared_ptr<LaneStream> stream) {
  MutexLock lock(reads_mutex_);
  reads_.push_back(std::move(stream));
  reads_wait_.store(true, std::memory_order_release);
}

void Poller::start_reads() {
  Reads reads;
  {
    MutexLock lock(reads_mutex_);
    reads.swap(reads_);
    reads_wait_.store(false, std::memory_order_release);
  }
  for (const auto& stream : reads) stream->start_read();
}

EventSource::Event Poller::next(TimePoint deadline) {
  if (reads_wait_.load(std::memory_order_acquire)) start_reads();
  Event event;
  if (deadline == TimePoint::max()) {
    const bool more = queue_->Next(&event.tag, &event.ok);
    event.kind = more ? Event::Kind::kSomething : Event::Kind::kEnd;
    return event;
  }
  switch (queue_->AsyncNext(&event.tag, &event.ok, to_gpr(deadline))) {
    case grpc::CompletionQueue::GOT_EVENT:
      event.kind = Event::Kind::kSomething;
      break;
    case grpc::CompletionQueue::TIMEOUT:
      event.kind = Event::Kind::kDeadline;
      break;
    case grpc::CompletionQueue::SHUTDOWN:
      event.kind = Event::Kind::kEnd;
      break;
  }
  return event;
}

void Poller::handle(const Event& event) {
  static_cast<Completion*>(event.tag)->on_completion(event.ok);
}

void Poller::interrupt() { Forwarded::send(queue_.get(), &nothing, true); }

std::optional<bool> Poller::try_now(Completion* tag, absl::FunctionRef<void()> start) {
  // gRPC keeps one ended operation of the calling thread from the queue; CompletionQueue itself
  // offers that only together with polling.
  grpc_completion_queue_thread_local_cache_init(queue_->cq());
  start();
  void* ended = nullptr;
  int success = 0;
  if (grpc_completion_queue_thread_local_cache_flush(queue_->cq(), &ended, &success) == 0) {
    return std::nullopt;
  }
  bool ok = success != 0;
  auto* operation = static_cast<grpc::internal::CompletionQueueTag*>(ended);
  if (!operation->FinalizeResult(&ended, &ok)) return std::nullopt;
  auto* const completion = static_cast<Completion*>(ended);
  if (completion == tag) return ok;
  // gRPC has done another call's work on this thread.
  Forwarded::send(queue_.get(), completion, ok);
  return std::nullopt;
}

void Poller::shutdown() {
  {
    MutexLock lock(threads_mutex_);
    if (is_shut_down_) return;
  }
  duty_->close();
  queue_->Shutdown();
  join_all();
}

}  // namespace sinew::internal
