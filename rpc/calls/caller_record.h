#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/threads/timer_queue.h"
#include "sinew/rpc/calls/invocation.h"
#include "sinew/rpc/transport/transport.h"

namespace sinew::internal {

class WorkerCore;

/// What this worker knows of one incarnation that calls it: which of its calls run, and the replies
/// that it has not acknowledged. So a call that arrives twice runs once, and a reply that a broken
/// connection swallowed is sent again. Thread-safe.
class CallerRecord final : public std::enable_shared_from_this<CallerRecord> {
 public:
  CallerRecord(WorkerCore& core, WorkerInfo caller);

  const WorkerInfo& caller() const { return caller_; }

  /// The connection on which replies leave from now on.
  void set_connection(std::shared_ptr<Connection> connection);
  void connection_lost(const std::shared_ptr<Connection>& connection);

  /// The lease of this caller, as the owner of what it holds: counted from the last beat that came.
  void on_beat(Clock::TimePoint now);
  Clock::TimePoint last_beat() const;

  /// What to do with a call that came.
  enum class Admission {
    /// New: run it, then report it with begin().
    kRun,
    /// It runs already, has been answered again just now, or is long over.
    kDrop,
    /// The caller is lost, or was shut down.
    kRefuse,
  };
  Admission admit(std::uint64_t call_id, Lane lane);
  void begin(std::uint64_t call_id, const std::shared_ptr<Invocation>& invocation);
  void on_reply(std::uint64_t call_id, Frame reply, std::vector<OnCarrierEnd> on_end);
  void cancel(std::uint64_t call_id);
  /// The caller needs no replies to calls with smaller ids.
  void forget_below(std::uint64_t call_id);

  /// The caller is lost, or this worker shuts down: running calls are told, nothing more is
  /// accepted.
  void close(const absl::Status& reason);

 private:
  struct Served {
    Lane lane = Lane::kCalls;
    std::shared_ptr<Invocation> running;
    bool answered = false;
    Frame reply;
    std::vector<OnCarrierEnd> on_end;
  };

  void send(std::uint64_t call_id, Lane lane, Frame frame);
  void retry_unsent();

  WorkerCore& core_;
  const WorkerInfo caller_;

  mutable Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<Connection> connection_ ABSL_GUARDED_BY(mutex_);
  Clock::TimePoint last_beat_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t forgotten_below_ ABSL_GUARDED_BY(mutex_) = 1;
  absl::btree_map<std::uint64_t, Served> served_ ABSL_GUARDED_BY(mutex_);
  // Replies that the caller's full window refused.
  absl::btree_set<std::uint64_t> unsent_ ABSL_GUARDED_BY(mutex_);
  bool retrying_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sinew::internal
