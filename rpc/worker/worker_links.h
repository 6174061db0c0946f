#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/threads/timer_queue.h"
#include "sinew/rpc/calls/call_link.h"
#include "sinew/rpc/calls/worker_services.h"
#include "sinew/rpc/link/link_table.h"
#include "sinew/rpc/membership/directory.h"

namespace sinew::internal {

class WorkerCore;

/// How often peers are asked whether they live, and for how long they need not answer.
LeaseTerms terms_of(const WorkerOptions& options);

/// The links of one worker, and which peers are lost. For why a peer was taken for lost: what
/// follows is here, what led to it is in link/link.h. Thread-safe.
class WorkerLinks {
 public:
  explicit WorkerLinks(WorkerCore& core);

  LinkTable& table() { return table_; }
  void start(Transport& transport) { table_.start(transport); }

  /// The link with a member; made if there is none. One with a lost incarnation fails all calls.
  absl::StatusOr<std::shared_ptr<CallLink>> find(const WorkerInfo& worker);
  absl::StatusOr<std::shared_ptr<CallLink>> find(std::string_view name);
  absl::StatusOr<std::shared_ptr<CallLink>> find(std::int32_t rank);

  bool is_lost(const WorkerInfo& worker) const;
  /// See WorkerServices::on_link_ended().
  void on_link_ended(const WorkerInfo& peer, EndedLink link);
  /// The list of members says that a peer is lost, or has left: its calls end, and the layers drop
  /// what it held here as soon as that is safe.
  void off_the_list(const WorkerInfo& worker, const absl::Status& reason, Gone why) {
    note_lost(worker, reason, {why, false}, std::nullopt);
  }
  /// This worker is out of the job, and so the others are for it. What they hold here is kept until
  /// they have fenced themselves.
  void out_of_the_job(const WorkerInfo& worker, const absl::Status& reason) {
    note_lost(worker, reason, {Gone::kUnknown, true}, std::nullopt);
  }
  /// Members that are new to this worker: what they have sent before is served.
  void on_joined(const std::vector<Member>& members);

  Future<std::string> call(CallLink& link, std::string_view method, std::string body,
                           std::chrono::nanoseconds timeout);
  /// Blocks until everything that was sent has arrived, and the answers to control calls that were
  /// begun; `patience` at most.
  void flush(std::chrono::nanoseconds patience) const;
  /// Blocks until the results that were sent so far have arrived at the peers that can be reached;
  /// `patience` at most. kDeadlineExceeded then, with how many have not and whom they are for.
  absl::Status deliver_results(std::chrono::nanoseconds patience);
  /// Adds the control method "sinew.worker.heard": before the worker accepts.
  void add_methods();
  /// Blocks until those peers whose control calls have been answered lately have these answers;
  /// `patience` at most. Much faster than flush(), which waits for receipts, and for nothing where
  /// there are no such answers. What is not decided yet it leaves.
  void deliver_answers(std::chrono::nanoseconds patience);
  void close(const absl::Status& reason);

 private:
  struct Lost {
    absl::Status reason;
    // The layers have been told to drop what it held, or a timer will see to it.
    bool dropped = false;
    // Its link was silent for a lease.
    bool silent = false;
    // It said goodbye.
    bool left = false;
  };

  struct Loss {
    Gone why = Gone::kUnknown;
    // It may live and believe that this worker does: what it holds here is kept until it has fenced
    // itself.
    bool may_live = false;
  };
  struct Judged {
    WorkerInfo worker;
    EndedLink link;
  };

  LinkTableOptions table_options() const;
  absl::StatusOr<std::shared_ptr<CallLink>> link_with(const Member& member);
  void remember_locked(const WorkerInfo& worker, const absl::Status& reason)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<EndedLink> find_judged_locked(const WorkerInfo& worker) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // `ended`: the link, if that has ended by itself.
  void note_lost(const WorkerInfo& worker, const absl::Status& reason, Loss loss,
                 std::optional<EndedLink> ended);
  // Ends the calls of a link that has not; when its other end uses nothing any more.
  Clock::TimePoint end_link(const WorkerInfo& worker, const absl::Status& reason, bool left);
  void drop_at(const WorkerInfo& worker, Clock::TimePoint when);
  void drop(const WorkerInfo& worker);
  void judge(const WorkerInfo& worker, EndedLink link);
  void end_judging(std::uint64_t id);
  // It is known which one is evicted.
  void on_judged(const Judged& judged);

  WorkerCore& core_;
  LinkTable table_;

  mutable Mutex mutex_;
  // The latest ones; who was lost long ago is not in the list of members either.
  absl::flat_hash_map<Incarnation, Lost> lost_ ABSL_GUARDED_BY(mutex_);
  std::deque<Incarnation> lost_order_ ABSL_GUARDED_BY(mutex_);
  // Who waits for a verdict on whom.
  std::map<std::uint64_t, Judged> judging_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::uint64_t next_judged_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sinew::internal
