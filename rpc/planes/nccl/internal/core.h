#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/planes/device_plane.h"
#include "sinew/rpc/planes/nccl/internal/messages.h"
#include "sinew/rpc/planes/nccl/internal/state.h"
#include "sinew/rpc/planes/nccl/nccl_plane.h"

namespace sinew::internal::nccl {

/// What a plane is; shared with its threads, of which some may have to be left behind.
///
/// Its parts: core.cc (the peers, and the messages to them), core_transfers.cc (promises),
/// core_links.cc (communicators, numbers, who may launch), launcher.cc (calls of NCCL), watchdog.cc
/// (events, deadlines, aborts, reports).
class Core : public std::enable_shared_from_this<Core> {
 public:
  explicit Core(NcclPlaneOptions options);
  /// Starts the watchdog. Throws std::system_error if it cannot.
  void start();

  // As in DevicePlane and NcclPlane.
  bool is_usable(const WorkerInfo& peer) const;
  std::uint64_t offer(const WorkerInfo& peer, int to_device, std::vector<DeviceBuffer> buffers,
                      DevicePlane::OnEnd on_end);
  void withdraw(const WorkerInfo& peer, std::uint64_t ticket);
  void accept(const WorkerInfo& peer, std::uint64_t ticket, std::vector<DeviceBuffer> buffers,
              DevicePlane::OnEnd on_end);
  void decline(const WorkerInfo& peer, std::uint64_t ticket);
  void on_message(const WorkerInfo& peer, const std::string& message);
  void on_peer_lost(const WorkerInfo& peer);
  void stop();
  NcclCounters counters() const;

 private:
  // ---- core.cc
  Peer* peer_locked(const WorkerInfo& worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Peer* known_peer_locked(const WorkerInfo& worker) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Link& link_locked(Peer& peer, LinkKey key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Without the mutex.
  void forget_lost();
  absl::Status usable_locked(const Peer& peer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// It takes nothing.
  static bool is_overfull(const Peer& peer);
  void post_locked(Peer& peer, Message message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void handle_locked(Peer& peer, Message& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Sends what is due, unless another thread does. Without the mutex.
  void transmit();
  struct Packed {
    WorkerInfo to;
    std::string note;
  };
  std::vector<Packed> pack_locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void on_note_ended(Incarnation peer);
  void log(const std::string& text) const;
  void break_peer_locked(Peer& peer, const absl::Status& why, Cause cause)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void end_all_locked(Peer& peer, const absl::Status& status, Cause cause)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void join_launchers();

  // ---- core_transfers.cc
  struct Prepared {
    TransferPtr transfer;
    absl::Status status;
  };
  Prepared prepare(Direction direction, std::vector<DeviceBuffer> buffers,
                   DevicePlane::OnEnd on_end) const;
  absl::Status record_ready(Transfer& transfer) const;
  absl::StatusOr<bool> look_ready(Transfer& transfer) const;
  std::chrono::nanoseconds time_for(const Transfer& transfer) const;
  void destroy_events(Transfer& transfer) const;
  absl::Status check_buffers(const std::vector<DeviceBuffer>& buffers) const;
  void offer_locked(const WorkerInfo& worker, int to_device, const Prepared& prepared)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void accept_locked(const WorkerInfo& worker, const TransferPtr& transfer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status match_locked(const Transfer& transfer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void promise_locked(const TransferPtr& transfer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void both_promised_locked(const TransferPtr& transfer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void refuse_locked(const TransferPtr& transfer, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void retract_locked(const TransferPtr& transfer, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void end_locked(const TransferPtr& transfer, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void forget_locked(const Transfer& transfer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void on_locked(Peer& peer, Offer& offer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void on_locked(Peer& peer, const Ready& ready) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void on_locked(Peer& peer, const Accept& accept) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void on_locked(Peer& peer, const Retract& retract) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void on_locked(Peer& peer, const End& end) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void on_locked(Peer& peer, const Done& done) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // ---- core_links.cc
  void on_locked(Peer& peer, const Open& open) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void on_locked(Peer& peer, const Start& start) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void on_locked(Peer& peer, const Abort& abort) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Device& device_locked(int id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void make_communicator_locked(Link& link, std::uint64_t epoch, std::string id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void queue_locked(const TransferPtr& transfer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void pump_locked(Device& device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void begin_opening_locked(Device& device, Communicator& communicator)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void release_place_locked(Communicator& communicator) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void activate_locked(Device& device, const TransferPtr& transfer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  enum class Tell { kPeer, kNobody };
  void close_link_locked(Link& link, const absl::Status& status, Cause cause, Tell tell)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void tear_down_locked(const CommunicatorPtr& communicator, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void fail_locked(CommunicatorPtr communicator, const char* what, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // ---- launcher.cc: these let go of the mutex while they are in NCCL.
  void start_launcher_locked(Device& device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void run_launcher(Device& device, int generation);
  CommunicatorPtr next_step_locked(Device& device, TimePoint now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  TimePoint next_poll_locked(const Device& device, TimePoint now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void step_locked(const CommunicatorPtr& communicator) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void get_id_locked(const CommunicatorPtr& communicator) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void connect_locked(const CommunicatorPtr& communicator) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void launch_locked(const CommunicatorPtr& communicator) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  struct Launch;
  absl::StatusOr<NcclProgress> run(const Launch& launch);
  bool is_abandoned(const Launch& launch);
  void poll_locked(const CommunicatorPtr& communicator) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void record_locked(const CommunicatorPtr& communicator) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // ---- watchdog.cc: these let go of the mutex while they are in CUDA or in callbacks.
  void run_watchdog();
  void check_ready_locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void check_events_locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void on_device_done_locked(const TransferPtr& transfer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void check_deadlines_locked(TimePoint now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void expire_locked(const TransferPtr& transfer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void check_teardowns_locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  enum class Step { kGoesOn, kOver, kGivenUp };
  Step advance_locked(Teardown& teardown, TimePoint now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Step begin_abort_locked(Teardown& teardown, TimePoint now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void replace_launcher_locked(Communicator& communicator) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void record_drained_locked(Teardown& teardown) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool is_drained_locked(Teardown& teardown) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Step drain_locked(Teardown& teardown, TimePoint now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void end_transfers_locked(Teardown& teardown) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void give_up_locked(Teardown& teardown) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void report_locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  TimePoint next_check_locked(TimePoint now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Constant after construction.
  const NcclPlaneOptions options_;
  const int version_;
  const int device_count_;

  mutable Mutex mutex_;
  CondVar wake_watchdog_;
  CondVar changed_;  // for stop()
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  // The watchdog is there to report ends.
  bool reports_ ABSL_GUARDED_BY(mutex_) = true;
  // A thread sends: one at a time, so that messages leave in order.
  bool sends_ ABSL_GUARDED_BY(mutex_) = false;
  std::uint64_t next_ticket_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<Incarnation, std::unique_ptr<Peer>> peers_ ABSL_GUARDED_BY(mutex_);
  // Those that peer_has_plane may still know, and the last one.
  std::map<Incarnation, WorkerInfo> lost_ ABSL_GUARDED_BY(mutex_);
  std::map<int, std::unique_ptr<Device>> devices_ ABSL_GUARDED_BY(mutex_);
  std::list<std::shared_ptr<Teardown>> teardowns_ ABSL_GUARDED_BY(mutex_);
  // Whose devices are not through with what comes before.
  std::vector<TransferPtr> unready_ ABSL_GUARDED_BY(mutex_);
  std::vector<Ended> ended_ ABSL_GUARDED_BY(mutex_);
  // What waits to be logged without the mutex.
  std::vector<std::string> news_ ABSL_GUARDED_BY(mutex_);
  TimePoint next_deadline_check_ ABSL_GUARDED_BY(mutex_) = TimePoint::min();
  NcclCounters counters_ ABSL_GUARDED_BY(mutex_);
  std::thread watchdog_;
};

}  // namespace sinew::internal::nccl
