#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/process_life.h"
#include "sinew/rpc/base/threads/executor.h"
#include "sinew/rpc/base/threads/timer_queue.h"
#include "sinew/rpc/calls/extension.h"
#include "sinew/rpc/membership/control_plane.h"
#include "sinew/rpc/membership/directory.h"
#include "sinew/rpc/membership/quiescence.h"
#include "sinew/rpc/membership/scheduler.h"
#include "sinew/rpc/transport/transport.h"
#include "sinew/rpc/worker_options.h"

namespace sinew::internal {

class CallServer;
struct CallCounts;
class DeviceLayer;
class Gather;
class Membership;
class PendingCall;
class CallLink;
class WorkerLinks;

/// What a Worker handle stands for: owns the parts of one worker and ties them together. Layers of
/// Sinew reach their worker through it. Thread-safe.
class WorkerCore final : public std::enable_shared_from_this<WorkerCore>, public ControlPlane {
 public:
  /// See Worker::start.
  static std::shared_ptr<WorkerCore> start(WorkerOptions options);
  ~WorkerCore() override;

  // Constant once start() has returned.
  /// Which process it works in: in a forked child nothing of it may be used.
  const ProcessBound& process() const { return process_; }
  const WorkerInfo& self() const { return self_; }
  const WorkerOptions& options() const { return options_; }
  const std::string& address() const { return address_; }
  /// Runs handlers and continuations.
  const std::shared_ptr<Executor>& executor() const { return executor_; }
  /// Runs control work: short, never user code, never blocked.
  Executor& control_executor() { return *control_executor_; }
  TimerQueue& timers() { return timers_; }
  Clock& clock() const { return Clock::system(); }
  Directory& directory() { return directory_; }
  Transport& transport() { return *transport_; }
  CallServer& server() { return *server_; }
  const std::shared_ptr<DeviceLayer>& devices() const { return devices_; }
  /// Null when no reference layer is there.
  References* references() const { return references_; }
  const std::vector<std::shared_ptr<Extension>>& extensions() const { return extensions_; }
  Extension* extension(std::string_view layer) const;
  /// An extension registers itself as the reference layer in its constructor.
  void set_references(References* references) { references_ = references; }

  /// Whom this worker is linked with, and who is lost.
  WorkerLinks& links() { return *links_; }
  /// The link with a member; makes it if there is none. One with a lost incarnation fails all
  /// calls.
  absl::StatusOr<std::shared_ptr<CallLink>> link(const WorkerInfo& worker);
  bool is_lost(const WorkerInfo& worker) const;
  /// The rank of an incarnation in the list of members, this worker included; -1: it is none.
  std::int32_t rank_of(const WorkerInfo& worker) const;
  /// This worker says goodbye: that others close their side is no news.
  bool is_leaving() const { return leaving_.load(std::memory_order_acquire); }

  /// One-way message to a layer of a peer; may be lost (then it is no error here).
  void send_note(const WorkerInfo& to, std::string_view layer, std::string body);

  // What follows from the loss of a peer: said to the layers, to the membership and the gathers, on
  // the control executor.
  void tell_fenced(const WorkerInfo& worker);
  void tell_lost(const WorkerInfo& worker);
  void tell_membership_lost(const WorkerInfo& worker);

  // ControlPlane
  void add_control_method(std::string name, ControlHandler handler) override;
  Future<std::string> control_call(const WorkerInfo& to, std::string_view method, std::string body,
                                   std::chrono::nanoseconds timeout) override;
  Future<std::string> control_call_address(const std::string& address, std::string_view method,
                                           std::string body,
                                           std::chrono::nanoseconds timeout) override;
  /// Empty when there is none.
  ControlHandler find_control_method(std::string_view name) const;

  Gather& gather() { return *gather_; }
  const Scheduler& scheduler() const { return *scheduler_; }

  /// Members that are not known to be lost, by rank.
  std::vector<WorkerInfo> live_workers() const;
  void log(const std::string& text) const;

  Counters counters() const;
  std::chrono::nanoseconds default_timeout() const {
    return std::chrono::nanoseconds(default_timeout_ns_.load(std::memory_order_relaxed));
  }
  void set_default_timeout(std::chrono::nanoseconds timeout);

  void shutdown(const ShutdownOptions& options);
  bool is_running() const { return running_.load(std::memory_order_acquire); }

 private:
  struct CallTotals {
    /// Calls to others that have not ended, and how many were ever started.
    std::int64_t active = 0;
    std::int64_t started = 0;
    /// Calls of others that are being served.
    std::int64_t served = 0;
    /// Calls of any kind and notes to others than this worker itself, ever.
    std::int64_t requests = 0;
  };

  explicit WorkerCore(WorkerOptions options);
  void build();
  void join();
  void check_device_maps_of_world();
  CallTotals call_totals() const;
  CallCounts call_counts() const;
  void keep_leases();
  absl::Status drain(Clock::TimePoint deadline, const ShutdownOptions& options);
  void teardown(const absl::Status& reason);

  const ProcessBound process_;
  const WorkerOptions options_;
  WorkerInfo self_;
  int world_size_ = 0;
  std::string address_;
  std::atomic<std::int64_t> default_timeout_ns_;
  std::atomic<bool> running_{false};
  std::atomic<bool> joined_{false};
  std::atomic<bool> leaving_{false};

  std::shared_ptr<Executor> executor_;
  std::shared_ptr<Executor> control_executor_;
  // Destroyed before what its callbacks use.
  TimerQueue timers_;
  Directory directory_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<CallServer> server_;
  std::unique_ptr<WorkerLinks> links_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Gather> gather_;
  std::unique_ptr<Membership> membership_;
  std::shared_ptr<DeviceLayer> devices_;
  std::vector<std::shared_ptr<Extension>> extensions_;
  References* references_ = nullptr;

  mutable Mutex mutex_;
  absl::flat_hash_map<std::string, ControlHandler> control_methods_ ABSL_GUARDED_BY(mutex_);
  bool shutting_down_ ABSL_GUARDED_BY(mutex_) = false;

  Mutex shutdown_mutex_;
  bool shut_down_ ABSL_GUARDED_BY(shutdown_mutex_) = false;
  // Of a fixed world, also those lost since; constant once start() has returned.
  std::vector<std::string> world_names_;
};

}  // namespace sinew::internal
