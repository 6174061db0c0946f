#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "sinew/rpc/base/internal/mutex.h"

namespace sinew::internal {

class Executor;
class PollingWait;
class TaskRunner;
class ThreadContext;

class FutureCore;

/// What a CoreRef counts as: a reader (a Future, or a callback that has not finished) or a writer
/// (a Promise) of the future.
enum class Role { kReader, kWriter };

/// Shares a FutureCore and counts in one of the roles for as long as it does.
template <Role role>
class CoreRef {
 public:
  enum class Adopt { kCount };

  CoreRef() = default;
  explicit CoreRef(std::shared_ptr<FutureCore> core);
  /// Takes over a count that was added before.
  CoreRef(Adopt, std::shared_ptr<FutureCore> core) : core_(std::move(core)) {}
  CoreRef(const CoreRef& other);
  CoreRef(CoreRef&& other) noexcept = default;
  CoreRef& operator=(CoreRef other) noexcept {
    core_.swap(other.core_);
    return *this;
  }
  ~CoreRef();

  const std::shared_ptr<FutureCore>& get() const { return core_; }

 private:
  std::shared_ptr<FutureCore> core_;
};

extern template class CoreRef<Role::kReader>;
extern template class CoreRef<Role::kWriter>;
using Reader = CoreRef<Role::kReader>;
using Writer = CoreRef<Role::kWriter>;

/// The part of a future that does not depend on its type: completion, waiting and callbacks.
///
/// A completion has two steps: claim() by the one completer that wins, then finish(). The outcome
/// may be *deferred*: the future is done, but its first reader produces the value. Thread-safe.
class FutureCore : public std::enable_shared_from_this<FutureCore> {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  /// Called with the count that the callback held while it waited.
  using Callback = absl::AnyInvocable<void(Reader) &&>;

  /// `runner` may be null: then callbacks run inline.
  explicit FutureCore(std::shared_ptr<TaskRunner> runner) : runner_(std::move(runner)) {}
  virtual ~FutureCore();
  FutureCore(const FutureCore&) = delete;
  FutureCore& operator=(const FutureCore&) = delete;

  /// runner_of(Executor::current())
  static std::shared_ptr<TaskRunner> current_runner();
  const std::shared_ptr<TaskRunner>& runner() const { return runner_; }

  bool done() const { return phase_.load(std::memory_order_acquire) >= Phase::kDeferred; }

  /// Blocks until the outcome is known, producing it if it is deferred; then returns if it is a
  /// value and throws if it is an error. Throws RpcError kDeadlineExceeded at `deadline` or at the
  /// one of the current ThreadContext, whichever comes first.
  void wait(TimePoint deadline = TimePoint::max());
  void wait_for(std::chrono::nanoseconds timeout);
  /// Throws RpcError kFailedPrecondition unless done(), else as wait().
  void require_value();
  /// Null unless done() with an error. Produces a deferred outcome.
  std::exception_ptr error();

  /// Runs `callback` once the outcome is known, after all callbacks that were added before: on the
  /// runner, or inline if there is none or it refuses. It must not throw.
  void add_callback(Callback callback);
  /// For internal bookkeeping that runs no user code: runs inline in the completing thread, or in
  /// this call if the future is complete; if the outcome is deferred it is produced first, as for a
  /// callback.
  void on_settled(Callback link);

  /// Wins the right to complete the future. Each claim must be followed by one finish_...().
  bool claim();
  void finish_with_value() { finish(Phase::kValue, nullptr); }
  void finish_with_error(std::exception_ptr error) { finish(Phase::kError, std::move(error)); }
  void finish_deferred() { finish(Phase::kDeferred, nullptr); }
  /// claim() and finish_with_error(); false if another completer was first.
  bool try_fail(std::exception_ptr error);

  /// Whether the value may be moved out: true if the caller holds the only reader. Then later
  /// readers get an error. Needs a value.
  bool begin_take();

  /// The caller is a reader itself.
  void add_reader() { readers_.fetch_add(1, std::memory_order_relaxed); }
  /// The caller is none, so a take() by the only reader may be under way.
  void add_first_reader();
  void drop_reader() { readers_.fetch_sub(1, std::memory_order_release); }
  void add_writer() { writers_.fetch_add(1, std::memory_order_relaxed); }
  /// The future fails with kCancelled when the last writer goes without having completed it.
  void drop_writer();

 protected:
  /// Produces a deferred value in place; throws what becomes the future's error. Called once at
  /// most.
  virtual void produce() = 0;

 private:
  // The order matters: done() compares.
  enum class Phase : int { kPending, kClaimed, kDeferred, kProducing, kValue, kError, kTaken };
  struct PendingCallback {
    Callback run;
    std::shared_ptr<const ThreadContext> context;
  };
  struct Drain;
  struct LinkQueue;
  struct ThreadState;
  friend class WakeBatch;
  static ThreadState& thread_state();

  void finish(Phase phase, std::exception_ptr error);
  void settle(TimePoint deadline);
  bool claim_production();
  void produce_outcome();
  void block(TimePoint deadline, Phase until);
  void await_locked(TimePoint deadline, Phase until) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void poll(PollingWait& wait, TimePoint deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void wake_sleepers();
  void throw_if_no_value();
  // The callback has a reader's count already.
  void queue_callback(Callback callback);
  void start_drain();
  void drain();
  void resume_drain();
  static void hand_over_work();
  void run_links(std::vector<Callback> links);

  const std::shared_ptr<TaskRunner> runner_;
  std::atomic<Phase> phase_{Phase::kPending};  // written with mutex_ held, but for claim()
  std::atomic<std::size_t> readers_{0};
  std::atomic<std::size_t> writers_{0};

  Mutex mutex_;
  CondVar changed_;
  std::size_t waiters_ ABSL_GUARDED_BY(mutex_) = 0;
  // The one of them that polls for what completes the future.
  std::thread::id poller_ ABSL_GUARDED_BY(mutex_);
  std::thread::id producer_ ABSL_GUARDED_BY(mutex_);
  // Callbacks from next_callback_ on have not started.
  std::vector<PendingCallback> callbacks_ ABSL_GUARDED_BY(mutex_);
  std::size_t next_callback_ ABSL_GUARDED_BY(mutex_) = 0;
  // A thread runs the callbacks, or is about to.
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Callback> links_ ABSL_GUARDED_BY(mutex_);
  // Written before phase_ says kError, constant from then on.
  std::exception_ptr error_;
};

/// While one lives, futures that the calling thread completes wake those who wait for them only
/// when it ends: a thread that waits for the first of many is not woken once for each. Scopes nest;
/// the outermost counts.
class WakeBatch {
 public:
  WakeBatch();
  ~WakeBatch();
  WakeBatch(const WakeBatch&) = delete;
  WakeBatch& operator=(const WakeBatch&) = delete;

 private:
  friend class FutureCore;
  std::vector<std::shared_ptr<FutureCore>> completed_;
};

/// Stands in for void where a value is stored.
struct Unit {};

template <class T>
using Stored = std::conditional_t<std::is_void_v<T>, Unit, T>;

/// Default argument of functions that take a value unless T is void.
template <class T>
struct OnlyForVoid {};
template <>
struct OnlyForVoid<void> {
  static Unit value() { return {}; }
};

/// The value, together with its core.
template <class T>
class FutureState final : public FutureCore {
 public:
  using Producer = absl::AnyInvocable<T() &&>;
  using FutureCore::FutureCore;

  /// Needs a value: see FutureCore::wait().
  Stored<T>& stored() { return *value_; }

  bool try_set(Stored<T> value) {
    if (!claim()) return false;
    fill([&] { value_.emplace(std::move(value)); });
    return true;
  }
  bool try_defer(Producer producer) {
    if (!claim()) return false;
    producer_ = std::move(producer);
    finish_deferred();
    return true;
  }
  bool try_produce(Producer producer) {
    if (!claim()) return false;
    producer_ = std::move(producer);
    fill([&] { produce(); });
    return true;
  }

 private:
  template <class Fill>
  void fill(Fill fill) {
    std::exception_ptr error;
    try {
      fill();
    } catch (...) {
      error = std::current_exception();
    }
    error == nullptr ? finish_with_value() : finish_with_error(std::move(error));
  }

  void produce() override {
    // Local, so that what the producer holds is freed as soon as it has run.
    Producer producer = std::move(producer_);
    if constexpr (std::is_void_v<T>) {
      std::move(producer)();
      value_.emplace();
    } else {
      value_.emplace(std::move(producer)());
    }
  }

  std::optional<Stored<T>> value_;
  Producer producer_;
};

/// Null for null.
std::shared_ptr<TaskRunner> runner_of(const Executor* executor);

/// Throws RpcError kFailedPrecondition.
[[noreturn]] void throw_invalid_future();
[[noreturn]] void throw_completed_twice();
[[noreturn]] void throw_cannot_take();
/// Throws RpcError kInvalidArgument.
[[noreturn]] void throw_null_callback();
[[noreturn]] void throw_null_error();
/// RpcError kInvalidArgument: a continuation returned a Future that is not valid().
std::exception_ptr invalid_inner_future();
/// RpcError kInvalidArgument that names the element.
[[noreturn]] void throw_invalid_element(std::size_t index, std::size_t size);
/// Logs an exception that a done-callback let escape.
void log_callback_failure(const std::exception_ptr& error);

}  // namespace sinew::internal
