#include "sinew/rpc/worker/rejoiner.h"

#include <pthread.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/log.h"
#include "sinew/rpc/worker.h"
#include "sinew/rpc/worker/worker_core.h"

namespace sinew::internal {
namespace {

using std::chrono::nanoseconds;

// Between two attempts. Each looks for the job for join_timeout already.
constexpr nanoseconds kFirstRetry = std::chrono::milliseconds(500);
constexpr nanoseconds kLongestRetry = std::chrono::seconds(30);

ShutdownOptions at_once() {
  ShutdownOptions options;
  options.graceful = false;
  return options;
}

}  // namespace

Rejoiner::~Rejoiner() = default;

// ---- One attempt.

std::shared_ptr<WorkerCore> Rejoiner::rejoin(std::shared_ptr<WorkerCore> evicted) {
  const Promise<std::shared_ptr<WorkerCore>> outcome(nullptr);
  Future<std::shared_ptr<WorkerCore>> under_way;
  {
    MutexLock lock(mutex_);
    if (std::shared_ptr<WorkerCore> next = successor_.lock(); next != nullptr) return next;
    if (absl::Status may = may_rejoin_locked(evicted); !may.ok()) throw_error(may);
    under_way = attempt_;
    if (!under_way.valid()) {
      attempt_ = outcome.future();
      attempts_ = std::this_thread::get_id();
    }
  }
  if (under_way.valid()) {
    evicted.reset();
    return under_way.wait();
  }
  std::shared_ptr<WorkerCore> next;
  std::exception_ptr error;
  try {
    next = attempt(std::move(evicted));
  } catch (...) {
    error = std::current_exception();
  }
  {
    MutexLock lock(mutex_);
    attempt_ = {};
    attempts_ = {};
    joining_.reset();
    changed_.notify_all();
  }
  if (error != nullptr) {
    // Each thread has one of its own.
    outcome.set_error(make_error(describe(error)));
    std::rethrow_exception(error);
  }
  outcome.set_value(next);
  // Otherwise once on_rejoined() knows it, so that it comes to know them in their order.
  if (on_rejoined_ == nullptr) next->rejoiner().allow();
  return next;
}

absl::Status Rejoiner::may_rejoin_locked(const std::shared_ptr<WorkerCore>& evicted) const {
  if (cancelled_) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker '", name_,
                     "' was shut down, so it cannot rejoin: start a new one with init_rpc()"));
  }
  if (has_successor_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "worker '", name_, "' has rejoined already, and the new worker was destroyed since"));
  }
  if (attempt_.valid() && attempts_ == std::this_thread::get_id()) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker '", name_, "' rejoins on this very thread: it would wait for itself"));
  }
  if (evicted->evicted().ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker '", name_,
                     "' is not evicted: only a worker whose membership_state() is kEvicted can "
                     "rejoin"));
  }
  return absl::OkStatus();
}

std::shared_ptr<WorkerCore> Rejoiner::attempt(std::shared_ptr<WorkerCore> evicted) {
  const auto works = [this](bool does) { works_.store(does, std::memory_order_release); };
  const auto cancelled = [this] {
    return absl::CancelledError(
        absl::StrCat("worker '", name_, "' was shut down while it rejoined"));
  };
  works(true);
  // Its addresses are free then.
  evicted->end_evicted();
  WorkerOptions options = evicted->options();
  options.default_timeout = evicted->default_timeout();
  const WorkerCore::Succession succession = {[this](WorkerCore& core) { on_joining(core); }};
  evicted.reset();
  std::shared_ptr<WorkerCore> next;
  try {
    if (is_cancelled()) throw_error(cancelled());
    next = WorkerCore::start(std::move(options), &succession);
  } catch (...) {
    works(false);
    if (is_cancelled()) throw_error(cancelled());
    throw;
  }
  works(false);
  {
    MutexLock lock(mutex_);
    if (!cancelled_) {
      successor_ = next;
      has_successor_ = true;
      return next;
    }
  }
  next->shutdown(at_once());
  throw_error(cancelled());
}

// Its wait for the job may take long, and nothing of it is used meanwhile.
void Rejoiner::on_joining(WorkerCore& next) {
  works_.store(false, std::memory_order_release);
  bool is_cancelled = false;
  {
    MutexLock lock(mutex_);
    joining_ = next.weak_from_this();
    is_cancelled = cancelled_;
  }
  if (is_cancelled) next.stop_joining();
}

// ---- By itself.

void Rejoiner::on_evicted(std::weak_ptr<WorkerCore> evicted) {
  MutexLock lock(mutex_);
  is_evicted_ = true;
  evicted_ = std::move(evicted);
  begin_locked();
}

void Rejoiner::allow() {
  MutexLock lock(mutex_);
  allowed_ = true;
  begin_locked();
}

void Rejoiner::begin_locked() {
  if (on_rejoined_ == nullptr || cancelled_ || runs_ || !allowed_ || !is_evicted_) return;
  try {
    std::thread([self = shared_from_this()] { self->run(); }).detach();
    runs_ = true;
  } catch (const std::system_error& error) {
    log_line(name_, absl::StrCat("no thread could be started to rejoin the job: ", error.what()));
  }
}

void Rejoiner::run() {
  pthread_setname_np(pthread_self(), "sinew-rejoin");
  // Between the two workers this may be the only thread that exit() has to wait for.
  ProcessLife::add(this);
  nanoseconds next_pause = kFirstRetry;
  while (!try_once()) {
    log_line(name_, absl::StrFormat("tries to rejoin the job again in %.6g s",
                                    std::chrono::duration<double>(next_pause).count()));
    if (!pause(next_pause)) break;
    next_pause = std::min(2 * next_pause, kLongestRetry);
  }
  ProcessLife::remove(this);
  MutexLock lock(mutex_);
  runs_ = false;
  changed_.notify_all();
}

// True: there is no more to do.
bool Rejoiner::try_once() {
  ProcessLife::stand_still_at_exit();
  std::shared_ptr<WorkerCore> evicted;
  {
    MutexLock lock(mutex_);
    evicted = evicted_.lock();
  }
  if (evicted == nullptr) return true;
  std::shared_ptr<WorkerCore> next;
  try {
    next = rejoin(std::move(evicted));
  } catch (...) {
    const ErrorInfo error = describe(std::current_exception());
    {
      MutexLock lock(mutex_);
      // By hand, and the new worker has gone since.
      if (cancelled_ || has_successor_) return true;
    }
    log_line(name_, absl::StrCat("could not rejoin the job: ", error.message));
    return false;
  }
  log_line(name_, "has rejoined the job as a new worker");
  hand_over(next);
  next->rejoiner().allow();
  return true;
}

void Rejoiner::hand_over(const std::shared_ptr<WorkerCore>& next) const {
  try {
    on_rejoined_(WorkerAccess::make(next));
  } catch (...) {
    log_line(name_, absl::StrCat("WorkerOptions::on_rejoined threw: ",
                                 describe(std::current_exception()).message));
  }
}

// False: it was cancelled.
bool Rejoiner::pause(nanoseconds duration) {
  const auto end = std::chrono::steady_clock::now() + duration;
  MutexLock lock(mutex_);
  while (!cancelled_ && std::chrono::steady_clock::now() < end) changed_.wait_until(mutex_, end);
  return !cancelled_;
}

// ---- The end.

void Rejoiner::cancel() {
  std::shared_ptr<WorkerCore> joining;
  {
    MutexLock lock(mutex_);
    if (has_successor_) return;
    cancelled_ = true;
    joining = joining_.lock();
    changed_.notify_all();
  }
  if (joining != nullptr) joining->stop_joining();
}

void Rejoiner::cancel_and_wait() {
  cancel();
  MutexLock lock(mutex_);
  while (!has_successor_ && (attempt_.valid() || runs_)) changed_.wait(mutex_);
}

bool Rejoiner::is_cancelled() const {
  MutexLock lock(mutex_);
  return cancelled_;
}

}  // namespace sinew::internal
