// The part of WorkerCore that ends it: with the others or alone, and once a server is done.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/stop_signal.h"
#include "sinew/rpc/base/trace.h"
#include "sinew/rpc/call_options.h"
#include "sinew/rpc/calls/call_server.h"
#include "sinew/rpc/membership/membership.h"
#include "sinew/rpc/worker/member_waits.h"
#include "sinew/rpc/worker/pauses.h"
#include "sinew/rpc/worker/rejoiner.h"
#include "sinew/rpc/worker/worker_core.h"
#include "sinew/rpc/worker/worker_links.h"

namespace sinew::internal {
namespace {

// For peers to hear what they were answered last. They mostly need a round trip.
constexpr auto kAnswersTime = std::chrono::seconds(1);
// Within which the next gather of a shutdown may begin.
constexpr auto kBetweenGathers = std::chrono::milliseconds(50);
// So long a shutdown with others waits for the registrar.
constexpr auto kAbsence = std::chrono::milliseconds(1500);
constexpr auto kStateLook = std::chrono::milliseconds(100);
// A gather ends by itself at its deadline, and says who has not come.
constexpr auto kLateAnswer = std::chrono::seconds(2);
// Once all have reached a shutdown that has no limit of its own.
constexpr auto kDrainTime = std::chrono::seconds(60);
// A program that is asked to end is killed soon after: by a container engine after 10 s.
constexpr auto kStopPatience = std::chrono::seconds(8);

// What a worker comes to the end of its job for.
constexpr std::string_view kWorked = "worked";
constexpr std::string_view kServed = "served";

}  // namespace

CallCounts WorkerCore::call_counts() const {
  CallCounts counts;
  const CallTotals totals = call_totals();
  // Continuations on their way count too: they may start calls. Asked last, since a call's
  // continuation is queued before the call stops to be counted.
  const Executor::Stats stats = executor_->stats();
  counts.active = static_cast<std::uint64_t>(totals.active + totals.served) + stats.queued_tasks +
                  (stats.threads - stats.idle_threads);
  counts.started = static_cast<std::uint64_t>(totals.started);
  return counts;
}

// The first layer that cannot ends it; what the ones before have said stays.
void WorkerCore::drain_layers(Clock::TimePoint deadline, std::vector<std::string>& leaks) {
  const auto scope =
      world_size_ > 0 ? Extension::DrainScope::kWholeJob : Extension::DrainScope::kThisWorker;
  std::vector<Future<std::vector<std::string>>> drains;
  for (const auto& extension : extensions_) {
    drains.push_back(extension->drain_async(scope, deadline));
  }
  for (auto& drain : drains) {
    for (const std::string& leak : drain.wait()) leaks.push_back(leak);
  }
}

absl::Status WorkerCore::drain(const ShutdownOptions& options) {
  const std::chrono::nanoseconds timeout = options.timeout.value_or(kNoTimeout);
  if (timeout <= std::chrono::nanoseconds(0)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("ShutdownOptions::timeout must be positive, it is %d ns: worker '%s' was "
                        "shut down without waiting for anything",
                        timeout.count(), self_.name));
  }
  Clock::TimePoint deadline = deadline_after(clock().now(), timeout);
  const auto left = [&]() -> std::chrono::nanoseconds {
    if (deadline == Clock::TimePoint::max()) return kNoTimeout;
    return std::max<std::chrono::nanoseconds>(deadline - clock().now(),
                                              std::chrono::milliseconds(1));
  };
  absl::Status failed;
  const auto attempt = [&](const char* step, const std::function<void()>& run) {
    if (!failed.ok()) return;
    try {
      run();
    } catch (...) {
      const absl::Status status = to_status(std::current_exception());
      failed = absl::Status(
          status.code(), absl::StrFormat("graceful shutdown of worker '%s' failed while it %s: %s",
                                         self_.name, step, status.message()));
    }
  };
  // In open membership others stay; only what concerns this worker must come to rest.
  const bool are_others = world_size_ > 0 && evicted().ok();
  bool is_alone = !are_others;
  const auto meet = [this](const std::vector<std::string>& names, std::string value,
                           std::chrono::nanoseconds patience) {
    return membership_->gather_from_job_async(names, std::move(value), patience);
  };
  if (!is_alone) {
    attempt("waited for the others to shut down too",
            [&] { is_alone = !wait_for_others(meet_at_end(kWorked, left()), deadline); });
  }
  const std::vector<std::string> names =
      is_alone ? std::vector<std::string>{self_.name} : names_of_world();
  if (!options.timeout.has_value()) deadline = deadline_after(clock().now(), kDrainTime);
  attempt("waited for calls to end", [&] {
    const bool are_there =
        wait_for_others(wait_for_quiescence_async(
                            meet, names, [this] { return call_counts(); }, left(), *scheduler_),
                        deadline);
    is_alone = is_alone || !are_there;
  });
  std::vector<std::string> leaks;
  attempt("gave up references", [&] { drain_layers(deadline, leaks); });
  for (const std::string& leak : leaks) log(leak);
  if (!leaks.empty() && options.fail_on_leaks && failed.ok()) {
    failed = absl::FailedPreconditionError(absl::StrFormat("worker '%s' leaks %d references:\n%s",
                                                           self_.name, leaks.size(),
                                                           absl::StrJoin(leaks, "\n")));
  }
  // The others may have left before this thread knows that they might.
  leaving_.store(true, std::memory_order_release);
  if (!is_alone) {
    // No worker leaves before all have got what they waited for.
    attempt("left together with the others",
            [&] { wait_for_others(meet(names, "", left()), deadline); });
  }
  attempt("saw to it that its results arrive", [&] {
    const absl::Status delivered = links_->deliver_results(left());
    if (!delivered.ok()) throw_error(delivered);
  });
  attempt("left the job", [&] { membership_->leave_async().wait(); });
  if (is_alone && are_others && failed.ok()) {
    log(absl::StrCat("it has left without the others: ", membership_->absence()));
  }
  return failed;
}

bool WorkerCore::begin_drain() {
  MutexLock lock(mutex_);
  if (drain_ == Drain::kEnded) return false;
  drain_ = Drain::kUnderWay;
  return true;
}

void WorkerCore::drain_is_over() {
  MutexLock lock(mutex_);
  drain_ = Drain::kEnded;
  drain_changed_.notify_all();
}

// What a drain waits for are gathers, one after the other, so the next one may begin meanwhile.
void WorkerCore::end_drain() {
  MutexLock lock(mutex_);
  while (drain_ == Drain::kUnderWay) {
    lock.unlock();
    membership_->end_gathers(own_shutdown());
    lock.lock();
    if (drain_ == Drain::kEnded) return;
    drain_changed_.wait_until(mutex_, std::chrono::steady_clock::now() + kBetweenGathers);
  }
  drain_ = Drain::kEnded;
}

absl::Status WorkerCore::own_shutdown() const {
  return absl::CancelledError(absl::StrFormat("worker '%s' was shut down", self_.name));
}

void WorkerCore::shutdown(const ShutdownOptions& options) {
  if (is_own_thread()) {
    throw RpcError(ErrorCode::kFailedPrecondition,
                   "a worker cannot be shut down by its own handler or continuation: it would wait "
                   "for itself");
  }
  rejoiner_->cancel_and_wait();
  if (!options.graceful) end_drain();
  MutexLock lock(shutdown_mutex_);
  if (shut_down_) return;
  shut_down_ = true;
  absl::Status failed;
  if (options.graceful) {
    failed = begin_drain() ? drain(options) : own_shutdown();
    drain_is_over();
  }
  teardown(own_shutdown());
  if (!failed.ok()) throw RpcError(failed.code(), std::string(failed.message()));
}

// One meeting, whichever of this worker's threads waits for it.
Future<std::vector<std::string>> WorkerCore::meet_at_end(std::string_view purpose,
                                                         std::chrono::nanoseconds timeout) {
  const std::vector<std::string> names = names_of_world();
  MutexLock lock(mutex_);
  if (!end_meeting_.valid()) {
    end_meeting_ = membership_->gather_from_job_async(names, std::string(purpose), timeout);
  }
  return end_meeting_;
}

// False: the registrar has been away for a while, so that no others can be waited for.
template <class T>
bool WorkerCore::wait_for_others(const Future<T>& meeting, Clock::TimePoint deadline) {
  meeting.on_done([weak = weak_from_this()](const Future<T>&) {
    const auto self = weak.lock();
    if (self == nullptr) return;
    MutexLock lock(self->mutex_);
    self->drain_changed_.notify_all();
  });
  Clock::TimePoint away_since = Clock::TimePoint::max();
  while (!meeting.done() && clock().now() < deadline_after(deadline, kLateAnswer)) {
    const Clock::TimePoint now = clock().now();
    const bool is_away = membership_->state() == MembershipState::kSuspected;
    away_since = is_away ? std::min(away_since, now) : Clock::TimePoint::max();
    if (is_away && now - away_since > kAbsence) {
      return false;
    }
    MutexLock lock(mutex_);
    if (!meeting.done()) {
      drain_changed_.wait_until(mutex_, std::chrono::steady_clock::now() + kStateLook);
    }
  }
  // Or says that it is late.
  meeting.wait_for(std::chrono::nanoseconds(1));
  return true;
}

// The values come in the order of the sorted names.
absl::Status WorkerCore::check_job(const std::vector<std::string>& purposes) {
  std::vector<std::string> names = membership_->world_names();
  std::sort(names.begin(), names.end());
  // A worker that has a place under another name meets no other: it knows only that the others have
  // gone.
  const bool meets = std::binary_search(names.begin(), names.end(), self_.name);
  const bool some_worked = std::find(purposes.begin(), purposes.end(), kWorked) != purposes.end();
  if (!meets || some_worked) return absl::OkStatus();
  std::vector<std::string> lost;
  for (std::size_t i = 0; i < std::min(names.size(), purposes.size()); ++i) {
    if (purposes[i].empty()) lost.push_back(member_waits_->absence(names[i]));
  }
  if (lost.empty()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "worker '", self_.name,
      "' has no worker left to serve, and the job is not done: ", absl::StrJoin(lost, "; ")));
}

void WorkerCore::serve_until_the_end() {
  if (world_size_ == 0) {
    // No worker has that name: it ends with this worker, or its eviction.
    wait_for_member({}, {}, Clock::TimePoint::max()).wait();
    return;
  }
  const absl::Status end = check_job(meet_at_end(kServed, kNoTimeout).wait());
  shutdown({});
  if (!end.ok()) throw_error(end);
}

// On the thread that waits for signals.
void WorkerCore::leave_when_asked() {
  ShutdownOptions options;
  options.graceful = world_size_ == 0;
  options.timeout = kStopPatience;
  try {
    shutdown(options);
  } catch (const RpcError& error) {
    log(error.message());
  }
}

ServedUntil WorkerCore::serve_until_done() {
  if (is_own_thread()) {
    throw RpcError(ErrorCode::kFailedPrecondition,
                   "a worker cannot wait for its job's end in its own handler or continuation: "
                   "the job would wait for that");
  }
  if (const absl::Status out = evicted(); !out.ok()) throw_error(out);
  if (!is_running()) return ServedUntil::kAskedToEnd;
  {
    // Ends when what was asked for has been done.
    const StopSignal signal([this] { leave_when_asked(); });
    try {
      serve_until_the_end();
      return ServedUntil::kJobIsOver;
    } catch (const RpcError& error) {
      if (const absl::Status out = evicted(); !out.ok()) throw_error(out);
      // A worker that was asked together with all others may have no one left to serve before it
      // leaves itself.
      const bool was_shut_down = error.code() == ErrorCode::kCancelled && !is_running();
      if (!was_shut_down && !StopSignal::requested()) throw;
    }
  }
  ShutdownOptions at_once;
  at_once.graceful = false;
  shutdown(at_once);  // returns when the one has ended that was asked for
  return ServedUntil::kAskedToEnd;
}

// Other threads may wait in them. The links have been closed: those who wait for this worker are to
// hear that it is gone, not why it has ended its own.
void WorkerCore::end_gathers(const absl::Status& reason) {
  try {
    membership_->end_gathers(reason).wait_for(kAnswersTime);
  } catch (const RpcError& error) {
    log(absl::StrCat("waits for the others could not be ended: ", error.message()));
  }
}

bool WorkerCore::is_own_thread() const {
  return Executor::current() == executor_.get() || Executor::current() == control_executor_.get();
}

void WorkerCore::end_evicted() {
  MutexLock lock(shutdown_mutex_);
  if (std::exchange(shut_down_, true)) return;
  teardown(evicted());
}

void WorkerCore::teardown(const absl::Status& reason) {
  running_.store(false, std::memory_order_release);
  {
    MutexLock lock(mutex_);
    if (shutting_down_) return;
    shutting_down_ = true;
  }
  // Waiting handlers wake up first, or their threads could not be joined.
  if (server_ != nullptr) server_->close();
  member_waits_->end(reason);
  pauses_->end(reason);
  // A barrier that has let this worker pass lets the others pass too.
  if (joined_.load(std::memory_order_acquire)) links_->deliver_answers(kAnswersTime);
  if (links_ != nullptr) links_->close(reason);
  if (membership_ != nullptr) {
    end_gathers(reason);
    membership_->close();
  }
  for (const auto& extension : extensions_) extension->stop();
  if (transport_ != nullptr) transport_->shutdown();
  executor_->shutdown();
  control_executor_->shutdown();
  timers_.stop();
  for_layers_.clear();
  if (Trace* const trace = Trace::of_process()) trace->flush();
}

}  // namespace sinew::internal
