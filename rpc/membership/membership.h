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

/// Joins, follows and leaves the job. The member with the lowest rank that is not lost coordinates:
/// it admits workers, gives ranks, and sends each new list, with a growing version, to all. When it
/// leaves or is lost the next one goes on, after it has asked all others for the newest list that
/// they saw. A worker joins a fixed world through rank 0, which answers when all ranks are there,
/// and open membership through whoever answers at a seed. A worker that comes back with a
/// new incarnation takes the place of the old one if that is known to be lost, or if a probe says
/// so; while the old one is silent it waits until one of the two is known.
///
/// The session layer must keep a lease with coordinator() and, at the coordinator, with every
/// member, and report each end by on_worker_lost().
///
/// Only founders found a job (Rendezvous::founds). One that comes to a seed at which nobody answers
/// waits a while (kFoundingPause) before it does (over kTcp), and longer if somebody looks for its
/// predecessor there: the coordinator of a job that lives calls again and again at the seeds where
/// no member answers, and has whoever waits there join. Meanwhile the founder asks at the other
/// seeds, joins the job that it finds there, and gives way to a founder at an earlier one.
///
/// Limits. There is no quorum. When the network splits, both sides go on with the members that they
/// see; the side without the coordinator elects one. When they can reach each other again the
/// members of the lighter side get on_removed(), and so do those whom a newer list lacks. While
/// nobody serves a seed nobody can join. A file:// rendezvous does not have that problem.
///
/// Thread-safe. The control plane, the directory and the scheduler must outlive the executor's
/// shutdown.
class Membership {
 public:
  using Options = MembershipOptions;

  /// How often a coordinator calls at seeds where no member answers.
  static constexpr std::chrono::nanoseconds kInviteInterval = std::chrono::milliseconds(250);
  /// How long a founder waits for such a call, at least; and how long after each sign of a job.
  static constexpr std::chrono::nanoseconds kFoundingPause = 4 * kInviteInterval;
  static constexpr std::chrono::nanoseconds kPauseAfterSign = std::chrono::seconds(3);

  /// Adds the control methods "sinew.member.*": before the worker accepts.
  Membership(ControlPlane& plane, Directory& directory, Options options, Scheduler& scheduler);
  ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  /// Done when this worker is a member and the directory has everybody. Call it once, when the
  /// worker accepts. kDeadlineExceeded names the missing ranks, or what was tried in vain;
  /// kAlreadyExists, kFailedPrecondition (another job, another kind of world), kInvalidArgument:
  /// refused; kPermissionDenied, kUnauthenticated.
  Future<void> join_async();

  /// Tells the others, waits (2 s at most) until they know, and gives up membership; joining
  /// workers that wait for this one go elsewhere. Fails with kDeadlineExceeded when the others
  /// could not be told within `timeout`; this worker is out all the same.
  Future<void> leave_async(std::chrono::nanoseconds timeout);

  /// A member does not answer, or has ended the link: it is lost, or this worker is. Finds out
  /// which of the two (within 3 s), and calls `then`; options' on_removed() has been called before
  /// if it is this one. `then` runs on an executor thread, at once if `worker` is no member, and
  /// never after the executor's end.
  void when_judged(const WorkerInfo& worker, std::function<void()> then);
  /// `asker` says `claim` of its own list: what this worker's says. Never blocks.
  Standing on_asked(const WorkerInfo& asker, const std::string& address, const Standing& claim);

  /// The lease of that incarnation has ended, or it is gone for certain. `reason`: for others.
  void on_worker_lost(const WorkerInfo& worker, Proof proof = Proof::kNone,
                      std::string reason = {});

  /// Somebody has called an earlier incarnation of this worker at its address: so there may be a
  /// job that knew that one.
  void on_sought();

  /// An operation of the rendezvous file is under way, on a thread of its own.
  bool uses_file() const;
  /// This worker is a member.
  bool ready() const;
  /// This worker, with the rank that it was given.
  WorkerInfo self() const;
  /// Of a fixed world, by rank: who had it when the world was complete for the first time. The same
  /// at all workers, whatever has become of those. Empty before, and in open membership.
  std::vector<std::string> world_names() const;
  /// Who coordinates, as far as this worker knows; no name before it has joined.
  WorkerInfo coordinator() const;
  MembershipState state() const;
  /// Of an evicted worker: where it knew members, of either side (16 at most).
  std::vector<Contact> contacts() const;

 private:
  const std::shared_ptr<class MembershipCore> core_;
};

}  // namespace sinew::internal
