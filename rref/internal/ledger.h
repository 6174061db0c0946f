#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rref/internal/ledger_core.h"
#include "sinew/rref/internal/ledger_messages.h"
#include "sinew/rref/internal/ledger_owner.h"
#include "sinew/rref/internal/ledger_report.h"
#include "sinew/rref/internal/ledger_user.h"

namespace sinew::internal::ledger {

/// The ownership protocol of one worker (rules R1 to R8 in docs/protocols.md): which references it
/// owns and who holds them, and which references of others it holds. A pure state machine: no
/// threads, I/O, clocks or logging. Each function changes tables and returns what is to be done; do
/// it in order, after releasing the lock. A value type; not thread-safe: the caller locks.
///
/// Ground rules for the caller:
///  - `now` never goes back.
///  - `sender` is the authenticated peer that a message came from.
///  - Control messages (Send) are delivered once each while both ends live, as a link does (rule L2
///    in docs/link.md); in any order, although a link keeps it. Messages to this worker itself are
///    fed back into handle().
///  - A call or result is not looked at (no on_create, no receive) once its deadline has passed.
///  - A handle is kept while a use of it is under way, else a Delete may overtake the use.
///  - When a peer's lease ends: fence() at once at the end that notices, and no more answers to
///  that peer's
///    beats; worker_lost() one lease after the last beat of the peer that was answered (rule R7).
///  - Errors of handle() and receive() are of the peer's making: log or return them, change
///  nothing.
class Ledger {
 public:
  explicit Ledger(WorkerInfo self, LedgerOptions options = {});

  // --- A user makes a reference by a `remote` call (R5) ---

  /// Draws the ids that the call carries. The reference has one local handle and is usable at once.
  /// Errors: kUnavailable when the owner is lost; kInvalidArgument when it is this worker (use
  /// own()).
  absl::StatusOr<Created> create(const WorkerInfo& owner, Description description);

  /// The creating call's outcome. After a failure every use fails with `error`, and the owner is
  /// told to forget the reference, since it may have it. `deadline` is the call's, if it had one:
  /// until then the call may still arrive. A second outcome changes nothing; kNotFound for an
  /// unknown fork.
  Handled create_succeeded(const ForkId& fork, Time now);
  Handled create_failed(const ForkId& fork, const absl::Status& error, std::optional<Time> deadline,
                        Time now);

  // --- A user holds a reference ---

  /// May this worker use its fork, and where? Errors: that of a failed creation; kUnavailable
  /// `owner lost`; kFailedPrecondition for deleted or released ones; kNotFound for an unknown one.
  absl::StatusOr<UserView> view(const ForkId& fork) const;

  /// One more local handle of a fork that has at least one.
  absl::Status add_user_handle(const ForkId& fork);

  /// One local handle less; the last one starts the deletion (R1). Also for received forks that
  /// still wait for Confirmed, in the owner's role too.
  Handled release_user(const ForkId& fork, Time now);

  // --- Passing references on (R2, R6) ---

  /// Packs a reference for `target` into a message with `deadline` (nullopt: none). The fork id in
  /// the record is its name for carrier_failed and carrier_not_sent. Errors: as view();
  /// kFailedPrecondition while unconfirmed; kUnavailable when `target` is lost.
  absl::StatusOr<ForkRecord> share_user(const ForkId& fork, const WorkerInfo& target,
                                        std::optional<Time> deadline);
  /// The same for a reference that is owned here.
  absl::StatusOr<ForkRecord> share_owned(const RRefId& rref, const WorkerInfo& target,
                                         std::optional<Time> deadline);

  /// The message that carried `fork` failed or got no answer; it may have arrived. Optional: frees
  /// the giver's fork sooner than the deadline and one lease would. Harmless for settled forks.
  Handled carrier_failed(const ForkId& fork, Time now);
  /// The message that was to carry `fork` never left this worker.
  Handled carrier_not_sent(const ForkId& fork, Time now);

  /// Unpacks a record. The new reference has one local handle. Role kUser: release_user(fork). Role
  /// kOwner: this worker owns the value: release_owned(rref), or release_user(fork) while kWaiting.
  /// Errors: kPermissionDenied, kInvalidArgument, kAlreadyExists, kNotFound for records that the
  /// sender may not give; kUnavailable `owner lost`. Check first that `record.owner` is a known
  /// member.
  Outcome<Received> receive(const ForkRecord& record, const WorkerInfo& sender,
                            Description description, Time now);

  // --- The owner ---

  /// Enters a value of this worker itself with one local handle: ValueState::kReady for a local
  /// value that is shared for the first time, kPending for `remote` to oneself.
  RRefId own(ValueState state, Description description);

  /// A creating call arrived: call this before anything runs. Errors mean do not run it:
  /// kFailedPrecondition when the reference was deleted already, kAlreadyExists for a repeated
  /// call, kPermissionDenied for ids that are not the sender's or a lost sender.
  Handled on_create(const RRefId& rref, const ForkId& fork, const WorkerInfo& sender,
                    Description description, Time now);

  /// The value was made, or could not be. Set once, else kFailedPrecondition. The actions may
  /// contain DestroyValue at once, when all holders have gone in the meantime.
  Handled owner_fulfilled(const RRefId& rref);
  Handled owner_failed(const RRefId& rref, const absl::Status& error);

  /// May `sender` use this fork (to_here, method call)? kPermissionDenied and kNotFound for forks
  /// that it does not hold (R4), kFailedPrecondition for deleted ones, or the error of a failed
  /// creation.
  absl::StatusOr<UseState> authorise_use(const RRefId& rref, const ForkId& fork,
                                         const WorkerInfo& sender);

  /// The same for this worker's own handles.
  absl::StatusOr<UseState> owned_state(const RRefId& rref) const;
  absl::Status add_owned_handle(const RRefId& rref);
  Handled release_owned(const RRefId& rref);

  // --- Everybody ---

  /// A control message arrived. kPermissionDenied and kNotFound for forged, foreign or outdated
  /// ids.
  Handled handle(const LedgerMessage& message, const WorkerInfo& sender, Time now);

  /// This worker can no longer be sure that `worker` counts it among the living: references that it
  /// owns fail, nothing is sent to it, its later messages are refused. That is permanent (R7).
  /// Idempotent. Its forks stay listed here, since it may not have noticed yet and its confirmed
  /// forks must not lose their values.
  Handled fence(const WorkerInfo& worker, Time now);

  /// That process has ended or left, or has surely fenced itself: fence(), and its forks are
  /// dropped. Idempotent.
  Handled worker_lost(const WorkerInfo& worker, Time now);

  /// fence() or worker_lost() was called for it.
  bool is_lost(const WorkerInfo& worker) const { return core_.is_lost(worker); }

  /// Does what time brings; call it at next_tick() or regularly, about once a second.
  Handled tick(Time now);
  std::optional<Time> next_tick() const;

  // --- Shutdown and reports (R8) ---

  /// Fails every reference that is held here with `has been deleted` and tells the owners. Those
  /// that are being created, confirmed or passed on follow when that has ended.
  Handled release_all_users(Time now);

  bool quiescent() const { return counters().quiescent(); }
  LedgerCounters counters() const;
  /// `most` of them.
  std::vector<LiveReference> live_references(
      std::size_t most = std::numeric_limits<std::size_t>::max()) const;

  const WorkerInfo& self() const { return core_.self; }

 private:
  friend struct LedgerInspector;  // tests only: canonical text of the state

  LedgerCore core_;
  OwnerTable owner_;
  UserTable user_;
};

}  // namespace sinew::internal::ledger
