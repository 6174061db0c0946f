#include "sinew/rpc/base/process_life.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/internal/mutex.h"

namespace sinew::internal {
namespace {

using SteadyClock = std::chrono::steady_clock;

// Static destructors take milliseconds, unless they wait for another thread.
constexpr auto kLongestStandstill = std::chrono::seconds(2);
// Those of libraries too, but not on a host that has no time for them.
constexpr auto kLongestEnd = std::chrono::seconds(30);
// For what runs when the process begins to end, such as a handler.
constexpr auto kPatience = std::chrono::seconds(1);
constexpr auto kLookAgain = std::chrono::milliseconds(1);

struct Registry {
  Mutex mutex;
  CondVar changed;
  std::vector<ProcessLife::Busy*> busy ABSL_GUARDED_BY(mutex);
  // How often watch() was called.
  std::uint64_t watches ABSL_GUARDED_BY(mutex) = 0;
  bool watches_forks ABSL_GUARDED_BY(mutex) = false;
  // Of exit().
  std::thread::id exiting ABSL_GUARDED_BY(mutex);
  SteadyClock::time_point moves_on ABSL_GUARDED_BY(mutex);
  // Of an exit() that found nothing busy.
  std::thread::id idle_exit ABSL_GUARDED_BY(mutex);
  // What it was called with, once it destroys libraries.
  std::optional<int> status ABSL_GUARDED_BY(mutex);
  // The parent has had threads when this process was forked.
  bool orphaned ABSL_GUARDED_BY(mutex) = false;
  // What this process, and what the one that it was forked from, keeps of a library.
  bool unforkable ABSL_GUARDED_BY(mutex) = false;
  bool inherited ABSL_GUARDED_BY(mutex) = false;
};

// Never destroyed: threads look at it until the process is gone.
Registry& registry() {
  static auto& registry = *new Registry();
  return registry;
}

void flush_streams() {
  std::cout.flush();
  std::cerr.flush();
  std::clog.flush();
  std::fflush(nullptr);
}

}  // namespace

std::atomic<std::uint32_t> ProcessLife::state_{0};

/// What the system calls.
struct ProcessHooks {
  static void before_fork() ABSL_NO_THREAD_SAFETY_ANALYSIS { registry().mutex.lock(); }
  static void after_fork() ABSL_NO_THREAD_SAFETY_ANALYSIS { registry().mutex.unlock(); }
  static void in_child() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    Registry& all = registry();
    all.orphaned = all.orphaned || !all.busy.empty();
    all.inherited = all.inherited || all.unforkable;
    all.busy.clear();
    all.exiting = std::thread::id();
    all.idle_exit = std::thread::id();
    all.status.reset();
    const std::uint32_t next = ProcessLife::generation() + 1;
    ProcessLife::state_.store(next * ProcessLife::kGenerationStep, std::memory_order_relaxed);
    all.mutex.unlock();
  }

  /// Before what has become static until watch() is destroyed.
  static void on_exit(int, void*) {
    Registry& all = registry();
    MutexLock lock(all.mutex);
    if (all.exiting != std::thread::id()) return;
    if (all.busy.empty()) {
      // Who starts a worker meanwhile has this called once more.
      if (all.idle_exit != std::thread::id()) return;
      all.idle_exit = std::this_thread::get_id();
      all.moves_on = SteadyClock::now() + kLongestStandstill;
      return;
    }
    all.exiting = std::this_thread::get_id();
    all.moves_on = SteadyClock::now() + kLongestStandstill;
    ProcessLife::state_.fetch_or(ProcessLife::kEnding | ProcessLife::kStandstill);
    for (ProcessLife::Busy* each : all.busy) each->look_up();
    const SteadyClock::time_point until = SteadyClock::now() + kPatience;
    const auto is_still = [](ProcessLife::Busy* each) { return each->stands_still(); };
    while (SteadyClock::now() < until && !std::all_of(all.busy.begin(), all.busy.end(), is_still)) {
      // There is no notice: threads that work do not pay for one.
      all.changed.wait_until(all.mutex, SteadyClock::now() + kLookAgain);
    }
  }

  /// After what the program has made static, and before what its shared libraries have.
  static void on_exit_of_libraries(int status, void*) {
    {
      Registry& all = registry();
      MutexLock lock(all.mutex);
      if (all.busy.empty() && !all.orphaned) {
        // No thread starts any more, however slow that is.
        all.idle_exit = std::this_thread::get_id();
        all.moves_on = SteadyClock::now() + kLongestEnd;
        all.status = status;
        return;
      }
    }
    flush_streams();
    ::_exit(status);
  }
};

namespace {

// Runs when the program is loaded, after its libraries' constructors and before its own.
__attribute__((constructor(101))) void on_load() {
  ::on_exit(&ProcessHooks::on_exit_of_libraries, nullptr);
}

}  // namespace

void ProcessLife::watch() {
  Registry& all = registry();
  MutexLock lock(all.mutex);
  if (!all.watches_forks) {
    all.watches_forks = ::pthread_atfork(&ProcessHooks::before_fork, &ProcessHooks::after_fork,
                                         &ProcessHooks::in_child) == 0;
  }
  // Each time would be one entry for each worker that ever starts.
  const std::uint64_t watches = ++all.watches;
  if ((watches & (watches - 1)) == 0) ::on_exit(&ProcessHooks::on_exit, nullptr);
}

absl::Status ProcessLife::may_start_worker() {
  Registry& all = registry();
  MutexLock lock(all.mutex);
  if (!all.orphaned && !all.inherited) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "no worker can be started here: this process was forked from one that has started a worker, "
      "whose threads and connections do not survive fork(), nor does what gRPC keeps when the "
      "worker was shut down. Fork before workers are started, or let the child exec");
}

void ProcessLife::let_no_child_start_workers() {
  Registry& all = registry();
  MutexLock lock(all.mutex);
  all.unforkable = true;
}

void ProcessLife::stand_still() {
  Registry& all = registry();
  MutexLock lock(all.mutex);
  if (all.exiting == std::this_thread::get_id()) return;
  while (is_standstill() && SteadyClock::now() < all.moves_on) {
    all.changed.wait_until(all.mutex, all.moves_on);
  }
  state_.fetch_and(~kStandstill);
}

void ProcessLife::move_on_if_exiting() {
  if (!is_standstill()) return;
  Registry& all = registry();
  MutexLock lock(all.mutex);
  if (all.exiting != std::this_thread::get_id()) return;
  state_.fetch_and(~kStandstill);
  all.changed.notify_all();
}

void ProcessLife::add(Busy* busy) {
  Registry& all = registry();
  MutexLock lock(all.mutex);
  // A worker that another thread starts meanwhile would find libraries destroyed.
  const bool is_late =
      all.idle_exit != std::thread::id() && all.idle_exit != std::this_thread::get_id();
  while (is_late && SteadyClock::now() < all.moves_on) {
    all.changed.wait_until(all.mutex, all.moves_on);
  }
  if (is_late && all.status) {
    // A library's destructor waits for this very thread, or hangs.
    flush_streams();
    ::_exit(*all.status);
  }
  all.busy.push_back(busy);
}

void ProcessLife::remove(Busy* busy) {
  Registry& all = registry();
  MutexLock lock(all.mutex);
  all.busy.erase(std::remove(all.busy.begin(), all.busy.end(), busy), all.busy.end());
}

absl::Status ProcessBound::orphaned() {
  return absl::FailedPreconditionError(
      "this process was forked from the one in which the worker was started, and a worker does not "
      "survive fork(): start workers in the child (forked before the parent starts any), or let "
      "the child "
      "exec");
}

void ProcessBound::fail() { throw_error(orphaned()); }

}  // namespace sinew::internal
