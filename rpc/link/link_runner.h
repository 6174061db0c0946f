#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/inlined_vector.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/types/span.h"
#include "sinew/link.pb.h"
#include "sinew/rpc/base/boot_clock.h"
#include "sinew/rpc/base/credit.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/threads/timer_queue.h"
#include "sinew/rpc/link/connection_reversal.h"
#include "sinew/rpc/link/hello.h"
#include "sinew/rpc/link/link.h"
#include "sinew/rpc/link/process_watch.h"
#include "sinew/rpc/transport/quota.h"
#include "sinew/rpc/transport/transport.h"

namespace sinew::internal {

class LinkTable;

/// What a frame consists of in addition to its header.
struct Outbound {
  virtual ~Outbound() = default;
  std::string envelope;
  std::vector<absl::Cord> payloads;
};

/// Room that a frame of a worker takes which is no member.
struct GuestRoom {
  Quota::Share of_link;
  Quota::Share of_all;
};

/// A frame that has arrived.
struct Inbound {
  LinkHeader header;
  std::string envelope;
  std::vector<absl::Cord> payloads;
  /// Not OK: there was no room for what it carried, which was so much.
  absl::Status lost;
  std::uint64_t lost_room = 0;
  /// Taken of what guests may use, for as long as it lies here and its sender is no member.
  GuestRoom guest_room;

  /// See LinkLanes::room_of().
  std::uint64_t room() const {
    std::uint64_t bytes = envelope.size();
    for (const absl::Cord& payload : payloads) bytes += payload.size();
    return LinkLanes::room_of(bytes, payloads.size()) + lost_room;
  }
};

/// Who uses a link. Functions run on transport threads, timer threads or threads that send: they
/// must not block and must not run user code. No lock is held.
class LinkUser {
 public:
  virtual ~LinkUser() = default;
  /// In the order of arrival within a lane, except those with large payloads. Each note among them
  /// (LinkHeader::is_note) is to be followed by LinkRunner::handled(). Of frames of the calls lane
  /// that are not wanted any more, or have arrived before, only the header (is_void).
  virtual void on_frames(std::vector<Inbound> frames) = 0;
  /// Frames that were sent have ended; once for each that send() took.
  virtual void on_frames_ended(absl::Span<const LinkOutputs::Ended> frames) = 0;
  /// The other end's heartbeat: LinkRunner::answer_beat() shows that this worker can still work.
  virtual void on_beat(std::uint64_t beat) = 0;
  /// There may be room for requests again, or replies blocked no more.
  virtual void on_room() = 0;
  virtual void on_up() = 0;
  /// The peer, with which there never was contact, has not been reached so far. Another worker that
  /// can reach it may ask it to open a connection: LinkRunner::on_asked() takes the answer.
  virtual void on_unreached() = 0;
  /// The peer was never reached: what waits is not going to leave soon.
  virtual void on_unreachable(const absl::Status& reason) = 0;
  virtual void on_suspected(bool suspected) = 0;
  /// The link has ended, permanently; all its frames have ended before.
  virtual void on_end(Gone cause, const absl::Status& reason) = 0;
};

/// A Link with its connection, its timer and its lock. Thread-safe. Held by shared_ptr.
class LinkRunner final : public std::enable_shared_from_this<LinkRunner> {
 public:
  /// `peer`: name and incarnation; its rank means nothing here. `address` may be empty: then only
  /// the other end can make connections.
  LinkRunner(LinkTable& table, WorkerInfo peer, std::string address);

  /// Before anything else happens. Not owned; it owns the runner, and is told no more after on_end.
  void set_user(std::weak_ptr<LinkUser> user) { user_ = std::move(user); }
  const WorkerInfo& peer() const { return peer_; }
  bool is_loopback() const { return loopback_; }

  // --- Frames.

  enum class WhenFull { kFail, kQueue };
  /// Takes a frame; makes a connection if there is none. kResourceExhausted: there is no room
  /// (WhenFull::kFail), or it is over a limit. The link's own error when it has ended. Then nothing
  /// was taken. A caller that queues beyond the room must bound it. `deadline`: after it the frame
  /// is of no use any more, without another notice.
  absl::StatusOr<FrameToken> send(OutgoingFrame frame, WhenFull when_full,
                                  Clock::TimePoint deadline = Clock::TimePoint::max());
  LinkLanes::GivenUp give_up(FrameToken token);
  /// See LinkLanes::void_incoming().
  bool void_incoming(Lane lane, std::uint64_t number);
  /// See LinkLanes::return_room().
  void return_room(std::uint64_t room);
  /// A note, and what became of it, is done with: see LinkLanes::handled(). May be called under
  /// locks of the user.
  void handled(std::uint64_t number, std::uint64_t room);
  void answer_beat(std::uint64_t beat);
  bool has_room(std::uint64_t bytes) const;
  bool replies_blocked() const;
  /// kResourceExhausted for what is over a limit of either end, as far as known.
  absl::Status check_limits(const OutgoingFrame& frame) const;
  /// Frames from here that have not ended.
  std::size_t frames() const;
  /// The latest frame from here, and how many replies up to that one have not ended.
  FrameToken last_token() const;
  std::size_t replies_until(FrameToken last) const;

  // --- The link.

  /// kAtOnce: the peer cannot do it, and has asked for it.
  enum class Turn { kWaits, kAtOnce };
  void connect(Turn turn = Turn::kWaits);
  /// Whether the peer has been asked to open a connection: what waits here waits for that a while.
  void on_asked(bool is_asked);
  bool ended() const;
  bool is_up() const;
  /// It is up, and the peer answers.
  bool is_answered() const;
  /// It is up, and this end has reached the peer at that address: what the peer says of its own
  /// address proves nothing.
  bool is_reached_at(const std::string& address) const;
  bool was_up() const;
  /// No connection was ever up, none is being made, and nothing waits for one.
  bool is_unused() const;
  /// When what the other end holds here may be dropped, on the steady clock.
  Clock::TimePoint drop_at() const;
  void close(const absl::Status& reason);
  /// Takes down the connection that is up, as the network would. False: there is none, or none that
  /// could break. For tests.
  bool break_connection();
  /// The peer's address, from the list of members or its hello.
  void set_address(const std::string& address);
  std::string address() const;
  /// Why the latest attempt to connect has failed, where there is no connection now; else "".
  std::string why_down() const;
  /// For people.
  struct Seen {
    std::string address;
    const char* state = "";
    bool suspected = false;
    /// As why_down().
    std::string why_down;
    std::uint64_t frames = 0;
    std::uint64_t request_bytes = 0;
    std::uint64_t window_bytes = 0;
    std::vector<std::string> planes;
  };
  Seen seen() const;
  /// What the other end has proved of itself with the latest connection that came up; nothing
  /// before, and of a link to oneself.
  AuthenticatedPeer remote() const;

  // --- For the table.

  /// The other end opens a connection: its handler and our answer, or a refusal.
  absl::StatusOr<Acceptor::Accepted> offer(const proto::Hello& hello);

 private:
  class Wire;
  struct Outcome;
  /// Frames for one connection.
  struct Writes {
    std::shared_ptr<Connection> to;
    decltype(LinkOutputs::writes) writes;
  };
  using WriteBatches = absl::InlinedVector<Writes, 1>;

  static BootClock::TimePoint now() { return BootClock::system().now(); }

  void take_turn(Credit turn);
  void open(std::uint64_t attempt, Credit turn);
  void wire_up(const std::shared_ptr<Wire>& wire, const std::shared_ptr<Connection>& connection);
  void wire_frames(const std::shared_ptr<Wire>& wire, std::vector<Frame> frames);
  std::vector<Inbound> take_turn_locked(std::vector<Inbound> frames)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void deliver(LinkUser* user, std::vector<Inbound> frames);
  void wire_lost(const std::shared_ptr<Wire>& wire, absl::string_view header,
                 std::uint64_t size_bytes, std::size_t payloads, const absl::Status& reason);
  void receive(const std::shared_ptr<Wire>& wire, std::vector<Inbound> arrived, absl::Status wrong);
  absl::Status wire_announced(const std::shared_ptr<Wire>& wire, absl::string_view header,
                              std::uint64_t size_bytes, std::size_t payloads);
  /// Also notes that the peer is a member, which it stays until the link ends.
  bool is_guest() const;
  bool take_guest_room_locked(std::uint64_t bytes, GuestRoom& room)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void admit_guest_locked(Inbound& inbound, bool is_guest) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status no_guest_room() const;
  /// `process` is who was at the other end, where that is known.
  void wire_down(const std::shared_ptr<Wire>& wire, const absl::Status& down_reason,
                 std::shared_ptr<const ProcessHold> process);
  absl::Status check_terms(const LinkHello& theirs) const;
  bool is_peer(const proto::Hello& hello) const;
  absl::StatusOr<LinkHello> check_answer(const Wire& wire, const Connection& connection) const;
  proto::Hello hello_locked(const ConnectionName& connection) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status check_limits_locked(const OutgoingFrame& frame) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status end_status_locked(Gone cause) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void return_room_locked(BootClock::TimePoint time, Outcome& outcome)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // After a step of the machine that wrote into outcome.outputs; perform() then does what is to be
  // done without the lock.
  void leave_locked(Outcome& outcome) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void perform(Outcome& outcome);
  static bool tells_user(const Outcome& outcome);
  void tell_user(const Outcome& outcome);
  void look_for_way_locked(Outcome& outcome) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool leave_behind_locked(decltype(LinkOutputs::writes)& writes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void write(Connection& to, Link::Outputs& outputs);
  static void write(Connection& to, LinkOutputs::Write& write);
  static void write_frame(Connection& to, LinkOutputs::Write& write);
  void arm_locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void on_timer();
  absl::StatusOr<FrameToken> send_to_self(OutgoingFrame frame, WhenFull when_full,
                                          std::optional<std::chrono::nanoseconds> left);

  LinkTable& table_;
  const WorkerInfo peer_;
  const bool loopback_;
  std::weak_ptr<LinkUser> user_;

  mutable Mutex mutex_;
  std::string address_ ABSL_GUARDED_BY(mutex_);
  // Where this end has dialled it last with success.
  std::string reached_at_ ABSL_GUARDED_BY(mutex_);
  Link link_ ABSL_GUARDED_BY(mutex_);
  // Room for requests that was given back and that the machine does not know of yet. For each call
  // that is served, so without the lock as long as it is little: less than the first two say.
  const std::uint64_t few_frames_;
  const std::uint64_t few_bytes_;
  std::atomic<std::uint64_t> returned_frames_{0};
  std::atomic<std::uint64_t> returned_bytes_{0};
  // What the lanes say of it. Read before each call that is served. Written under the lock.
  std::atomic<bool> replies_blocked_{false};
  // All connections that have not gone down, most often one.
  std::vector<std::shared_ptr<Wire>> wires_ ABSL_GUARDED_BY(mutex_);
  // Whether the peer has been seen to be a member.
  mutable std::atomic<bool> is_member_{false};
  const std::shared_ptr<Quota> guest_room_;
  // Of frames on the connection that is up, until they have arrived.
  std::map<std::pair<Lane, std::uint64_t>, GuestRoom> announced_by_guest_ ABSL_GUARDED_BY(mutex_);
  // Of the connection that is up.
  std::shared_ptr<Connection> connection_ ABSL_GUARDED_BY(mutex_);
  AuthenticatedPeer remote_ ABSL_GUARDED_BY(mutex_);
  ProcessWatch watch_ ABSL_GUARDED_BY(mutex_);
  ConnectionReversal reversal_ ABSL_GUARDED_BY(mutex_);
  // Whether a thread writes, and others have left it something to write. Leaves kNobody, and enters
  // kMore, under the lock only; the thread that writes may end without.
  enum class Writing { kNobody, kOne, kMore };
  std::atomic<Writing> writing_{Writing::kNobody};
  WriteBatches behind_ ABSL_GUARDED_BY(mutex_);
  // A thread hands frames to the user of which some are of the control lane; what others have of
  // them meanwhile.
  bool delivers_control_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Inbound> left_control_ ABSL_GUARDED_BY(mutex_);
  absl::Status last_failure_ ABSL_GUARDED_BY(mutex_);
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
  BootClock::TimePoint armed_for_ ABSL_GUARDED_BY(mutex_) = BootClock::TimePoint::max();
  TimerQueue::TimerId timer_ ABSL_GUARDED_BY(mutex_) = 0;
  // Of a link to oneself: requests whose handler has not started.
  std::uint64_t self_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sinew::internal
