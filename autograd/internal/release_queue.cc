#include "sinew/autograd/internal/release_queue.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "sinew/autograd.pb.h"
#include "sinew/autograd/internal/pass_messages.h"
#include "sinew/rpc/calls/worker_services.h"

namespace sinew::internal {
namespace {

// A worker is told so often at most. Short steps of a training loop share a note then, and long
// ones do not notice.
constexpr auto kGathering = std::chrono::milliseconds(2);
// For the last ones, that no other context follows. Not as early as that: a loop would wake the
// timers' thread each time, for nothing.
constexpr auto kLatest = std::chrono::milliseconds(10);

}  // namespace

class ReleaseQueue::State : public std::enable_shared_from_this<State> {
 public:
  explicit State(WorkerServices& services) : services_(services) {}

  template <class F>
  void add(const WorkerInfo& worker, F write) {
    std::string note;
    {
      MutexLock lock(mutex_);
      if (stopped_) return;
      Queue& queue = queues_[worker.incarnation];
      queue.worker = worker;
      write(queue.due);
      if (queue.is_on_its_way) return;
      if (queue.told_last.has_value() && services_.clock().now() - *queue.told_last < kGathering) {
        if (!std::exchange(queue.has_timer, true)) set_timer(worker.incarnation);
        return;
      }
      note = take_locked(queue);
    }
    send(worker, std::move(note));
  }

  Future<void> when_empty(Clock::TimePoint deadline) {
    MutexLock lock(mutex_);
    if (stopped_ || is_empty_locked()) return make_ready_future();
    const Promise<void>& emptied = emptied_.emplace_back(&services_.control_executor());
    if (deadline != Clock::TimePoint::max()) {
      services_.timers().run_at(deadline, [emptied] { emptied.try_set_value(); });
    }
    return emptied.future();
  }

  void forget(Incarnation worker) {
    std::vector<Promise<void>> emptied;
    {
      MutexLock lock(mutex_);
      queues_.erase(worker);
      if (is_empty_locked()) emptied.swap(emptied_);
    }
    for (const Promise<void>& promise : emptied) promise.try_set_value();
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
    bool is_due() const { return due.contexts_size() > 0 || due.held_size() > 0; }
    std::optional<Clock::TimePoint> told_last;
    // A note has not been handled.
    bool is_on_its_way = false;
    bool has_timer = false;
  };

  bool is_empty_locked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return std::all_of(queues_.begin(), queues_.end(), [](const auto& each) {
      return !each.second.is_on_its_way && !each.second.is_due();
    });
  }

  std::string take_locked(Queue& queue) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    queue.is_on_its_way = true;
    queue.told_last = services_.clock().now();
    std::string note = queue.due.SerializeAsString();
    queue.due.Clear();
    return note;
  }

  void set_timer(Incarnation incarnation) {
    services_.timers().run_at(services_.clock().now() + kLatest,
                              [weak = weak_from_this(), incarnation] {
                                // What stops the timers is later than the queue's end.
                                if (const auto self = weak.lock()) self->on_timer(incarnation);
                              });
  }

  void on_timer(Incarnation incarnation) {
    WorkerInfo worker;
    std::string note;
    {
      MutexLock lock(mutex_);
      const auto found = queues_.find(incarnation);
      if (found == queues_.end()) return;
      Queue& queue = found->second;
      queue.has_timer = false;
      if (queue.is_on_its_way || !queue.is_due()) return;
      worker = queue.worker;
      note = take_locked(queue);
    }
    send(worker, std::move(note));
  }

  // Without the lock: what cannot be sent has ended when send_note() returns.
  void send(const WorkerInfo& worker, std::string note) {
    services_.send_note(worker, kAutogradLayer, std::move(note),
                        [weak = weak_from_this(), worker](CarrierEnd how) {
                          if (const auto self = weak.lock()) self->on_handled(worker, how);
                        });
  }

  void on_handled(const WorkerInfo& worker, CarrierEnd how) {
    std::vector<Promise<void>> emptied;
    std::string note;
    {
      MutexLock lock(mutex_);
      const auto found = queues_.find(worker.incarnation);
      if (found == queues_.end()) return;
      Queue& queue = found->second;
      queue.is_on_its_way = false;
      if (how != CarrierEnd::kAnswered) {
        // It is gone, and so is all that it knew of contexts.
        queues_.erase(found);
      } else if (queue.is_due()) {
        note = take_locked(queue);
      }
      if (!emptied_.empty() && is_empty_locked()) emptied.swap(emptied_);
    }
    if (!note.empty()) send(worker, std::move(note));
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

void ReleaseQueue::add_ended(const WorkerInfo& worker, const autograd::ContextId& context,
                             std::uint64_t live_from) {
  state_->add(worker, [&](proto::AutogradRelease& due) {
    proto::AutogradReleased& released = *due.add_contexts();
    write_context(context, *released.mutable_context());
    released.set_live_from(live_from);
  });
}

void ReleaseQueue::add_held(const WorkerInfo& worker, const autograd::ContextId& context) {
  state_->add(worker,
              [&](proto::AutogradRelease& due) { write_context(context, *due.add_held()); });
}

Future<void> ReleaseQueue::when_empty(Clock::TimePoint deadline) const {
  return state_->when_empty(deadline);
}
void ReleaseQueue::forget(Incarnation worker) { state_->forget(worker); }
void ReleaseQueue::stop() { state_->stop(); }

}  // namespace sinew::internal
