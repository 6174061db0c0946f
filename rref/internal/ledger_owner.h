#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sinew/rref/internal/ledger_core.h"
#include "sinew/rref/internal/ledger_messages.h"
#include "sinew/rref/internal/ledger_report.h"
#include "sinew/rref/internal/ledger_states.h"
#include "sinew/rref/internal/ledger_table.h"

namespace sinew::internal::ledger {

/// What a use has to wait for.
enum class UseState {
  kReady,
  kPendingValue,     // the creating call is running
  kPendingCreation,  // the creating call has not arrived; bounded by the deadline of the use
};

/// A reference that came in a message.
struct Received {
  Role role = Role::kUser;
  RRefId rref;
  /// Names the reference in Confirmed, Failed and in the functions of Ledger.
  ForkId fork;
  enum class State {
    kUsable,
    kWaiting,  // until Confirmed or Failed for `fork`
  } state = State::kUsable;
};

/// The owner's side of a ledger: values and the set of their holders (R3). Functions are explained
/// at Ledger, which calls them after it refused the messages of lost workers. A value type; not
/// thread-safe.
class OwnerTable {
 public:
  RRefId own(LedgerCore& core, ValueState state, Description description);
  absl::Status on_create(LedgerCore& core, const RRefId& rref, const ForkId& fork,
                         const WorkerInfo& sender, Description description, Time now,
                         Actions& actions);
  absl::Status set_value(const RRefId& rref, absl::Status outcome, Actions& actions);
  absl::StatusOr<UseState> authorise_use(const LedgerCore& core, const RRefId& rref,
                                         const ForkId& fork, const WorkerInfo& sender);
  absl::StatusOr<UseState> state_of(const RRefId& rref) const;
  absl::Status add_handle(const RRefId& rref);
  absl::Status release_handle(const RRefId& rref, Actions& actions);

  absl::StatusOr<ForkRecord> share(LedgerCore& core, const RRefId& rref, const WorkerInfo& target,
                                   std::optional<Time> deadline);
  absl::StatusOr<Received> resolve(LedgerCore& core, const ForkRecord& record,
                                   const WorkerInfo& sender, Time now, Actions& actions);
  /// Stops waiting for a record that resolve() left waiting; false when there is none.
  bool cancel_resolve(LedgerCore& core, const ForkId& child, Time now, Actions& actions);
  bool is_resolving(const ForkId& child, const WorkerInfo& sender) const;

  void carrier_failed(LedgerCore& core, const ForkId& fork, Time now, Actions& actions);
  void carrier_not_sent(LedgerCore& core, const ForkId& fork, Time now, Actions& actions);

  absl::Status on_claim(const Claim& message, const WorkerInfo& sender);
  absl::Status on_add_fork(LedgerCore& core, const AddFork& message, const WorkerInfo& sender,
                           Time now, Actions& actions);
  absl::Status on_delete(LedgerCore& core, const Delete& message, const WorkerInfo& sender,
                         Time now, Actions& actions);

  /// Refuses what waits for a creation on behalf of that worker.
  void drop_requests_of(LedgerCore& core, const WorkerInfo& worker, Time now, Actions& actions);
  /// Once for each worker, when it counts as lost for the first time.
  void on_fenced(const WorkerInfo& worker);
  void drop_forks_of(LedgerCore& core, const WorkerInfo& worker, Time now, Actions& actions);
  void tick(LedgerCore& core, Time now, Actions& actions);
  std::optional<Time> next_tick() const;

  void count(LedgerCounters& counters) const;
  /// Adds its own, until there are `most`.
  void report(std::size_t most, std::vector<LiveReference>& references) const;

 private:
  friend struct LedgerInspector;  // tests only: canonical text of the state

  struct Entry {
    ValueState state = ValueState::kPending;
    absl::Status error;  // of a failed value
    absl::btree_set<ForkId> forks;
    std::size_t handles = 0;
    Description description;
  };

  struct Fork {
    RRefId rref;
    std::uint64_t secret = 0;
    WorkerInfo holder;
    ForkState state = ForkState::kListed;
    std::optional<Time> deadline;  // of the message that carries an unclaimed fork
  };

  /// A child that asks to be listed, or a record that comes back to its owner.
  struct Request {
    enum class Kind { kList, kResolve } kind = Kind::kList;
    RRefId rref;
    ForkId parent;
    ForkId child;
    Token token{};
    WorkerInfo from;
    Time expires{0};
  };

  // The sender is part of the key so that no worker can take the place of another child in the
  // queue.
  struct ParkingKey {
    ForkId parent;
    ForkId child;
    Incarnation from;
    friend bool operator<(const ParkingKey& a, const ParkingKey& b) {
      return std::tie(a.parent, a.child, a.from) < std::tie(b.parent, b.child, b.from);
    }
    friend bool operator==(const ParkingKey& a, const ParkingKey& b) {
      return std::tie(a.parent, a.child, a.from) == std::tie(b.parent, b.child, b.from);
    }
  };

  enum class Verdict { kAdmit, kWait };

  using ForkMap = Table<ForkId, Fork>;
  using ParkingMap = Table<ParkingKey, Request>;

  absl::StatusOr<Verdict> judge(const LedgerCore& core, const Request& request) const;
  bool may_still_be_created(const LedgerCore& core, const Request& request) const;
  absl::Status park(LedgerCore& core, Request request, Time now);
  void settle_request(LedgerCore& core, const Request& request, const absl::Status& verdict,
                      Time now, Actions& actions);
  void admit(LedgerCore& core, const Request& request, Time now, Actions& actions);
  void refuse(LedgerCore& core, const Request& request, const absl::Status& reason, Time now,
              Actions& actions);
  void settle_parked_under(LedgerCore& core, const ForkId& parent, Time now, Actions& actions);
  ParkingMap::iterator unpark(ParkingMap::iterator parked);

  absl::Status check_holder(const Fork& fork, const RRefId& rref, const ForkId& named,
                            const WorkerInfo& sender, const char* wish) const;
  void claim(const ForkId& key, Fork& fork);
  void ask(LedgerCore& core, const ForkId& key, Fork& fork, Time now, Actions& actions);
  void list_fork(const ForkId& key, Fork fork);
  enum class Trace { kTombstone, kNone };
  void remove_fork(LedgerCore& core, ForkMap::iterator fork, Trace trace, Time now,
                   Actions& actions);
  void end_if_unheld(const RRefId& rref, Actions& actions);

  Table<RRefId, Entry> entries_;
  ForkMap forks_;              // keyed by the public part
  std::size_t unclaimed_ = 0;  // of forks_, those that are not listed yet
  std::size_t held_by_lost_ = 0;
  Schedule<ForkId> overdue_;  // unclaimed forks with a deadline
  TombstoneSet tombstones_;   // of removed forks (R3, R5)
  ParkingMap parked_;         // until the creating call of `parent` arrives
  Schedule<ParkingKey> parking_ends_;
  absl::btree_multimap<ForkId, ParkingKey> resolving_;  // the records among them, by their child
  absl::btree_map<Incarnation, std::size_t> parked_by_;
};

}  // namespace sinew::internal::ledger
