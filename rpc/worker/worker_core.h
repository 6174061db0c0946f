#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "sinew/link.pb.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/membership_state.h"
#include "sinew/rpc/base/process_life.h"
#include "sinew/rpc/base/threads/executor.h"
#include "sinew/rpc/base/threads/timer_queue.h"
#include "sinew/rpc/calls/extension.h"
#include "sinew/rpc/calls/worker_services.h"
#include "sinew/rpc/link/hello.h"
#include "sinew/rpc/membership/control_plane.h"
#include "sinew/rpc/membership/directory.h"
#include "sinew/rpc/membership/member_codec.h"
#include "sinew/rpc/membership/quiescence.h"
#include "sinew/rpc/membership/scheduler.h"
#include "sinew/rpc/transport/transport.h"
#include "sinew/rpc/worker/member_events.h"
#include "sinew/rpc/worker_options.h"

namespace sinew {
struct Rendezvous;
namespace internal {

struct CallCounts;
class ConnectRequests;
struct Departed;
class DeviceLayer;
class Membership;
struct MembershipOptions;
class MemberWaits;
class Pauses;
class RegistrarSeat;
class Rejoiner;
struct StartedTransport;
class WorkerLinks;

/// What a Worker handle stands for: owns the parts of one worker and ties them together.
/// Thread-safe.
class WorkerCore final : public std::enable_shared_from_this<WorkerCore>, public WorkerServices {
 public:
  /// What a worker is told that takes the place of an evicted one.
  struct Succession {
    /// Called when the worker begins to look for the job.
    std::function<void(WorkerCore&)> on_joining;
  };
  /// See init_rpc(). `succession` may be null.
  static std::shared_ptr<WorkerCore> start(WorkerOptions options,
                                           const Succession* succession = nullptr);
  ~WorkerCore() override;

  // Constant once start() has returned.
  const std::string& address() const { return address_; }
  Transport& transport() { return *transport_; }
  Membership& membership() { return *membership_; }

  MemberEvents& member_events() { return member_events_; }
  /// The links of this worker, and which peers are lost.
  WorkerLinks& links() { return *links_; }
  ConnectRequests& connect_requests() { return *connect_requests_; }
  /// Of this worker's list of members; no name before it has joined.
  WorkerInfo coordinator() const;
  /// See Membership::when_sure().
  void when_sure(std::function<void()> then);
  /// What it says of itself in hellos.
  SelfDescription description() const;
  /// A connection of one that asks for the job's registrar.
  absl::StatusOr<Acceptor::Accepted> on_registrar_asked(const proto::Hello& said) const;
  MembershipState membership_state() const;
  /// This worker says goodbye: that others close their side is no news.
  bool is_leaving() const { return leaving_.load(std::memory_order_acquire); }

  // What follows from the loss of a peer: said to the layers, and to the membership, on
  // the control executor.
  void tell_fenced(const WorkerInfo& worker);
  void tell_lost(const WorkerInfo& worker);
  void tell_membership_lost(const WorkerInfo& worker, bool has_ended, std::string reason);

  /// Members that are not known to be lost, by rank.
  std::vector<WorkerInfo> live_workers() const;
  Counters counters() const;
  void set_default_timeout(std::chrono::nanoseconds timeout);
  void shutdown(const ShutdownOptions& options);
  /// See Worker::serve_until_done(). An evicted worker stays as it is.
  ServedUntil serve_until_done();

  /// What becomes of it when it is evicted.
  Rejoiner& rejoiner() { return *rejoiner_; }
  /// Ends the evicted worker as shutdown() does, for another one to take its place; returns when
  /// that is done, by whomever.
  void end_evicted();
  /// Its start fails with kCancelled; if it has joined already it leaves. Never blocks.
  void stop_joining();
  /// The calling thread runs a task of this worker, so it cannot wait for its end.
  bool is_own_thread() const;

  // WorkerServices
  const ProcessBound& process() const override { return process_; }
  const WorkerInfo& self() const override { return self_; }
  const WorkerOptions& options() const override { return options_; }
  const std::shared_ptr<Executor>& executor() const override { return executor_; }
  Executor& control_executor() override { return *control_executor_; }
  TimerQueue& timers() override { return timers_; }
  Clock& clock() const override { return Clock::system(); }
  Directory& directory() override { return directory_; }
  CallServer& server() override { return *server_; }
  MessageDevices& devices() override;
  const std::vector<std::shared_ptr<Extension>>& extensions() const override { return extensions_; }
  void report(StateReport& report) override;
  bool cancel_served(const std::string& caller, std::uint64_t id) override;
  Extension* extension(std::string_view layer) const override;
  bool waits_for_layers() const override { return waits_for_layers_; }
  void when_layers_are_made(Task task) override { for_layers_.push_back(std::move(task)); }
  References* references() const override { return references_; }
  void set_references(References* references) override { references_ = references; }
  ControlHandler find_control_method(std::string_view name) const override;
  absl::StatusOr<std::shared_ptr<CallLink>> link(const WorkerInfo& worker) override;
  void on_unreached(const WorkerInfo& peer) override;
  void on_suspected(const WorkerInfo& peer, bool suspected) override;
  void on_link_ended(const WorkerInfo& peer, EndedLink link) override;
  const std::shared_ptr<WorkerEnd>& end() const override { return end_; }
  bool is_lost(const WorkerInfo& worker) const override;
  Future<WorkerInfo> wait_for_member(std::string name, Incarnation other_than,
                                     Clock::TimePoint deadline) override;
  Future<void> wait_until(Clock::TimePoint when) override;
  std::int32_t rank_of(const WorkerInfo& worker) const override;
  void send_note(const WorkerInfo& to, std::string_view layer, std::string body,
                 OnCarrierEnd on_end = nullptr) override;
  void log(const std::string& text) const override;
  std::chrono::nanoseconds default_timeout() const override {
    return std::chrono::nanoseconds(default_timeout_ns_.load(std::memory_order_relaxed));
  }
  bool is_running() const override { return running_.load(std::memory_order_acquire); }
  std::shared_ptr<WorkerServices> shared_services() override { return shared_from_this(); }
  std::weak_ptr<WorkerServices> weak_services() override { return weak_from_this(); }
  Worker handle() override;

  // ControlPlane
  void add_control_method(std::string name, ControlHandler handler) override;
  Future<std::string> control_call(const WorkerInfo& to, std::string_view method, std::string body,
                                   std::chrono::nanoseconds timeout) override;

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
  /// Takes no more threads than the host leaves, and says what may not suffice.
  void fit_host() const;
  void build();
  MembershipOptions membership_options(Rendezvous rendezvous);
  void make_membership(Rendezvous rendezvous, const StartedTransport& started);
  /// Logs once when the job has no token and callers need not prove who they are.
  void say_if_open() const;
  std::vector<std::string> control_methods() const;
  [[noreturn]] void end_start(const absl::Status& why);
  std::unique_ptr<RegistrarSeat> make_seat(const Rendezvous& rendezvous,
                                           const StartedTransport& started);
  void on_members_changed(const std::vector<Member>& joined, const std::vector<Departed>& gone);
  std::vector<std::string> names_of_world() const;
  void on_evicted(const absl::Status& reason);
  void join(const Succession* succession);
  void check_device_maps_of_world();
  void make_layers();
  CallTotals call_totals() const;
  CallCounts call_counts() const;
  void keep_leases();
  // Meets the others at the end. The result is the `purpose` of each; that of a lost worker is
  // empty.
  Future<std::vector<std::string>> meet_at_end(std::string_view purpose,
                                               std::chrono::nanoseconds timeout);
  template <class T>
  bool wait_for_others(const Future<T>& meeting, Clock::TimePoint deadline);
  void serve_until_the_end();
  void leave_when_asked();
  absl::Status check_job(const std::vector<std::string>& purposes);
  void drain_layers(Clock::TimePoint deadline, std::vector<std::string>& leaks);
  absl::Status drain(const ShutdownOptions& options);
  enum class Drain { kNone, kUnderWay, kEnded };
  /// False: it was ended before it has begun.
  bool begin_drain();
  void drain_is_over();
  /// Has one that is under way fail, and none begin.
  void end_drain();
  absl::Status own_shutdown() const;
  void teardown(const absl::Status& reason);
  void end_gathers(const absl::Status& reason);

  const ProcessBound process_;
  const Clock::TimePoint started_at_ = Clock::system().now();
  const WorkerOptions options_;
  const std::shared_ptr<WorkerEnd> end_;
  const std::shared_ptr<const WorkerKey> key_ = WorkerKey::draw();
  WorkerInfo self_;
  int world_size_ = 0;
  std::string address_;
  const std::size_t max_threads_;
  std::atomic<std::int64_t> default_timeout_ns_;
  std::atomic<bool> running_{false};
  std::atomic<bool> joined_{false};
  std::atomic<bool> leaving_{false};

  const std::shared_ptr<Rejoiner> rejoiner_;
  std::shared_ptr<Executor> executor_;
  std::shared_ptr<Executor> control_executor_;
  // Stopped before what its callbacks use goes.
  TimerQueue timers_;
  Directory directory_;
  MemberEvents member_events_;
  const std::shared_ptr<Pauses> pauses_;
  const std::shared_ptr<MemberWaits> member_waits_;
  // Tells them.
  std::shared_ptr<MemberSubscription> member_subscription_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<CallServer> server_;
  std::unique_ptr<WorkerLinks> links_;
  std::unique_ptr<ConnectRequests> connect_requests_;
  std::unique_ptr<Transport> transport_;
  std::shared_ptr<Membership> membership_;
  // Null where no worker is registrar.
  std::function<absl::StatusOr<Acceptor::Accepted>(const proto::Hello&)> accept_asker_;
  std::shared_ptr<DeviceLayer> devices_;
  std::vector<std::shared_ptr<Extension>> extensions_;
  // The control executor's. Links bound what their peers have waiting here.
  bool waits_for_layers_ = true;
  std::vector<Task> for_layers_;
  References* references_ = nullptr;

  mutable Mutex mutex_;
  absl::flat_hash_map<std::string, ControlHandler> control_methods_ ABSL_GUARDED_BY(mutex_);
  bool shutting_down_ ABSL_GUARDED_BY(mutex_) = false;
  Drain drain_ ABSL_GUARDED_BY(mutex_) = Drain::kNone;
  CondVar drain_changed_;
  Future<std::vector<std::string>> end_meeting_ ABSL_GUARDED_BY(mutex_);

  Mutex shutdown_mutex_;
  bool shut_down_ ABSL_GUARDED_BY(shutdown_mutex_) = false;
};

}  // namespace internal
}  // namespace sinew
