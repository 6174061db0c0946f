#include "sinew/rpc/base/internal/future_state.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <typeindex>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/internal/completion_work.h"
#include "sinew/rpc/base/internal/thread_context.h"
#include "sinew/rpc/base/process_life.h"
#include "sinew/rpc/base/threads/executor.h"
#include "sinew/rpc/base/threads/flushable.h"
#include "sinew/rpc/base/threads/polling_duty.h"

namespace sinew::internal {

// One run through the callbacks of one future, on the stack of the thread that makes it.
struct FutureCore::Drain {
  FutureCore* core;
  Drain* outer;
  // False once the callback that runs now has blocked: another thread has taken over the rest.
  bool owned = true;
};

// Links that wait for the one that runs now. A link completes another future, which may have links;
// run inside each other they would nest as deep as a program chains its futures.
struct FutureCore::LinkQueue {
  std::vector<std::pair<std::shared_ptr<FutureCore>, Callback>> entries;
  std::size_t next = 0;

  void run() {
    while (next < entries.size()) {
      auto entry = std::move(entries[next++]);
      std::move(entry.second)(Reader(Reader::Adopt::kCount, std::move(entry.first)));
    }
  }
};

struct FutureCore::ThreadState {
  Drain* drain = nullptr;
  LinkQueue* links = nullptr;
  WakeBatch* wakes = nullptr;
};

// A thread-local because a callback's wait must find the drain that it is part of, with user code
// between the two; because links must find the loop that runs links further down the stack; and
// because the code that makes a WakeBatch does not see the futures that are completed in it.
FutureCore::ThreadState& FutureCore::thread_state() {
  thread_local ThreadState state;
  return state;
}

namespace {

template <class... Values>
absl::flat_hash_set<std::type_index> futures_of() {
  return {std::type_index(typeid(FutureState<Values>))...};
}

// A default stream is where all threads work that have chosen none, and those of Sinew that must
// not block complete futures of these types by the thousand: there they tell of no work.
QueuedOn streams_of(const FutureCore& future) {
  static const auto& without_tensors = *new absl::flat_hash_set<std::type_index>(
      futures_of<void, bool, int, std::int64_t, std::uint64_t, float, double, std::string>());
  return without_tensors.contains(typeid(future)) ? QueuedOn::kSideStreams : QueuedOn::kAllStreams;
}

void note_work(const FutureCore& future) {
  if (may_have_queued_work()) {
    CompletionWork::of_process().note(future, streams_of(future));
  }
}

}  // namespace

WakeBatch::WakeBatch() {
  FutureCore::ThreadState& state = FutureCore::thread_state();
  if (state.wakes == nullptr) state.wakes = this;
}

WakeBatch::~WakeBatch() {
  FutureCore::ThreadState& state = FutureCore::thread_state();
  if (state.wakes != this) return;
  state.wakes = nullptr;
  for (const auto& future : completed_) future->wake_sleepers();
}

FutureCore::~FutureCore() { CompletionWork::of_process().forget(*this); }

std::shared_ptr<TaskRunner> runner_of(const Executor* executor) {
  return executor == nullptr ? nullptr : executor->runner();
}

std::shared_ptr<TaskRunner> FutureCore::current_runner() { return runner_of(Executor::current()); }

// ---- completing

bool FutureCore::claim() {
  Phase expected = Phase::kPending;
  return phase_.compare_exchange_strong(expected, Phase::kClaimed, std::memory_order_acq_rel);
}

void FutureCore::finish(Phase phase, std::exception_ptr error) {
  std::vector<Callback> links;
  bool has_callbacks = false;
  bool has_sleepers = false;
  bool has_poller = false;
  if (phase == Phase::kValue) note_work(*this);
  {
    MutexLock lock(mutex_);
    if (error != nullptr) error_ = std::move(error);
    phase_.store(phase, std::memory_order_release);
    // A link reads the outcome, which costs user code (the producer) if it is deferred; so it then
    // takes the callbacks' road, before those that were added.
    if (phase == Phase::kDeferred && !links_.empty()) {
      std::vector<PendingCallback> all;
      all.reserve(links_.size() + callbacks_.size());
      for (Callback& link : links_) all.push_back({std::move(link), nullptr});
      for (PendingCallback& callback : callbacks_) all.push_back(std::move(callback));
      callbacks_ = std::move(all);
      links_.clear();
    }
    links.swap(links_);
    has_callbacks = !callbacks_.empty() && !draining_;
    if (has_callbacks) draining_ = true;
    const bool is_polled = poller_ != std::thread::id();
    has_sleepers = waiters_ > (is_polled ? 1 : 0);
    has_poller = is_polled && poller_ != std::this_thread::get_id();
  }
  // Without the lock, so that a woken thread does not run into it. The caller's reference keeps us
  // alive.
  if (has_sleepers) {
    if (WakeBatch* batch = thread_state().wakes) {
      batch->completed_.push_back(shared_from_this());
    } else {
      wake_sleepers();
    }
  }
  if (has_poller) runner_->polling_duty()->interrupt();
  if (!links.empty()) run_links(std::move(links));
  if (has_callbacks) start_drain();
}

bool FutureCore::try_fail(std::exception_ptr error) {
  if (!claim()) return false;
  finish_with_error(std::move(error));
  return true;
}

void FutureCore::drop_writer() {
  if (writers_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  if (phase_.load(std::memory_order_relaxed) != Phase::kPending) return;
  try_fail(std::make_exception_ptr(
      RpcError(ErrorCode::kCancelled,
               "broken promise: the last Promise went without completing its future")));
}

// ---- reading

void FutureCore::wait(TimePoint deadline) {
  settle(deadline);
  throw_if_no_value();
}

void FutureCore::wait_for(std::chrono::nanoseconds timeout) {
  const TimePoint now = std::chrono::steady_clock::now();
  const bool forever = timeout >= TimePoint::max() - now;
  wait(forever ? TimePoint::max() : now + timeout);
}

void FutureCore::require_value() {
  if (!done()) {
    throw RpcError(ErrorCode::kFailedPrecondition, "the future is not complete yet; wait() for it");
  }
  wait();
}

std::exception_ptr FutureCore::error() {
  if (!done()) return nullptr;
  settle(TimePoint::max());
  const Phase phase = phase_.load(std::memory_order_acquire);
  // Of a future without a value this is all that many ask.
  if (phase == Phase::kValue) CompletionWork::of_process().precede_reader(*this);
  return phase == Phase::kError ? error_ : nullptr;
}

void FutureCore::throw_if_no_value() {
  switch (phase_.load(std::memory_order_acquire)) {
    case Phase::kValue:
      return CompletionWork::of_process().precede_reader(*this);
    case Phase::kError:
      std::rethrow_exception(error_);
    default:
      throw RpcError(ErrorCode::kFailedPrecondition,
                     "the future's value was taken by the holder of its only Future");
  }
}

// Brings about an outcome that is known: a value or an error.
void FutureCore::settle(TimePoint deadline) {
  while (true) {
    const Phase phase = phase_.load(std::memory_order_acquire);
    if (phase >= Phase::kValue) return;
    if (phase < Phase::kDeferred) {
      block(deadline, Phase::kDeferred);
    } else if (claim_production()) {
      produce_outcome();
    } else {
      block(deadline, Phase::kValue);
    }
  }
}

bool FutureCore::claim_production() {
  MutexLock lock(mutex_);
  const Phase phase = phase_.load(std::memory_order_relaxed);
  if (phase == Phase::kProducing && producer_ == std::this_thread::get_id()) {
    throw RpcError(ErrorCode::kFailedPrecondition,
                   "the value of a future was read by the code that produces it");
  }
  if (phase != Phase::kDeferred) return false;
  phase_.store(Phase::kProducing, std::memory_order_release);
  producer_ = std::this_thread::get_id();
  return true;
}

void FutureCore::produce_outcome() {
  std::exception_ptr error;
  try {
    produce();
    note_work(*this);
  } catch (...) {
    error = std::current_exception();
  }
  MutexLock lock(mutex_);
  error_ = std::move(error);
  phase_.store(error_ == nullptr ? Phase::kValue : Phase::kError, std::memory_order_release);
  if (waiters_ > 0) changed_.notify_all();
}

void FutureCore::block(TimePoint deadline, Phase until) {
  if (runner_ != nullptr && runner_->is_orphan()) ProcessBound::fail();
  ProcessLife::move_on_if_exiting();
  ProcessLife::stand_still_at_exit();
  const std::shared_ptr<const ThreadContext> context = ThreadContext::current();
  const auto describe = [&] { return context == nullptr ? "" : context->describe_chain(); };
  if (context != nullptr) deadline = std::min(deadline, context->deadline());
  const TimePoint start = std::chrono::steady_clock::now();
  hand_over_work();
  flush_now();
  const Executor::BlockingScope blocking(describe);
  {
    MutexLock lock(mutex_);
    ++waiters_;
    await_locked(deadline, until);
    --waiters_;
  }
  // The caller may go on with what is being destroyed.
  ProcessLife::stand_still_at_exit();
  if (phase_.load(std::memory_order_acquire) >= until) return;
  const std::string chain = describe();
  throw RpcError(
      ErrorCode::kDeadlineExceeded,
      absl::StrCat("waited ",
                   absl::FormatDuration(absl::FromChrono(std::chrono::steady_clock::now() - start)),
                   " for a future that is not complete yet",
                   chain.empty() ? "" : "; call chain: ", chain));
}

void FutureCore::await_locked(TimePoint deadline, Phase until) {
  // Of what another thread produces no event tells.
  const bool may_poll = until == Phase::kDeferred && runner_ != nullptr;
  PollingWait wait(may_poll ? runner_->polling_duty() : nullptr);
  while (phase_.load(std::memory_order_relaxed) < until) {
    if (deadline != TimePoint::max() && std::chrono::steady_clock::now() >= deadline) return;
    if (wait.lead()) {
      poll(wait, deadline);
    } else if (deadline == TimePoint::max()) {
      changed_.wait(mutex_);
    } else {
      changed_.wait_until(mutex_, deadline);
    }
  }
}

// Handles an event in the place of the transport's own thread: what that leads to is no part of
// what this thread does, and does not wait for it.
void FutureCore::poll(PollingWait& wait, TimePoint deadline) {
  poller_ = std::this_thread::get_id();
  mutex_.unlock();
  {
    const ThreadContext::Scope no_context(nullptr);
    const Executor::DetachedScope no_task;
    ThreadState& state = thread_state();
    const ThreadState own = std::exchange(state, ThreadState());
    wait.poll(deadline);
    flush_now();
    state = own;
  }
  mutex_.lock();
  poller_ = std::thread::id();
}

void FutureCore::wake_sleepers() {
  changed_.notify_all();
  if (runner_ == nullptr) return;
  if (PollingDuty* duty = runner_->polling_duty()) duty->woke_waiter();
}

bool FutureCore::begin_take() {
  MutexLock lock(mutex_);
  if (readers_.load(std::memory_order_acquire) != 1) return false;
  phase_.store(Phase::kTaken, std::memory_order_release);
  return true;
}

void FutureCore::add_first_reader() {
  // Orders us with begin_take(): either it sees this reader, or this reader sees that the value is
  // gone.
  MutexLock lock(mutex_);
  add_reader();
}

template <Role role>
CoreRef<role>::CoreRef(std::shared_ptr<FutureCore> core) : core_(std::move(core)) {
  if constexpr (role == Role::kReader) {
    core_->add_first_reader();
  } else {
    core_->add_writer();
  }
}

template <Role role>
CoreRef<role>::CoreRef(const CoreRef& other) : core_(other.core_) {
  if (core_ == nullptr) return;
  if constexpr (role == Role::kReader) {
    core_->add_reader();
  } else {
    core_->add_writer();
  }
}

template <Role role>
CoreRef<role>::~CoreRef() {
  if (core_ == nullptr) return;
  if constexpr (role == Role::kReader) {
    core_->drop_reader();
  } else {
    core_->drop_writer();
  }
}

template class CoreRef<Role::kReader>;
template class CoreRef<Role::kWriter>;

// ---- callbacks

void FutureCore::add_callback(Callback callback) {
  add_reader();
  queue_callback(std::move(callback));
}

void FutureCore::queue_callback(Callback callback) {
  PendingCallback pending{std::move(callback), ThreadContext::current()};
  {
    MutexLock lock(mutex_);
    callbacks_.push_back(std::move(pending));
    if (phase_.load(std::memory_order_relaxed) < Phase::kDeferred || draining_) return;
    draining_ = true;
  }
  start_drain();
}

void FutureCore::start_drain() {
  if (runner_ != nullptr && runner_->post([self = shared_from_this()] { self->drain(); })) return;
  drain();
}

void FutureCore::drain() {
  // A callback may drop the last Future and Promise.
  const std::shared_ptr<FutureCore> core = shared_from_this();
  ThreadState& state = thread_state();
  Drain self{this, state.drain};
  state.drain = &self;
  while (true) {
    PendingCallback callback;
    {
      MutexLock lock(mutex_);
      if (!self.owned) break;
      if (next_callback_ == callbacks_.size()) {
        callbacks_.clear();
        next_callback_ = 0;
        draining_ = false;
        break;
      }
      callback = std::move(callbacks_[next_callback_++]);
    }
    {
      const ThreadContext::Scope scope(std::move(callback.context));
      std::move(callback.run)(Reader(Reader::Adopt::kCount, core));
      callback.run = nullptr;
    }
  }
  state.drain = self.outer;
}

// A callback that blocks may wait, directly or by way of other workers, for what a later callback
// of the same future does. So the thread hands over what it has not started before it blocks.
void FutureCore::hand_over_work() {
  const ThreadState& state = thread_state();
  if (state.links != nullptr) state.links->run();
  for (Drain* drain = state.drain; drain != nullptr; drain = drain->outer) {
    if (!drain->owned) continue;
    drain->owned = false;
    drain->core->resume_drain();
  }
}

void FutureCore::resume_drain() {
  {
    MutexLock lock(mutex_);
    if (next_callback_ == callbacks_.size()) {
      callbacks_.clear();
      next_callback_ = 0;
      draining_ = false;
      return;
    }
  }
  start_drain();
}

void FutureCore::on_settled(Callback link) {
  bool has_outcome = false;
  add_reader();
  {
    MutexLock lock(mutex_);
    const Phase phase = phase_.load(std::memory_order_relaxed);
    if (phase < Phase::kDeferred) {
      links_.push_back(std::move(link));
      return;
    }
    has_outcome = phase >= Phase::kValue;
  }
  if (has_outcome) {
    std::vector<Callback> links;
    links.push_back(std::move(link));
    run_links(std::move(links));
  } else {
    // With the count that it has: a second one, even for a moment, would keep it from taking.
    queue_callback(std::move(link));
  }
}

void FutureCore::run_links(std::vector<Callback> links) {
  ThreadState& state = thread_state();
  LinkQueue own;
  LinkQueue& queue = state.links == nullptr ? own : *state.links;
  for (Callback& link : links) queue.entries.emplace_back(shared_from_this(), std::move(link));
  if (state.links != nullptr) return;
  state.links = &own;
  own.run();
  state.links = nullptr;
}

// ---- errors

void throw_invalid_future() {
  throw RpcError(ErrorCode::kFailedPrecondition,
                 "the Future is invalid: it was default-constructed, moved from or taken");
}

void throw_completed_twice() {
  throw RpcError(ErrorCode::kFailedPrecondition, "a future can be completed only once");
}

void throw_cannot_take() {
  throw RpcError(
      ErrorCode::kFailedPrecondition,
      "the value can be moved only, and other Futures or callbacks share it; take() needs "
      "the only Future");
}

void throw_null_callback() {
  throw RpcError(ErrorCode::kInvalidArgument, "the continuation is null");
}

void throw_null_error() {
  throw RpcError(ErrorCode::kInvalidArgument, "a future cannot fail with a null exception");
}

std::exception_ptr invalid_inner_future() {
  return std::make_exception_ptr(
      RpcError(ErrorCode::kInvalidArgument, "the continuation returned an invalid Future"));
}

void throw_invalid_element(std::size_t index, std::size_t size) {
  throw RpcError(ErrorCode::kInvalidArgument,
                 absl::StrCat("element ", index, " of ", size, " futures is invalid"));
}

void log_callback_failure(const std::exception_ptr& error) {
  std::fprintf(stderr, "sinew: a done-callback of a future threw: %s\n",
               printable(describe(error).message).c_str());
}

}  // namespace sinew::internal
