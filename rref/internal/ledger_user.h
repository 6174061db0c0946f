#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sinew/rref/internal/ledger_core.h"
#include "sinew/rref/internal/ledger_messages.h"
#include "sinew/rref/internal/ledger_owner.h"
#include "sinew/rref/internal/ledger_report.h"
#include "sinew/rref/internal/ledger_states.h"
#include "sinew/rref/internal/ledger_table.h"

namespace sinew::internal::ledger {

/// What a user needs to use its reference.
struct UserView {
  WorkerInfo owner;
  RRefId rref;
  ForkId fork;
  enum class State {
    kUsable,
    kUnconfirmed,  // wait for Confirmed or Failed
  } state = State::kUsable;
  /// The owner is known to list the fork.
  bool confirmed_by_owner = false;
};

/// A user's new reference, to be sent inside the creating call.
struct Created {
  RRefId rref;
  ForkId fork;
};

/// The users' side of a ledger: forks held here, and forks passed on (R1, R2). Functions are
/// explained at Ledger, which calls them after it refused the messages of lost workers. A value
/// type; not thread-safe.
class UserTable {
 public:
  absl::StatusOr<Created> create(LedgerCore& core, const WorkerInfo& owner,
                                 Description description);
  absl::Status create_succeeded(LedgerCore& core, const ForkId& fork, Time now, Actions& actions);
  absl::Status create_failed(LedgerCore& core, const ForkId& fork, absl::Status error,
                             std::optional<Time> deadline, Time now, Actions& actions);
  absl::StatusOr<UserView> view(const ForkId& fork) const;
  absl::Status add_handle(const ForkId& fork);
  absl::Status release_handle(LedgerCore& core, const ForkId& fork, Time now, Actions& actions);

  absl::StatusOr<ForkRecord> share(LedgerCore& core, const ForkId& fork, const WorkerInfo& target,
                                   std::optional<Time> deadline);
  absl::StatusOr<Received> receive(LedgerCore& core, const ForkRecord& record,
                                   const WorkerInfo& sender, Description description, Time now,
                                   Actions& actions);
  void carrier_failed(LedgerCore& core, const ForkId& child, Time now, Actions& actions);
  void carrier_not_sent(LedgerCore& core, const ForkId& child, Time now, Actions& actions);

  absl::Status on_fork_added(LedgerCore& core, const ForkAdded& message, const WorkerInfo& sender,
                             Time now, Actions& actions);
  absl::Status on_fork_refused(LedgerCore& core, const ForkRefused& message,
                               const WorkerInfo& sender, Time now, Actions& actions);
  absl::Status on_child_done(LedgerCore& core, const ChildDone& message, const WorkerInfo& sender,
                             Time now, Actions& actions);
  absl::Status on_ask_claim(LedgerCore& core, const AskClaim& message, const WorkerInfo& sender,
                            Time now, Actions& actions);
  absl::Status on_ask_child(LedgerCore& core, const AskChild& message, const WorkerInfo& sender,
                            Time now, Actions& actions);

  void worker_lost(LedgerCore& core, const WorkerInfo& worker, Time now, Actions& actions);
  void release_all(LedgerCore& core, Time now, Actions& actions);
  void tick(LedgerCore& core, Time now, Actions& actions);
  std::optional<Time> next_tick() const;

  void count(LedgerCounters& counters) const;
  /// Adds its own, until there are `most`.
  void report(std::size_t most, std::vector<LiveReference>& references) const;

 private:
  friend struct LedgerInspector;  // tests only: canonical text of the state

  struct User {
    ForkId fork;  // with its secret
    RRefId rref;
    WorkerInfo owner;
    std::optional<WorkerInfo> giver;  // of a fork that came in a message
    UserState state = UserState::kCreating;
    absl::Status error;  // why every later use fails
    std::size_t handles = 1;
    std::size_t children = 0;              // entries of children_ under this fork
    std::optional<Time> may_arrive_until;  // the creating call, after it failed here
    Description description;
    // Whether held_ and pending_ count it.
    bool held = false;
    bool pending = false;
  };

  /// A fork passed on whose receiver has not settled it.
  struct Child {
    ForkId parent;
    WorkerInfo target;
    std::optional<Time> deadline;  // of the message that carries it
    bool asked = false;
  };

  using UserMap = Table<ForkId, User>;
  using ChildMap = Table<ForkId, Child>;

  UserMap::iterator apply(LedgerCore& core, UserMap::iterator user, UserEvent event,
                          absl::Status error, Time now, Actions& actions);
  UserMap::iterator settle(LedgerCore& core, UserMap::iterator user, Time now, Actions& actions);
  ChildMap::iterator release_child(LedgerCore& core, ChildMap::iterator child, Time now,
                                   Actions& actions);
  void ask(LedgerCore& core, ChildMap::iterator child, Time now, Actions& actions);
  void fail(User& user, const absl::Status& error, Actions& actions);
  void add(const ForkId& key, User user);
  /// What counters() say of a fork, whenever its state or handles have changed.
  enum class Fate { kStays, kEnds };
  void tally(User& user, Fate fate);

  UserMap users_;             // keyed by the public part
  std::size_t held_ = 0;      // of users_, those that other workers may know
  std::size_t pending_ = 0;   // of these, creating or unconfirmed
  ChildMap children_;         // keyed by the public part
  Schedule<ForkId> overdue_;  // children with a deadline whose receivers were not asked
};

}  // namespace sinew::internal::ledger
