#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sinew/rpc/membership/control_plane.h"
#include "sinew/rpc/membership/directory.h"
#include "sinew/rpc/membership/membership.h"
#include "sinew/rpc/membership/scheduler.h"

namespace sinew::internal {

/// The members hold the list themselves. The one with the lowest rank that is not lost coordinates:
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
class PeerMembership final : public Membership {
 public:
  /// How often a coordinator calls at seeds where no member answers.
  static constexpr std::chrono::nanoseconds kInviteInterval = std::chrono::milliseconds(250);
  /// How long a founder waits for such a call, at least; and how long after each sign of a job.
  static constexpr std::chrono::nanoseconds kFoundingPause = 4 * kInviteInterval;
  static constexpr std::chrono::nanoseconds kPauseAfterSign = std::chrono::seconds(3);

  /// Adds the control methods "sinew.member.*": before the worker accepts.
  PeerMembership(ControlPlane& plane, Directory& directory, Options options, Scheduler& scheduler);
  ~PeerMembership() override;
  PeerMembership(const PeerMembership&) = delete;
  PeerMembership& operator=(const PeerMembership&) = delete;

  Future<void> join_async() override;
  Future<void> leave_async(std::chrono::nanoseconds timeout) override;
  void on_worker_lost(const WorkerInfo& worker, Proof proof = Proof::kNone,
                      std::string reason = {}) override;
  MembershipState state() const override;
  WorkerInfo self() const override;
  std::vector<std::string> world_names() const override;
  WorkerInfo coordinator() const override;
  void when_judged(const WorkerInfo& worker, std::function<void()> then) override;
  Standing on_asked(const WorkerInfo& asker, const std::string& address,
                    const Standing& claim) override;
  void on_sought() override;
  std::vector<Contact> contacts() const override;
  /// This worker is a member.
  bool ready() const;
  /// An operation of the rendezvous file is under way, on a thread of its own.
  bool uses_file() const;

 private:
  const std::shared_ptr<class MembershipCore> core_;
};

}  // namespace sinew::internal
