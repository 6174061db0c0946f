#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/threads/strand.h"
#include "sinew/rpc/worker.h"
#include "sinew/rref/internal/reference_handle.h"
#include "sinew/rref/internal/team_table.h"
#include "sinew/rref/team_options.h"

namespace sinew::internal {

/// Whether a call of any member that failed so may be made at another one: it did not run, or does
/// no harm when it runs twice and its member is lost.
bool may_go_elsewhere(const std::exception_ptr& error, bool is_idempotent);
[[noreturn]] void throw_published_made(const std::string& members);
[[noreturn]] void throw_made_of_something(const std::string& members);
[[noreturn]] void throw_no_team();

/// A Team without its type: a TeamTable with the worker's events, timers and lock. Thread-safe.
/// Held by shared_ptr.
class TeamCore final : public std::enable_shared_from_this<TeamCore> {
 public:
  using Handle = std::shared_ptr<ReferenceHandle>;
  /// Makes, or finds, the object at a worker. Completes when it is there.
  using Make = std::function<Future<Handle>(const Worker& worker, const WorkerInfo& member)>;

  /// One whose object is there.
  struct Ready {
    WorkerInfo worker;
    Handle object;
    std::shared_ptr<std::atomic<std::int64_t>> in_flight;
  };

  TeamCore(Worker worker, TeamOptions options, Make make);
  ~TeamCore();
  /// Once, before anything else.
  void start();

  /// In the order of their ranks.
  std::vector<Ready> ready() const;
  /// The one with the fewest calls under way, but those in `without`; those with equally few take
  /// turns. Empty: there is none.
  std::optional<Ready> least_busy(const std::vector<Incarnation>& without) const;
  /// Waits until so many are ready. Throws kDeadlineExceeded, which says what the others do.
  void wait_for(std::size_t count, std::optional<std::chrono::nanoseconds> timeout);
  /// What the members do, for people.
  std::string describe() const;
  const std::string& name() const { return options_.members; }

 private:
  struct Waiter {
    std::uint64_t number;
    std::size_t count;
    Promise<void> promise;
  };

  bool matches(const WorkerInfo& worker) const;
  void on_member(const MemberEvent& event);
  void perform(TeamTable::Outputs outputs);
  void make_one(const TeamTable::Outputs::Make& make);
  void on_made(TeamTable::Attempt attempt, const WorkerInfo& member, const Future<Handle>& made);
  void arm();
  Executor* executor() const;

  const Worker worker_;
  const TeamOptions options_;
  const Make make_;
  const std::string workers_;
  // Users' functions, one at a time and in order.
  const std::shared_ptr<Strand> events_;

  mutable Mutex mutex_;
  TeamTable table_ ABSL_GUARDED_BY(mutex_);
  // By incarnation: those that are ready.
  std::map<Incarnation, Ready> objects_ ABSL_GUARDED_BY(mutex_);
  std::vector<Waiter> waiters_ ABSL_GUARDED_BY(mutex_);
  Clock::TimePoint armed_for_ ABSL_GUARDED_BY(mutex_) = Clock::TimePoint::max();
  std::uint64_t last_waiter_ ABSL_GUARDED_BY(mutex_) = 0;
  mutable std::uint64_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  // The last one: its function uses the others.
  MemberWatch watch_;
};

}  // namespace sinew::internal
