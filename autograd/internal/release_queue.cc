#include "sinew/autograd/internal/release_queue.h"

#include <chrono>
#include <string>
#include <utility>

#include "sinew/autograd.pb.h"
#include "sinew/autograd/internal/pass_messages.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/calls/worker_services.h"

namespace sinew::internal {
namespace {

// Of one attempt; a worker that lives answers at once.
constexpr auto kAttempt = std::chrono::seconds(10);
// How long the first one due waits for others. Short steps of a training loop share a message then,
// and long ones do not notice.
constexpr auto kGathering = std::chrono::milliseconds(2);

}  // namespace

class ReleaseQueue::State : public std::enable_shared_from_this<State> {
 public:
  explicit State(WorkerServices& services) : services_(services) {}

  void add(const WorkerInfo& worker, const autograd::ContextId& context, std::uint64_t live_from) {
    MutexLock lock(mutex_);
    if (stopped_) return;
    Queue& queue = queues_[worker.incarnation];
    queue.worker = worker;
    proto::AutogradReleased& released = *queue.due.add_contexts();
    write_context(context, *released.mutable_context());
    released.set_live_from(live_from);
    if (std::exchange(queue.is_on_its_way, true)) return;
    services_.timers().run_at(
        services_.clock().now() + kGathering,
        [this, weak = weak_from_this(), incarnation = worker.incarnation] {
          // What stops the timers is later than the queue's end.
          const auto self = weak.lock();
          if (self == nullptr) return;
          services_.control_executor().post([self, incarnation] { self->send(incarnation); });
        });
  }

  Future<void> when_empty() {
    MutexLock lock(mutex_);
    if (stopped_ || queues_.empty()) return make_ready_future();
    return emptied_.emplace_back(&services_.control_executor()).future();
  }

  void stop() {
    std::vector<Promise<void>> emptied;
    {
      MutexLock lock(mutex_);
      stopped_ = true;
      queues_.clear();
      emptied.swap(emptied_);
    }
    for (const Promise<void>& promise : emptied) promise.try_set_value();
  }

 private:
  struct Queue {
    WorkerInfo worker;
    proto::AutogradRelease due;
    // A timer is set, or a message has not been answered.
    bool is_on_its_way = false;
  };

  void send(Incarnation incarnation) {
    std::string body;
    WorkerInfo worker;
    {
      MutexLock lock(mutex_);
      const auto found = queues_.find(incarnation);
      if (found == queues_.end()) return;
      body = found->second.due.SerializeAsString();
      found->second.due.Clear();
      worker = found->second.worker;
    }
    services_.control_call(worker, kReleaseMethod, body, kAttempt)
        .on_done([self = shared_from_this(), worker, body](const Future<std::string>& answer) {
          self->on_answer(worker, body, answer.error());
        });
  }

  void on_answer(const WorkerInfo& worker, const std::string& body,
                 const std::exception_ptr& error) {
    // Anything else than a late answer says that the worker is gone, or knows nothing of contexts.
    const bool again = error != nullptr && describe(error).code == ErrorCode::kDeadlineExceeded &&
                       !services_.is_lost(worker);
    std::vector<Promise<void>> emptied;
    bool more = false;
    {
      MutexLock lock(mutex_);
      const auto found = queues_.find(worker.incarnation);
      if (found == queues_.end()) return;
      if (again) found->second.due.MergeFromString(body);
      more = found->second.due.contexts_size() > 0;
      if (!more) queues_.erase(found);
      if (queues_.empty()) emptied.swap(emptied_);
    }
    if (more) send(worker.incarnation);
    for (const Promise<void>& promise : emptied) promise.try_set_value();
  }

  WorkerServices& services_;
  Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_map<Incarnation, Queue> queues_ ABSL_GUARDED_BY(mutex_);
  std::vector<Promise<void>> emptied_ ABSL_GUARDED_BY(mutex_);
};

ReleaseQueue::ReleaseQueue(WorkerServices& services) : state_(std::make_shared<State>(services)) {}
ReleaseQueue::~ReleaseQueue() { stop(); }

void ReleaseQueue::add(const WorkerInfo& worker, const autograd::ContextId& context,
                       std::uint64_t live_from) {
  state_->add(worker, context, live_from);
}

Future<void> ReleaseQueue::when_empty() const { return state_->when_empty(); }
void ReleaseQueue::stop() { state_->stop(); }

}  // namespace sinew::internal
