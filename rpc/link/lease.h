#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <ostream>

#include "sinew/rpc/base/threads/timer_queue.h"

namespace sinew::internal {

/// What the heartbeat says about a peer.
enum class LeaseState {
  kAlive,
  /// No beat was acknowledged for a third of the lease.
  kSuspected,
  /// Final. The lease ended: nothing of this incarnation is used or answered any more.
  kLost,
};
std::ostream& operator<<(std::ostream& out, LeaseState state);

/// The lease between this worker and one incarnation of one peer, in both directions. As a *holder*
/// of references that the peer owns, this worker counts from when it sent the last beat that was
/// acknowledged; as an *owner* it counts from when it received the peer's last beat. A beat is sent
/// before it is received, so the holder gives its references up first, whatever the network does,
/// as long as the clocks of both run equally fast and the lease starts as the constructor says.
///
/// Pure: no I/O, no clock, no threads. Time points must not go backwards. The caller polls, at the
/// latest at `wake`, and does what the step says. Not thread-safe.
class Lease {
 public:
  using TimePoint = Clock::TimePoint;

  struct Options {
    std::chrono::nanoseconds beat_interval = std::chrono::seconds(1);
    /// At least three beats.
    std::chrono::nanoseconds duration = std::chrono::seconds(15);
  };

  /// What to do now.
  struct Step {
    LeaseState state = LeaseState::kAlive;
    /// The state differs from that of the step before.
    bool changed = false;
    /// Not 0: send a Beat with this number now. The lease counts it as sent at the time of the call
    /// that returned it, so delay may only shorten the lease.
    std::uint64_t beat = 0;
    /// With kLost: the peer has fenced itself by now, so its references may be dropped (see
    /// may_drop()). Stays true.
    bool drop = false;
    /// When to poll again; TimePoint::max() when nothing more will happen.
    TimePoint wake = TimePoint::max();
  };

  /// The side that opened the connection: `holder_start` is when it began to connect, `owner_start`
  /// when it heard that it was accepted. The accepting side: both are when it accepted. So each
  /// holder starts before its owner.
  Lease(Options options, TimePoint holder_start, TimePoint owner_start);

  /// The peer answered the beat of that number. Numbers that were never sent, that are out of date
  /// or that come a second time change nothing.
  Step on_beat_reply(std::uint64_t sequence, TimePoint now);
  /// The peer's beat came. Answer it with a BeatReply unless the step says that the peer is lost:
  /// its beat came after the end of its lease.
  Step on_beat(TimePoint now);
  Step poll(TimePoint now);
  /// The session layer knows for certain that the peer is gone (its address refuses, another
  /// incarnation answers).
  Step on_gone(TimePoint now);

  /// True while what this worker holds of the peer may be used. Ask it at each use: a thread that
  /// slept over the end of the lease must not use a reference before the next poll.
  bool may_use(TimePoint now) const { return !lost_ && now < holder_end(); }
  /// True once the peer's references may be dropped. That may be later than kLost: when only our
  /// own beats get lost, the peer still counts on the beats of its own that we answered.
  bool may_drop(TimePoint now) const { return gone_ || now >= owner_end(); }
  /// When the peer last gave proof that it received something from here.
  TimePoint last_acknowledged() const { return acknowledged_; }

 private:
  struct Sent {
    std::uint64_t sequence = 0;
    TimePoint when;
  };

  TimePoint holder_end() const { return acknowledged_ + options_.duration; }
  TimePoint owner_end() const { return received_ + options_.duration; }
  TimePoint suspicion() const { return acknowledged_ + options_.duration / 3; }
  void expire(TimePoint now);
  Step step(TimePoint now);

  const Options options_;
  // When the newest acknowledged beat was sent.
  TimePoint acknowledged_;
  // When the peer's newest beat was received.
  TimePoint received_;
  TimePoint next_beat_;
  std::uint64_t next_sequence_ = 1;
  // Not acknowledged, oldest first; none older than the lease.
  std::deque<Sent> sent_;
  bool lost_ = false;
  bool gone_ = false;
  LeaseState reported_ = LeaseState::kAlive;
};

}  // namespace sinew::internal
