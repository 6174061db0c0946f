#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/threads/executor.h"
#include "sinew/rpc/calls/caller_record.h"
#include "sinew/rpc/method_table.h"
#include "sinew/rpc/transport/transport.h"

namespace sinew::proto {
class Envelope;
}

namespace sinew::internal {

class InboundConnection;
class WorkerCore;

/// The serving side of a worker: decides about connections that come in, admits calls and hands
/// them to the executor, answers heartbeats, and passes control calls and notes to the layers that
/// they are for. Thread-safe.
class CallServer final : public Acceptor, public UnaryHandler {
 public:
  explicit CallServer(WorkerCore& core);
  ~CallServer() override;

  /// Null when there is none.
  const MethodTable::Entry* find_method(std::string_view name) const;

  /// From here on connections are accepted: what they need of the worker is there. The transport
  /// listens before that, since its address is part of it.
  void built() { built_.store(true, std::memory_order_release); }

  /// Blocks until the workers that asked to join, or for the list of members, have hung up, as they
  /// do when they have their answers; `patience` at most.
  void see_guests_off(std::chrono::nanoseconds patience);

  /// Until then calls are held back: the worker does not know its own job, nor its layers, yet.
  void open();
  /// Ends what runs for one caller; no call of it is accepted any more. Returns when its lease as a
  /// holder ends.
  Clock::TimePoint fence(const WorkerInfo& caller, const absl::Status& reason);
  /// Ends what runs for everyone.
  void close(const absl::Status& reason);
  /// Callers whose last beat is older than the lease.
  std::vector<WorkerInfo> expired_callers() const;

  std::int64_t active_calls() const { return active_calls_.load(std::memory_order_acquire); }
  std::int64_t calls_started() const { return calls_started_.load(std::memory_order_acquire); }
  void call_began() {
    active_calls_.fetch_add(1, std::memory_order_acq_rel);
    calls_started_.fetch_add(1, std::memory_order_acq_rel);
  }
  void call_ended() { active_calls_.fetch_sub(1, std::memory_order_release); }

  // Acceptor
  absl::StatusOr<Accepted> on_connection(const std::string& hello,
                                         const AuthenticatedPeer& remote) override;
  // UnaryHandler
  void on_unary_call(std::unique_ptr<UnaryCall> call) override;

 private:
  friend class InboundConnection;

  void on_frames(const std::shared_ptr<CallerRecord>& record,
                 const std::shared_ptr<Connection>& connection, Lane lane,
                 std::vector<Frame> frames);
  void on_call(const std::shared_ptr<CallerRecord>& record, Lane lane,
               std::unique_ptr<proto::Envelope> envelope, Frame frame, std::vector<Task>& tasks);
  void on_control_call(const std::shared_ptr<CallerRecord>& record,
                       std::unique_ptr<proto::Envelope> envelope);
  void on_beat(const std::shared_ptr<CallerRecord>& record,
               const std::shared_ptr<Connection>& connection, std::uint64_t sequence);
  void post_or_hold(std::vector<Task> tasks);
  std::shared_ptr<CallerRecord> record_of(const WorkerInfo& caller);

  WorkerCore& core_;
  const MethodTable::Entry fetch_;
  // Constant once calls are served.
  absl::flat_hash_map<std::string, MethodTable::Entry> layer_methods_;
  std::atomic<std::int64_t> active_calls_{0};
  std::atomic<std::int64_t> calls_started_{0};

  struct Guests;
  const std::shared_ptr<Guests> guests_;
  std::atomic<bool> built_{false};

  mutable Mutex mutex_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Task> held_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<Incarnation, std::shared_ptr<CallerRecord>> callers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
