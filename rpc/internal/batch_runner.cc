#include "sinew/rpc/internal/batch_runner.h"

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/internal/thread_context.h"
#include "sinew/rpc/base/log.h"
#include "sinew/rpc/call_context.h"

namespace sinew::internal {
namespace {

constexpr char kCancelled[] = "the call was cancelled before the batch that it waited for began";

// No function has seen the call.
std::exception_ptr rejected(const absl::Status& status) {
  return std::make_exception_ptr(Rejected(status.code(), std::string(status.message())));
}

Executor::Options threads_of(const BatcherOptions& options) {
  Executor::Options threads;
  threads.num_threads = options.max_concurrent;
  // That the system gives it shows where the batcher is made, and not at the first batch.
  threads.min_threads = 1;
  threads.name = "sinew-batch";
  return threads;
}

}  // namespace

struct BatchRunner::Actions {
  std::vector<Waiting> expired;
  std::vector<std::vector<Waiting>> batches;
};

std::shared_ptr<BatchRunner> BatchRunner::make(const BatcherOptions& options, Run run) {
  if (const absl::Status valid = BatchQueue::check(options); !valid.ok()) throw_error(valid);
  return std::shared_ptr<BatchRunner>(new BatchRunner(options, std::move(run)),
                                      [](BatchRunner* runner) {
                                        // A forked child has none of the threads, and may find
                                        // the mutex held.
                                        if (!runner->process_.is_orphan()) delete runner;
                                      });
}

BatchRunner::BatchRunner(const BatcherOptions& options, Run run)
    : run_(std::move(run)), queue_(options), executor_(threads_of(options)) {}

// ---- Calls.

void BatchRunner::add(std::unique_ptr<BatchCall> call) {
  process_.require();
  Clock::TimePoint deadline = Clock::TimePoint::max();
  if (const auto& context = ThreadContext::current()) deadline = context->deadline();
  CancellationToken cancellation;
  if (const CallContext* served = CallContext::current_or_null()) {
    cancellation = served->cancellation();
  }
  if (cancellation.is_cancelled()) return call->fail(rejected(absl::CancelledError(kCancelled)));
  const Clock::TimePoint now = Clock::system().now();
  absl::StatusOr<Ticket> ticket = absl::CancelledError("the Batcher is being destroyed");
  Actions actions;
  {
    MutexLock lock(mutex_);
    if (!stopping_) {
      // They must not stand in the way of this one.
      actions.expired = take_locked(queue_.take_expired(now));
      ticket = queue_.add(now, deadline);
      if (ticket.ok()) waiting_[*ticket].call = std::move(call);
      actions.batches = take_batches_locked(now);
    }
  }
  perform(std::move(actions));
  if (!ticket.ok()) return call->fail(rejected(ticket.status()));
  watch(*ticket, std::move(cancellation));
}

// After it was added, and without the mutex: a call that is cancelled meanwhile is so in notify().
void BatchRunner::watch(Ticket ticket, CancellationToken cancellation) {
  if (!cancellation.can_be_cancelled()) return;
  const std::uint64_t notice = cancellation.notify([weak = weak_from_this(), ticket] {
    if (const auto self = weak.lock()) self->cancel(ticket);
  });
  {
    MutexLock lock(mutex_);
    if (const auto found = waiting_.find(ticket); found != waiting_.end()) {
      found->second.cancellation = std::move(cancellation);
      found->second.notice = notice;
      return;
    }
  }
  cancellation.forget(notice);
}

void BatchRunner::cancel(Ticket ticket) {
  std::vector<Waiting> removed;
  {
    MutexLock lock(mutex_);
    if (!queue_.remove(ticket)) return;
    removed = take_locked({ticket});
  }
  for (Waiting& waiting : removed) {
    waiting.call->fail(rejected(absl::CancelledError(kCancelled)));
  }
}

void BatchRunner::set_expected(std::size_t callers) {
  process_.require();
  {
    MutexLock lock(mutex_);
    queue_.set_expected(callers);
  }
  advance();
}

BatcherStats BatchRunner::stats() const {
  process_.require();
  MutexLock lock(mutex_);
  return queue_.stats();
}

// ---- Batches.

void BatchRunner::advance() {
  Actions actions;
  const Clock::TimePoint now = Clock::system().now();
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
    actions.expired = take_locked(queue_.take_expired(now));
    actions.batches = take_batches_locked(now);
  }
  perform(std::move(actions));
}

std::vector<std::vector<BatchRunner::Waiting>> BatchRunner::take_batches_locked(
    Clock::TimePoint now) {
  std::vector<std::vector<Waiting>> batches;
  for (std::vector<Ticket> batch = queue_.take_batch(now); !batch.empty();
       batch = queue_.take_batch(now)) {
    batches.push_back(take_locked(batch));
  }
  look_again_locked();
  return batches;
}

// Keeps an alarm that is early enough: it looks again by itself.
void BatchRunner::look_again_locked() {
  const std::optional<Clock::TimePoint> next = queue_.look_again();
  if (!next.has_value() || (alarm_at_.has_value() && *alarm_at_ <= *next)) return;
  if (alarm_at_.has_value()) timers_.cancel(alarm_);
  alarm_at_ = next;
  alarm_ = timers_.run_at(*next, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    self->executor_.post([self] {
      {
        MutexLock lock(self->mutex_);
        self->alarm_at_.reset();
      }
      self->advance();
    });
  });
}

std::vector<BatchRunner::Waiting> BatchRunner::take_locked(const std::vector<Ticket>& tickets) {
  std::vector<Waiting> taken;
  taken.reserve(tickets.size());
  for (const Ticket ticket : tickets) {
    const auto found = waiting_.find(ticket);
    taken.push_back(std::move(found->second));
    waiting_.erase(found);
  }
  return taken;
}

void BatchRunner::perform(Actions actions) {
  for (Waiting& waiting : actions.expired) {
    waiting.cancellation.forget(waiting.notice);
    waiting.call->fail(rejected(absl::DeadlineExceededError(
        "the time of the call had passed before the batch that it waited for began")));
  }
  for (std::vector<Waiting>& batch : actions.batches) begin_batch(std::move(batch));
}

void BatchRunner::begin_batch(std::vector<Waiting> batch) {
  Calls calls;
  calls.reserve(batch.size());
  for (Waiting& waiting : batch) {
    waiting.cancellation.forget(waiting.notice);
    calls.push_back(std::move(waiting.call));
  }
  Slot slot(nullptr, [self = shared_from_this()](void*) { self->batch_ended(); });
  executor_.post(
      [self = shared_from_this(), calls = std::move(calls), slot = std::move(slot)]() mutable {
        self->run_(std::move(calls), std::move(slot));
      });
}

void BatchRunner::batch_ended() {
  {
    MutexLock lock(mutex_);
    queue_.batch_ended();
  }
  advance();
}

// ---- The end.

void BatchRunner::stop(const std::shared_ptr<BatchRunner>& runner) {
  if (runner->process_.is_orphan()) return;
  runner->fail_waiting();
  if (Executor::current() != &runner->executor_) return runner->join();
  // Within a batch, which would wait for itself.
  try {
    std::thread([runner] { runner->join(); }).detach();
  } catch (const std::system_error&) {
    log_line("", "no thread could be started to end a Batcher, so its own stay");
    static_cast<void>(new std::shared_ptr<BatchRunner>(runner));
  }
}

void BatchRunner::fail_waiting() {
  std::vector<Waiting> left;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    left = take_locked(queue_.take_all());
  }
  for (Waiting& waiting : left) {
    waiting.cancellation.forget(waiting.notice);
    waiting.call->fail(rejected(
        absl::CancelledError("the Batcher was destroyed before the batch of the call began")));
  }
}

void BatchRunner::join() {
  // A handler that ends a batcher is blocked like one that waits; but it must not fail.
  std::optional<Executor::BlockingScope> blocking;
  try {
    blocking.emplace();
  } catch (const RpcError&) {
    // Too many are blocked already: then its thread is missing meanwhile.
  }
  timers_.stop();
  executor_.shutdown();
}

}  // namespace sinew::internal
