#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "sinew/rpc/base/gone.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/link/link_lanes.h"
#include "sinew/rpc/link/link_life.h"
#include "sinew/rpc/link/link_messages.h"

namespace sinew::internal {

/// Why a connection, or the attempt to make one, came to its end.
enum class DownCause {
  kBroken,
  /// No process listens at the address.
  kAddressRefuses,
  /// The other end refused it; see Refusal.
  kRefused,
};

/// The link between this worker and one incarnation of another one: what has arrived, what there is
/// room for, whether the other end lives, and which connection counts (docs/link.md). One state
/// machine; who the other end *is* has been settled before it is asked.
///
/// Pure: no threads, clock or I/O. Time must not go back, and counts while the machine is
/// suspended. Not thread-safe. A link that has ended accepts and sends nothing.
class Link {
 public:
  using TimePoint = BootClock::TimePoint;

  struct Options {
    Incarnation self;
    Incarnation peer;
    LinkLimits limits;
    LeaseTerms terms;
    std::uint64_t send_window_bytes = std::uint64_t{256} << 20;
    /// The first attempt waits for take_turn(), unless there was contact.
    bool takes_turns = false;
  };

  enum class State {
    /// No connection, and none is wanted.
    kIdle,
    /// Waits for its turn to open one.
    kQueued,
    /// Waits before the next attempt.
    kBackingOff,
    /// This end opens a connection.
    kDialling,
    /// The other end's connection was accepted and is about to be up.
    kAccepted,
    kUp,
    kEnded,
  };

  struct Outputs : LinkOutputs {
    /// Open a connection: the number of the attempt, 0 for none.
    std::uint64_t dial = 0;
    /// It wants a turn: take_turn() is to follow, when there is one.
    bool wants_turn = false;
    /// Take these down; on_down() of them need not follow.
    absl::InlinedVector<ConnectionName, 1> close;
    /// The peer was never reached: frames that wait here are not going to leave soon. Their senders
    /// decide.
    bool unreachable = false;
    /// The link has ended now.
    std::optional<Gone> end;
    /// The other end does not answer, or answers again.
    std::optional<bool> suspected;
  };

  Link(Options options, TimePoint now);

  State state() const { return state_; }
  bool ended() const { return state_ == State::kEnded; }
  /// Both ends have had a connection up.
  bool was_up() const { return life_.had_contact(); }
  /// The other end has not answered for half a lease.
  bool suspected() const { return suspected_; }
  /// The shorter one of both ends'.
  std::chrono::nanoseconds lease() const { return life_.smaller_lease(); }
  /// When what the other end holds here may be dropped.
  TimePoint drop_at() const { return life_.drop_at(); }
  LinkLanes& lanes() { return lanes_; }
  const LinkLanes& lanes() const { return lanes_; }
  const Options& options() const { return options_; }

  // --- Frames: see LinkLanes. Sending makes a connection if there is none.

  FrameToken send(OutgoingFrame frame, TimePoint now, Outputs& outputs);
  LinkLanes::GivenUp give_up(FrameToken token, TimePoint now, Outputs& outputs);
  /// A frame came in on a connection. kDrop on any but the one that is up.
  LinkLanes::Delivery on_frame(const ConnectionName& on, const LinkHeader& header,
                               std::uint64_t room, TimePoint now, Outputs& outputs);
  /// A frame is announced whose payloads follow; see LinkLanes::announce().
  bool announce(const ConnectionName& on, const LinkHeader& header, std::uint64_t room);
  void return_room(std::uint64_t requests, std::uint64_t costs, TimePoint now, Outputs& outputs);
  void handled(std::uint64_t number, std::uint64_t room, TimePoint now);
  /// Answers a beat that came in with a frame. Late by whatever the owner took to see that it can
  /// still work.
  void answer_beat(std::uint64_t beat, TimePoint now, Outputs& outputs);

  // --- Connections.

  /// Makes a connection unless there is one.
  void connect(TimePoint now, Outputs& outputs);
  /// Likewise, without a turn or a pause: the other end waits for it, and cannot do it itself.
  void connect_at_once(TimePoint now, Outputs& outputs);
  /// The turn that was asked for begins. It may not be needed any more.
  void take_turn(TimePoint now, Outputs& outputs);
  /// Whether the attempt that `dial` asked for is still wanted.
  bool is_dialling(const ConnectionName& connection) const {
    return state_ == State::kDialling && connection_ == connection;
  }
  /// What this end says on the attempt that `dial` asked for, or when it accepts `connection`.
  LinkHello hello(const ConnectionName& connection) const;
  /// The other end opens a connection: kNone when it is the one from here on (on_up or on_down
  /// follow), or why not.
  Refusal on_offer(const LinkHello& theirs, TimePoint now, Outputs& outputs);
  /// The connection is up, and the other end has said `theirs` with it. Of an offer that was
  /// accepted: our hello is on its way. Frames come after this, none before.
  void on_up(const ConnectionName& connection, const LinkHello& theirs, TimePoint now,
             Outputs& outputs);
  /// `refusal` with kRefused; `proved`: the link's other end has surely said it.
  void on_down(const ConnectionName& connection, DownCause cause, Refusal refusal, bool proved,
               TimePoint now, Outputs& outputs);

  // --- Time, and the end.

  /// To be called at wake(), and whenever the owner likes.
  void poll(TimePoint now, Outputs& outputs);
  /// When there is something to do at the latest; TimePoint::max(): nothing.
  TimePoint wake() const;
  /// There is proof that the other end's process has ended.
  void on_process_ended(Outputs& outputs);
  void close(Outputs& outputs);

 private:
  friend struct LinkInspector;  // tests only: a digest of the state
  bool expire(TimePoint now, Outputs& outputs);
  void end(Gone cause, Outputs& outputs);
  void dial(TimePoint now, Outputs& outputs);
  void dial_now(TimePoint now, Outputs& outputs);
  void back_off(std::chrono::nanoseconds pause, TimePoint now);
  void count_refused(TimePoint now, Outputs& outputs);
  void retry(TimePoint now, Outputs& outputs, bool soon);
  bool leads() const { return options_.self < options_.peer; }
  bool is_wanted() const { return wanted_ || life_.had_contact() || lanes_.frames() > 0; }
  void beat(std::uint64_t reply, TimePoint now, Outputs& outputs);
  void confirm(TimePoint now, Outputs& outputs);
  TimePoint connection_ends() const;
  bool give_up_silent(TimePoint now, Outputs& outputs);
  void look_for_suspicion(TimePoint now, Outputs& outputs);

  const Options options_;
  LinkLanes lanes_;
  LinkLife life_;
  State state_ = State::kIdle;
  bool wanted_ = false;
  bool suspected_ = false;
  // A connection that this end opened was up.
  bool reached_ = false;
  // A frame of the other end has arrived on the connection that is up, or was up last.
  bool progressed_ = false;

  // The connection of kDialling, kAccepted and kUp.
  ConnectionName connection_;
  // With kUp: the other end surely has it up too.
  bool confirmed_ = false;
  // The other end's beat was answered on it.
  bool answered_ = false;
  // What the other end said when it opened the first connection, until this end has heard more.
  std::optional<LinkHello> first_;
  ConnectionName last_up_;
  std::uint64_t own_attempts_ = 0;
  std::uint64_t their_attempts_ = 0;
  TimePoint dialled_at_;
  TimePoint up_at_;
  TimePoint retry_at_ = TimePoint::max();
  int failed_attempts_ = 0;
  // How often this end has given up an attempt of its own for the other's since it last heard
  // something.
  int yielded_ = 0;
  // Since when every attempt was refused, or has failed.
  std::optional<TimePoint> refused_since_;
  std::optional<TimePoint> failing_since_;
  // A beat of the other end that our next one answers.
  std::uint64_t unanswered_beat_ = 0;
};

}  // namespace sinew::internal
