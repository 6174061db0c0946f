#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "sinew/groups/internal/backend.h"
#include "sinew/groups/internal/call_order.h"
#include "sinew/groups/internal/call_signature.h"
#include "sinew/groups/internal/group_life.h"
#include "sinew/groups/internal/group_runtime.h"
#include "sinew/groups/internal/operation_board.h"
#include "sinew/groups/process_group.h"
#include "sinew/groups/store.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/member_event.h"

namespace sinew::internal {

class StateReport;
class WorkerServices;

/// One operation of a group, as it goes to a backend.
struct Operation {
  CallSignature signature;
  c10::Device device = c10::Device(c10::DeviceType::CPU);
  /// Point-to-point: the other end; -1: anybody, or everybody.
  int peer = -1;
  std::optional<std::chrono::nanoseconds> timeout;
  /// Of a collective; its thread is the engine's to say.
  CollectiveCaller caller;
  /// Calls the backend.
  std::function<c10::intrusive_ptr<c10d::Work>(C10dBackend& backend)> start;
  /// What is left to do with the results; null: nothing. Any thread.
  std::function<void()> finish;
  /// Called once; `source`: who has sent it, of a receive. Any thread, no lock held.
  std::function<void(const std::exception_ptr& error, int source)> done;
};

/// One group at one rank: takes operations in order to its backends, keeps their time limits,
/// compares what the ranks call, and decides when the group has failed. Thread-safe.
class GroupEngine : public std::enable_shared_from_this<GroupEngine> {
 public:
  using Backends = std::map<c10::DeviceType, std::shared_ptr<Backend>>;
  struct Setup {
    std::string name;
    int rank = 0;
    int size = 1;
    std::chrono::nanoseconds timeout{0};
    /// The group's own keys; empty: nothing can be found out about others.
    Store store;
    /// The rank whose process serves that and takes it along when it ends. Unset: none of them.
    std::optional<int> store_server;
    /// By rank here, in the job's first group.
    std::vector<int> job_ranks;
    /// How it was asked for; for groups that are made of this one.
    GroupOptions options;
    /// The local address where connections are accepted.
    std::string listen_host;
    /// Met over a worker: who has which rank.
    std::vector<WorkerInfo> workers;
    /// Whether all members are still there, while the group starts; null: not known.
    std::function<absl::Status()> health;
  };

  static std::shared_ptr<GroupEngine> make(Setup setup, Backends backends);
  ~GroupEngine();

  const Setup& setup() const { return setup_; }
  int rank() const { return setup_.rank; }
  int size() const { return setup_.size; }
  /// Throws RpcError kUnimplemented.
  Backend& backend_for(c10::DeviceType device) const;
  /// The CPU where there is a backend for it.
  c10::DeviceType any_device() const { return backends_.begin()->first; }
  /// The next group made of this one.
  int next_subgroup() { return subgroups_.fetch_add(1); }
  /// The next thing besides that ranks make over this one in the same order.
  int next_object() { return objects_.fetch_add(1); }

  /// Throws RpcError kFailedPrecondition when the group is not open.
  void check_open() const;
  /// Throws as check_open(), and kInvalidArgument for a collective that has no order with one in
  /// which another thread waits; that ends the group.
  void submit(Operation operation);
  /// Runs the operation in the calling thread, which would wait for it anyway: for backends where
  /// that takes much less time (Backend::is_waited_for_in_place). Returns who has sent it, of a
  /// receive from anybody, and -1 otherwise; nullopt, and nothing has happened, if it is to be
  /// submitted instead, since its turn has not come or the ranks have to compare it. `done` is not
  /// called: errors are thrown.
  std::optional<int> run_in_place(Operation& operation);
  /// The members of the group's worker are watched from now on.
  void watch(const Worker& worker);
  /// The worker that watch() was called with, if that is still there.
  std::optional<Worker> worker() const;
  void destroy();
  /// What operators see of it.
  void report(StateReport& report) const;

 private:
  using Id = GroupLife::OperationId;
  struct Pending {
    Operation operation;
    Clock::TimePoint deadline;
    /// Where the caller's own work on the device is queued; null: nowhere.
    Backend::RunOn run_on;
    /// Of collectives, by their order; 0: point-to-point.
    std::uint64_t number = 0;
    Timers::TimerId timer = 0;
  };
  struct Check;

  GroupEngine(Setup setup, Backends backends);

  bool needs_check_locked(const CallSignature& signature) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Throws RpcError when the group is not open, or has too many already.
  Id begin_operation_locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool begin_in_place(Operation& operation);
  /// The collective is the next one, and is given its number.
  absl::StatusOr<std::uint64_t> begin_collective_locked(Operation& operation)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void wait_in_place(Operation& operation, const c10::intrusive_ptr<c10d::Work>& work);
  [[noreturn]] void end_late(Operation operation);
  void issue_queued();
  void issue(Id id);
  void start_check(Id id);
  void on_checked(Id id, const absl::Status& agreed, const std::exception_ptr& error);
  void follow(Id id, const std::shared_ptr<Pending>& pending, Backend& backend,
              const c10::intrusive_ptr<c10d::Work>& work);
  void on_work_failed(Id id, const std::exception_ptr& error);
  void end(Id id, const std::exception_ptr& error, int source);
  /// Null: it has ended.
  std::shared_ptr<Pending> find(Id id) const;
  static void run_on(const Pending& pending, const std::function<void()>& f);
  void arm(Id id);
  void on_timer(Id id);
  void look(Id id);
  void time_out(Id id);
  void on_broken();
  void on_lost(int rank, const std::string& reason);
  /// `reason` as this rank sees it; what the ranks agree on counts.
  void fail(const absl::Status& reason);
  /// Who is there and loses the store with this rank.
  std::vector<int> readers_of_end() const;
  [[noreturn]] void fail_and_throw(const absl::Status& reason);
  void abort_backends(const absl::Status& reason);
  std::vector<Pending> take(const std::vector<Id>& ids);
  absl::Status reason_of(const std::exception_ptr& error, const Operation& operation) const;
  std::string member_text(int rank) const;

  const Setup setup_;
  Backends backends_;
  GroupRuntime& runtime_;
  const OperationBoard board_;
  std::atomic<int> subgroups_{0};
  std::atomic<int> objects_{0};
  MemberWatch watch_;
  std::weak_ptr<WorkerServices> watched_;

  mutable Mutex mutex_;
  GroupLife life_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<Id, std::shared_ptr<Pending>> pending_ ABSL_GUARDED_BY(mutex_);
  /// Those that run in the threads of their callers, and their numbers.
  absl::flat_hash_map<const Operation*, std::uint64_t> in_place_ ABSL_GUARDED_BY(mutex_);
  /// Collectives that have not gone to the backend.
  std::deque<Id> queue_ ABSL_GUARDED_BY(mutex_);
  /// A thread takes from the queue, or an operation at its head is being compared.
  bool is_issuing_ ABSL_GUARDED_BY(mutex_) = false;
  std::uint64_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;
  CallOrder order_ ABSL_GUARDED_BY(mutex_);
  /// Keys of signatures that all ranks have agreed about.
  absl::flat_hash_set<std::uint64_t> agreed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
