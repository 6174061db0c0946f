#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/calls/extension.h"
#include "sinew/rref/internal/ledger.h"

namespace sinew::internal {

class OwnerHandle;

/// A value of this worker that may be referred to from elsewhere, or is going to be.
struct ValueSlot {
  explicit ValueSlot(Executor* executor) : promise(executor), future(promise.future()) {}
  Promise<AnyValue> promise;
  Future<AnyValue> future;
  const Clock::TimePoint since = Clock::system().now();
};

/// The reference layer of one worker: runs the ledger, which decides, with real messages, values
/// and time. Thread-safe.
class ReferenceManager final : public Extension,
                               public References,
                               public std::enable_shared_from_this<ReferenceManager> {
 public:
  static std::shared_ptr<ReferenceManager> make(WorkerServices& services);
  /// That of a worker; throws kFailedPrecondition when it was started without the reference layer.
  static std::shared_ptr<ReferenceManager> of(const WorkerServices& services);
  ~ReferenceManager() override;

  WorkerServices& services() const { return services_; }
  const WorkerInfo& self() const;

  // --- For users' handles. Statuses are those of the ledger.

  absl::StatusOr<ledger::Created> create(const WorkerInfo& owner, const std::string& type_name,
                                         const std::string& method);
  void create_succeeded(const ForkId& fork);
  void create_failed(const ForkId& fork, const absl::Status& error, Clock::TimePoint deadline);
  absl::StatusOr<ledger::UserView> view(const ForkId& fork) const;
  void release_user(const ForkId& fork);
  absl::StatusOr<ledger::ForkRecord> share_user(const ForkId& fork, MessageRoute& route);

  // --- For owners' handles.

  /// Enters a value that is about to be shared for the first time, or that a call to this worker
  /// itself will make.
  RRefId own(std::shared_ptr<ValueSlot> slot, ledger::ValueState state,
             const std::string& type_name, std::string creation_site);
  void release_owned(const RRefId& rref);
  absl::StatusOr<ledger::ForkRecord> share_owned(const RRefId& rref, MessageRoute& route);
  /// The value's slot; null when there is none.
  std::shared_ptr<ValueSlot> slot(const RRefId& rref) const;

  // --- Messages.

  /// Notes to one peer that may be on their way at once. What else there is to be said waits here,
  /// so that neither the control lane nor a peer that is slow is flooded. The ledger needs no
  /// order.
  static constexpr std::size_t kMaxNotesOnTheWay = 16;

  /// What is to be done when the message that carries `fork` has ended.
  OnCarrierEnd on_carrier_end(const ForkId& fork, Clock::TimePoint deadline);

  struct Arrived {
    ledger::Received received;
    /// Invalid when the reference is usable at once.
    Future<void> confirmation;
  };
  absl::StatusOr<Arrived> receive(const ledger::ForkRecord& record, const WorkerInfo& sender,
                                  const std::string& type_name);

  // --- Extension
  std::string_view layer() const override { return "rref"; }
  void on_note(const WorkerInfo& from, std::string body) override;
  void on_worker_fenced(const WorkerInfo& worker) override;
  void on_worker_lost(const WorkerInfo& worker) override;
  void add_counters(Counters& counters) const override;
  void report(StateReport& report) const override;
  Future<std::vector<std::string>> drain_async(DrainScope scope,
                                               Clock::TimePoint deadline) override;
  void stop() override;

  // --- References
  Future<AnyValue> resolve(const proto::Reference& target, const WorkerInfo& from,
                           Clock::TimePoint deadline) override;
  Future<AnyValue> published(const std::string& name, Clock::TimePoint deadline) override;
  absl::Status begin_retain(const proto::Call& call, const WorkerInfo& from) override;
  void retain(const proto::Retain& retain, AnyValue value) override;
  void fail_retain(const proto::Retain& retain, std::exception_ptr error) override;

 private:
  /// What is done after the lock has been released.
  struct After;
  /// A use that waits for the call which makes its object.
  struct Waiting {
    ForkId fork;
    WorkerInfo from;
    Clock::TimePoint deadline;
    Promise<AnyValue> promise;
  };
  /// A message that its receiver has not handled, as far as is known here.
  struct Queued {
    /// A serialised proto::LedgerMessage.
    std::string bytes;
    /// Of a Delete: what it gives up.
    RRefId rref;
    ForkId fork;
    ledger::Description deleted;
  };
  /// What is to be said to one peer. That it arrives, and once, is the link's business.
  struct Channel {
    explicit Channel(WorkerInfo worker) : peer(std::move(worker)) {}
    WorkerInfo peer;
    /// Nothing is said to it any more.
    bool fenced = false;
    std::deque<Queued> waiting;
    /// What notes on their way hold, by the number of the note.
    absl::btree_map<std::uint64_t, std::vector<Queued>> on_the_way;
    /// The peer is not in the list of members yet: nothing can be sent until then.
    Clock::TimePoint known_at = Clock::TimePoint::min();

    bool is_silent() const { return waiting.empty() && on_the_way.empty(); }
  };
  /// A note that is to be sent.
  struct Packed {
    WorkerInfo to;
    std::uint64_t number = 0;
    std::string body;
  };

  explicit ReferenceManager(WorkerServices& services);

  ledger::Time now() const;
  static ledger::Time to_time(Clock::TimePoint when) { return when.time_since_epoch(); }
  /// Runs `step` on the ledger under the lock, then does what it asks for, without.
  void apply(absl::FunctionRef<ledger::Handled(ledger::Ledger&)> step);
  static Queued make_queued(ledger::Send send);
  void perform_locked(ledger::Actions actions, After& after) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void check_waiting(const RRefId& rref);
  absl::StatusOr<ledger::UseState> use_state_locked(const RRefId& rref, const ForkId& fork,
                                                    const WorkerInfo& from)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // reference_manager_notes.cc, with on_note() and make_queued().
  Channel& channel_locked(const WorkerInfo& peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void flush();
  void pack_locked(Channel& channel, std::vector<Packed>& notes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void on_note_ended(const WorkerInfo& peer, std::uint64_t number, CarrierEnd how);
  void arm_timer_locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void on_timer();
  bool is_drained_locked(DrainScope scope) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // reference_manager_drain.cc, like the two around it.
  std::vector<std::string> report_locked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void note_type_locked(ledger::LiveReference& reference) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void finish_drains();

  WorkerServices& services_;

  mutable Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  ledger::Ledger ledger_ ABSL_GUARDED_BY(mutex_);
  absl::btree_map<RRefId, std::shared_ptr<ValueSlot>> slots_ ABSL_GUARDED_BY(mutex_);
  // Received references that wait for their owner.
  absl::btree_map<ForkId, Promise<void>> confirmations_ ABSL_GUARDED_BY(mutex_);
  absl::btree_multimap<RRefId, Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<Incarnation, Channel> channels_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_set<Incarnation> dirty_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t last_note_ ABSL_GUARDED_BY(mutex_) = 0;
  Clock::TimePoint armed_for_ ABSL_GUARDED_BY(mutex_) = Clock::TimePoint::max();
  TimerQueue::TimerId timer_ ABSL_GUARDED_BY(mutex_) = 0;
  struct Drain {
    DrainScope scope;
    Clock::TimePoint deadline;
    Promise<std::vector<std::string>> promise;
  };
  std::vector<Drain> drains_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
