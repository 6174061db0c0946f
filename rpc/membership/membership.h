#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/membership_state.h"
#include "sinew/rpc/base/standing.h"
#include "sinew/rpc/membership/control_plane.h"
#include "sinew/rpc/membership/directory.h"
#include "sinew/rpc/membership/member_codec.h"
#include "sinew/rpc/membership/rendezvous.h"
#include "sinew/rpc/membership/rendezvous_file.h"
#include "sinew/rpc/membership/scheduler.h"

namespace sinew::internal {

/// A worker that is no member any more.
struct Departed {
  WorkerInfo worker;
  Departure how = Departure::kLost;
  /// Of a loss, as whoever has noticed it says; empty: nobody has said.
  std::string reason = {};
};

struct MembershipOptions {
  /// This worker. Its rank is that of `rendezvous`; -1 is replaced when it joins.
  Member self;
  std::string job;
  Rendezvous rendezvous;
  /// kFile: the one at the path. Null: on a thread of its own.
  std::shared_ptr<RendezvousFile> file;
  /// For joining, from join_async() on.
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);
  /// The seed, one of dial_addresses(), at which this worker's transport answers because it may
  /// found the job; empty: at none. In open membership that decides which of several founders
  /// founds it: of several that wait, the one at the first seed.
  std::string served_seed;
  /// Nobody can be in a job that this worker could be called into.
  bool founds_at_once = false;
  /// The addresses that a seed stands for at present; never blocks. Null: itself.
  std::function<Future<std::vector<std::string>>(const std::string& seed)> resolve;
  /// Set: this worker takes the place of one that was evicted, and these are members whom that one
  /// knew. It looks for the job there too, and founds none before it has looked for
  /// half of `timeout`.
  std::optional<std::vector<Contact>> contacts;
  /// Asks the network whether a member is gone for certain: true when its address refuses
  /// connections or another incarnation answers there, false when it has answered itself. Fails
  /// while nobody knows: it does not answer, and has not been silent for a lease. Null: all live.
  std::function<Future<bool>(const Member&)> probe_lost;
  /// Asks a member, at its address and whatever became of the link with it, what its list says of
  /// this worker, and tells it `own`. kNotFound: its address refuses, so it is gone, or somebody
  /// refuses for it; kAlreadyExists: another incarnation answers there, so it is gone for certain.
  /// Null: nobody is asked.
  std::function<Future<Standing>(const Member& of, const Standing& own)> ask_standing;
  /// The same of whoever answers there. Null: nobody is asked.
  struct Answerer {
    WorkerInfo worker;
    Standing standing;
  };
  std::function<Future<Answerer>(const Contact& contact, const Standing& own)> ask_address;
  /// Whether that worker answers heartbeats at present. Null: all do.
  std::function<bool(const WorkerInfo&)> is_linked;
  /// A member is lost although no link with it has ended: a link must not come up any more.
  std::function<void(const WorkerInfo&)> on_unreachable;
  /// How long the answer may take.
  std::chrono::nanoseconds answer_time = std::chrono::seconds(1);
  /// Incarnations that left, were lost or replaced, before the directory does without them: so who
  /// finds somebody there no more can know why. Called like on_change.
  std::function<void(const std::vector<Departed>& gone)> before_change;
  /// Others that joined, and incarnations that left, were lost or replaced; the directory says so
  /// already. Called on an executor thread, one call at a time; the first one comes before
  /// join_async() is done.
  std::function<void(const std::vector<Member>& joined, const std::vector<Departed>& gone)>
      on_change;
  /// The others have taken this worker off the list: they believe that it is dead. It must not go
  /// on.
  std::function<void(const absl::Status& reason)> on_removed;
  /// Things that somebody should know and that stop nothing, for the log.
  std::function<void(const std::string& warning)> on_warning;
};

/// A worker's part in its job: joins, follows the list of members, leaves. Who holds the list is
/// the implementation's matter: the members themselves (PeerMembership) or etcd (EtcdMembership).
///
/// Thread-safe. The directory and the scheduler must outlive the executor's shutdown.
class Membership {
 public:
  using Options = MembershipOptions;

  virtual ~Membership() = default;

  /// Done when this worker is a member and the directory has everybody. Call it once, when the
  /// worker accepts. kDeadlineExceeded names the missing ranks, or what was tried in vain;
  /// kAlreadyExists, kFailedPrecondition (another job, another kind of world), kInvalidArgument:
  /// refused; kPermissionDenied, kUnauthenticated.
  virtual Future<void> join_async() = 0;

  /// Tells the others, waits (2 s at most) until they know, and gives up membership; joining
  /// workers that wait for this one go elsewhere. Fails with kDeadlineExceeded when the others
  /// could not be told within `timeout`; this worker is out all the same.
  virtual Future<void> leave_async(std::chrono::nanoseconds timeout) = 0;

  /// The lease of that incarnation has ended, or it is gone for certain. `reason`: for others.
  virtual void on_worker_lost(const WorkerInfo& worker, Proof proof, std::string reason) = 0;

  virtual MembershipState state() const = 0;
  /// This worker, with the rank that it was given.
  virtual WorkerInfo self() const = 0;
  /// Of a fixed world, by rank: who had it when the world was complete for the first time. The same
  /// at all workers, whatever has become of those. Empty before, and in open membership.
  virtual std::vector<std::string> world_names() const = 0;
  /// The member with whom all others keep a lease; no name before this worker has joined.
  virtual WorkerInfo coordinator() const = 0;

  /// This worker has ended, whether or not it has left: nobody is to take it for a member. Blocks
  /// for half a second at most.
  virtual void close() {}

  // What only members do that hold the list themselves.

  /// A member does not answer, or has ended the link: it is lost, or this worker is. Finds out
  /// which of the two (within 3 s), and calls `then`; options' on_removed() has been called before
  /// if it is this one. `then` runs on an executor thread, at once if `worker` is no member, and
  /// never after the executor's end.
  virtual void when_judged(const WorkerInfo& worker, std::function<void()> then) = 0;
  /// `asker` says `claim` of its own list: what this worker's says. Never blocks.
  virtual Standing on_asked(const WorkerInfo& asker, const std::string& address,
                            const Standing& claim) = 0;
  /// Somebody has called an earlier incarnation of this worker at its address: so there may be a
  /// job that knew that one.
  virtual void on_sought() {}
  /// Of an evicted worker: where it knew members, of either side (16 at most).
  virtual std::vector<Contact> contacts() const { return {}; }
};

}  // namespace sinew::internal
