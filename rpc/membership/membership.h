#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/membership_state.h"
#include "sinew/rpc/membership/directory.h"
#include "sinew/rpc/membership/member_codec.h"
#include "sinew/rpc/membership/registry.h"
#include "sinew/rpc/membership/rendezvous.h"
#include "sinew/rpc/membership/scheduler.h"

namespace sinew::internal {

/// A worker that is no member any more.
struct Departed {
  WorkerInfo worker;
  Gone why = Gone::kUnknown;
  /// A sentence for people.
  std::string reason;
};

struct MembershipOptions {
  /// This worker. Its rank is that of `rendezvous`; -1 is replaced when it joins.
  Member self;
  std::string job;
  Rendezvous rendezvous;
  /// For joining, from join_async() on.
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);
  /// Others that joined, and incarnations that left, were lost or replaced; the directory says so
  /// already. Called on an executor thread, one call at a time; the first one comes before
  /// join_async() is done.
  std::function<void(const std::vector<Member>& joined, const std::vector<Departed>& gone)>
      on_change;
  /// The others have taken this worker off the list: they believe that it is dead. It must not go
  /// on.
  std::function<void(const absl::Status& reason)> on_removed;
  /// Warnings for the log; the work goes on.
  std::function<void(const std::string& warning)> on_warning;
};

/// Has `self` join.
using StartRegistry = std::function<absl::StatusOr<std::shared_ptr<Registry>>(
    const registry::Record& self, Registry::Listener listener)>;

/// A worker's part in its job: joins, follows the list of members, meets the others, leaves. Who
/// holds the list is the registry's matter.
///
/// Thread-safe. The directory and the scheduler must outlive the executor's shutdown. No options'
/// function is called after close().
class Membership final : public std::enable_shared_from_this<Membership> {
 public:
  using Values = std::vector<std::string>;

  Membership(MembershipOptions options, StartRegistry start, Directory& directory,
             Scheduler& scheduler);
  ~Membership() { close(); }

  /// Done when this worker is a member and the directory has all members. Call it once, when the
  /// worker accepts. kDeadlineExceeded names the missing ranks, or what was tried in vain;
  /// kAlreadyExists, kFailedPrecondition (another job, another kind of world), kInvalidArgument:
  /// refused; kPermissionDenied, kUnauthenticated.
  Future<void> join_async();
  /// Tells the registrar, within some seconds; this worker has left in any case.
  Future<void> leave_async();
  /// This worker has ended, whether or not it has left: it is no member any more. Blocks for half a
  /// second at most.
  void close();

  MembershipState state() const;
  /// Why the registrar is away, as was known last.
  std::string absence() const;
  /// This worker, with the rank that it was given.
  WorkerInfo self() const;
  /// Of a fixed world, by rank: which worker had it when this one joined. Empty in open membership.
  std::vector<std::string> world_names() const;
  /// The member of the lowest rank, with which all others keep a lease; no name before this worker
  /// has joined.
  WorkerInfo coordinator() const;

  /// The link with that incarnation has ended permanently. `has_ended`: so has its process, for
  /// certain. `reason`: for others.
  void on_worker_lost(const WorkerInfo& worker, bool has_ended, std::string reason);
  /// A member does not answer, or has ended the link: it is lost, or this worker is. Finds out
  /// whether it is this one (within 3 s), and calls `then`; options' on_removed() has been called
  /// before if so. `then` runs on an executor thread, and never after the executor's end.
  void when_sure(std::function<void()> then);

  /// Values of all, in the order of the sorted names; order and repetition in `names` mean nothing.
  /// All of them must make the same calls on a set of names in the same order; calls on different
  /// sets do not meet, and several may be under way at once, from any threads. Who they are is
  /// settled when this returns: the n-th call on a set here meets the n-th call there, counted anew
  /// when a member is replaced by a new incarnation. No worker ever gets only a part of the values.
  /// A call that all have made is complete, even if a worker leaves or is lost then.
  ///
  /// kInvalidArgument: no names, or without this worker; kNotFound: a name is no member, nor was
  /// lately; kUnavailable: a member was lost or has left before it made the call, by name, or the
  /// registrar is away at the moment (registry::is_away()): such a call does not count;
  /// kDeadlineExceeded: names those that had not called.
  Future<Values> all_gather_async(const std::vector<std::string>& names, std::string value,
                                  std::chrono::nanoseconds timeout);
  /// The same of all who are members when it completes: names of others have the empty string. It
  /// goes on while the registrar is away, for 20 leases.
  Future<Values> gather_from_job_async(const std::vector<std::string>& names, std::string value,
                                       std::chrono::nanoseconds timeout);
  /// Ends all gathers in which this worker takes part, with that. Done when they have ended.
  Future<void> end_gathers(const absl::Status& reason);
  /// Those that are not over.
  struct Gathering {
    std::string key;
    /// Empty: of the whole job.
    Values names;
    Clock::TimePoint since;
  };
  std::vector<Gathering> gatherings() const;

 private:
  struct Meeting {
    std::set<Incarnation> members;
    std::uint64_t count = 0;
  };
  /// The next gather of a set of members.
  struct Turn {
    std::string set;
    std::uint64_t number = 0;
  };

  Registry::Listener listener();
  template <class Work>
  void post(Work work) {
    scheduler_.runner()->post([weak = weak_from_this(), work = std::move(work)]() mutable {
      if (const auto self = weak.lock(); self != nullptr) work(*self);
    });
  }
  void on_state(MembershipState state, const absl::Status& why);
  void on_in();
  void on_news(const registry::MemberNews& news);
  void on_gone(const registry::MemberNews& news);
  std::optional<Member> add(const registry::Record& record);
  void list_members();
  std::vector<Member>::const_iterator find_locked(Incarnation member) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<Registry> registry() const;
  absl::StatusOr<Values> sorted_with_self(Values names) const;
  absl::StatusOr<Turn> next_turn_locked(const Values& names) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Future<Values> gather(const Turn& turn, Values names, const std::string& value,
                        std::chrono::nanoseconds timeout);
  std::string given(const std::string& value) const;
  static absl::StatusOr<Values> taken(const Values& given);
  /// It was none: the others may wait in it, so it is the next one again.
  void take_back(const Turn& turn);

  const MembershipOptions options_;
  const StartRegistry start_;
  Directory& directory_;
  Scheduler& scheduler_;
  const Promise<void> joined_;
  const Promise<void> left_;

  mutable Mutex mutex_;
  std::shared_ptr<Registry> registry_ ABSL_GUARDED_BY(mutex_);
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
  MembershipState state_ ABSL_GUARDED_BY(mutex_) = MembershipState::kJoining;
  std::string absence_ ABSL_GUARDED_BY(mutex_);
  /// In the order of arrival: one that may still return to a registrar had its name and rank before
  /// the current holder.
  std::vector<Member> members_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> world_names_ ABSL_GUARDED_BY(mutex_);
  // The latest last.
  std::deque<Departed> departed_ ABSL_GUARDED_BY(mutex_);
  // Sets of members that have met, and how often.
  std::map<std::string, Meeting> meetings_ ABSL_GUARDED_BY(mutex_);
  // Those that are not over, by key.
  std::map<std::string, Gathering> gatherings_ ABSL_GUARDED_BY(mutex_);
  // Of the control executor.
  bool has_joined_ = false;
  std::uint64_t version_ = 0;
};

}  // namespace sinew::internal
