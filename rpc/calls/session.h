#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/threads/timer_queue.h"
#include "sinew/rpc/calls/pending_call.h"
#include "sinew/rpc/link/lease.h"
#include "sinew/rpc/membership/directory.h"
#include "sinew/rpc/transport/transport.h"

namespace sinew::proto {
class Envelope;
}

namespace sinew::internal {

class WorkerCore;

/// How sure it is that a peer is lost.
enum class Certainty {
  /// It did not answer for a lease: it may live and believe that we do.
  kSuspected,
  /// Its process is gone, or the others took it off the list.
  kGone,
  /// It said goodbye: no news, and it claims nothing any more.
  kLeft,
};

/// Calls from this worker to one incarnation of another: keeps them until they are answered,
/// connects when there is something to say, and connects again when a connection breaks. A broken
/// connection is no lost worker: calls that were not answered are sent again, and the callee, which
/// knows their ids, starts each at most once.
///
/// The peer is lost when its lease ends, when its address refuses, or when another incarnation
/// answers there. Thread-safe.
class Session final : public ConnectionHandler, public std::enable_shared_from_this<Session> {
 public:
  enum class Mode {
    kMember,
    /// One connection to whoever answers at the address; when it fails, so does every call.
    kOneShot,
  };

  Session(WorkerCore& core, Member peer, Mode mode);
  ~Session() override;

  const WorkerInfo& peer() const { return peer_.worker; }
  const Member& member() const { return peer_; }
  /// False once the peer is lost.
  bool alive() const;
  /// User calls that have not ended; a call counts until what follows from its end has been posted.
  std::uint64_t active_calls() const { return active_calls_.load(std::memory_order_acquire); }
  /// User calls that were ever started.
  std::uint64_t calls_started() const { return calls_started_.load(std::memory_order_acquire); }

  /// Calls of any kind and notes that were ever started, the layers' own ones too.
  std::uint64_t requests_started() const {
    return requests_started_.load(std::memory_order_relaxed);
  }

  /// Starts a call. Ids are set here. Whatever goes wrong reaches the pending call.
  void start_call(std::unique_ptr<PendingCall> call, proto::Envelope& envelope,
                  std::vector<absl::Cord> payloads, Lane lane);
  /// One-way; dropped when there is no connection and none can be made soon.
  void send_note(proto::Envelope& envelope);
  /// Starts to connect unless connected.
  void connect();
  /// Completes with true when the peer turns out to be lost, false when it is reached.
  Future<bool> probe();

  /// Ends the session for ever: every call fails with `reason`.
  void close(const absl::Status& reason);

  // ConnectionHandler
  void on_up(const std::shared_ptr<Connection>& connection) override;
  void on_frames(const std::shared_ptr<Connection>& connection, Lane lane,
                 std::vector<Frame> frames) override;
  void on_down(const std::shared_ptr<Connection>& connection, const absl::Status& reason) override;

 private:
  enum class State { kIdle, kConnecting, kUp, kBackingOff, kClosed };
  struct Entry {
    std::unique_ptr<PendingCall> call;
    Lane lane = Lane::kCalls;
    // Kept so that it can be sent again; empty until it has been written.
    Frame frame;
    bool sent = false;
    // Registrations with call->cancellations, in that order.
    std::vector<std::uint64_t> cancellation_numbers;
  };
  using Entries = std::vector<std::pair<std::uint64_t, Entry>>;

  std::uint64_t register_call(std::unique_ptr<PendingCall> call, Lane lane,
                              proto::Envelope& envelope);
  void send_registered(std::uint64_t id, Frame frame);
  bool take_entry_locked(std::uint64_t id, Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void watch_cancellations(std::uint64_t id, const std::vector<CancellationToken>& tokens);
  static void forget_cancellations(const Entry& entry);
  void end(Entry& entry, CarrierEnd how);
  void end_with_error(Entry entry, const absl::Status& status);
  void cancel_call(std::uint64_t id, const absl::Status& reason);
  void send_cancel(std::uint64_t id, Lane lane);
  void arm_deadline_locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void on_deadline();
  void start_connecting_locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void open_connection();
  void back_off_locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void on_first_attempt_locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void arm_beat_locked(Clock::TimePoint when) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void on_beat();
  void send_beat(const std::shared_ptr<Connection>& connection, std::uint64_t sequence);
  void report(const Lease::Step& step);
  void on_reply(std::unique_ptr<proto::Envelope> envelope, Frame& frame);
  void lost(const absl::Status& reason, Certainty certainty);
  std::uint64_t completed_below_locked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  WorkerCore& core_;
  const Member peer_;
  const Mode mode_;
  std::atomic<std::uint64_t> active_calls_{0};
  std::atomic<std::uint64_t> calls_started_{0};
  std::atomic<std::uint64_t> requests_started_{0};

  mutable Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kIdle;
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
  // Up; and on its way.
  std::shared_ptr<Connection> connection_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<Connection> connecting_ ABSL_GUARDED_BY(mutex_);
  // From the first attempt to connect.
  std::optional<Lease> lease_ ABSL_GUARDED_BY(mutex_);
  int failed_attempts_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  // Ordered: the smallest id tells the callee which replies it may forget.
  absl::btree_map<std::uint64_t, Entry> pending_ ABSL_GUARDED_BY(mutex_);
  absl::btree_set<std::pair<Clock::TimePoint, std::uint64_t>> deadlines_ ABSL_GUARDED_BY(mutex_);
  Clock::TimePoint armed_for_ ABSL_GUARDED_BY(mutex_) = Clock::TimePoint::max();
  TimerQueue::TimerId deadline_timer_ ABSL_GUARDED_BY(mutex_) = 0;
  TimerQueue::TimerId beat_timer_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Promise<bool>> probes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
