#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "sinew/rpc/base/boot_clock.h"
#include "sinew/rpc/link/frame_numbers.h"
#include "sinew/rpc/link/link_messages.h"

namespace sinew::internal {

/// What a frame consists of in addition to its header. The link keeps it until its receipt, and
/// does not look into it.
struct Outbound;

/// Names a frame that this end sends, from send() until it has ended.
using FrameToken = std::uint64_t;

/// A frame that this end sends.
struct OutgoingFrame {
  FrameKind kind = FrameKind::kRequest;
  std::uint64_t subject = 0;
  /// Envelope and payloads.
  std::uint64_t bytes = 0;
  std::uint64_t envelope_bytes = 0;
  std::uint64_t payloads = 0;
  /// Its payloads may arrive after frames that follow it.
  bool large = false;
  /// It is in no hurry (see Frame::may_linger).
  bool may_linger = false;
  /// After this it is of no use any more.
  BootClock::TimePoint deadline = BootClock::TimePoint::max();
  std::shared_ptr<Outbound> content;

  /// See LinkLanes::room_of().
  std::uint64_t room() const;
};

/// How a frame ended for its sender.
enum class FrameEnd {
  /// It never left.
  kNotSent,
  /// It never left, since it is over the other end's limits.
  kTooLarge,
  /// It has arrived, or its number has without it, after it was given up: it has no effect that it
  /// has not had by now. Of a note: it has been handled, unless a connection broke meanwhile.
  kReceived,
  /// The link ended first: it may have arrived or not.
  kLinkEnded,
};

/// What the shell is to do, in this order, after it has let go of the lock.
struct LinkOutputs {
  struct Write {
    LinkHeader header;
    /// Null: the header alone.
    std::shared_ptr<Outbound> content;
    bool may_linger = false;
  };
  struct Ended {
    std::shared_ptr<Outbound> content;
    FrameEnd how = FrameEnd::kNotSent;
  };
  /// To the connection that is up.
  absl::InlinedVector<Write, 1> writes;
  absl::InlinedVector<Ended, 1> ended;
  /// There is room again for those who waited for it.
  bool room = false;
};

/// Numbers, receipts and room of one link, both directions (rules L2 to L4). Each frame is
/// delivered at most once, and exactly once as long as the link lives, over any number of
/// connections. A frame is numbered when it is first written, and kept until its receipt.
///
/// Pure: no threads, clock or I/O. Not thread-safe.
class LinkLanes {
 public:
  using TimePoint = BootClock::TimePoint;

  /// Frames with payloads outside of the lane that may be without a receipt at once, per lane:
  /// others may overtake each of them.
  static constexpr std::size_t kMaxLargeFrames = 256;
  /// What a frame, and each payload in it, costs of any room in addition to its bytes.
  static constexpr std::uint64_t kFrameCostBytes = 256;
  static constexpr std::uint64_t kPayloadCostBytes = 128;
  /// What a frame with so many bytes in so many payloads takes of any room, but for
  /// kFrameCostBytes. All code that counts room uses this.
  static std::uint64_t room_of(std::uint64_t bytes, std::uint64_t payloads) {
    return bytes + payloads * kPayloadCostBytes;
  }

  /// `own`: what this end accepts. `send_window_bytes`: requests, and replies, that may be here
  /// without a receipt.
  LinkLanes(LinkLimits own, std::uint64_t send_window_bytes);

  // --- Sending.

  /// Whether a request that takes so much room may be sent now. One alone always may.
  bool has_room(std::uint64_t room) const;
  /// Takes a frame, whether there is room or not.
  FrameToken send(OutgoingFrame frame, TimePoint now, LinkOutputs& outputs);
  /// What is known of a frame when its sender gives it up.
  struct GivenUp {
    enum class State { kNotSent, kOnItsWay, kReceived } state = State::kReceived;
    /// With kOnItsWay: its number, by which the receiver can drop it.
    std::uint64_t number = 0;
  };
  /// The frame is not wanted any more. Those that wait behind it leave with the next poll: they may
  /// be given up in the same breath. kOnItsWay: it ends later, when its receipt comes; if it has
  /// to be sent again it is sent void.
  GivenUp give_up(FrameToken token, TimePoint now, LinkOutputs& outputs);
  /// Whether the replies that wait here exceed what the other end takes, or this one keeps: no
  /// further handler is to start for it.
  bool replies_blocked() const;
  /// Whether a connection may keep so many bytes of what was written to it. If not, the other end
  /// has given receipts for what it has not taken, so that more would be sent to it.
  bool may_keep(std::uint64_t bytes) const;

  // --- Receiving.

  enum class Delivery {
    kDeliver,
    /// A repetition, or void.
    kDrop,
    /// The other end breaks the rules; the connection is to be closed.
    kViolation,
  };
  /// The header of a frame that arrived whole.
  Delivery on_frame(const LinkHeader& header, std::uint64_t room, TimePoint now,
                    LinkOutputs& outputs);
  /// A frame is announced whose payloads follow on the same connection, which is the one that is
  /// up. False: there is no room for it, or it was announced before, so the other end breaks the
  /// rules.
  bool announce(const LinkHeader& header, std::uint64_t room);
  /// The note with this number, which was delivered, has been handled: its room is free, and its
  /// sender is told within milliseconds.
  void handled(std::uint64_t number, std::uint64_t room, TimePoint now);
  /// The other end has given up the frame with this number: if it has not arrived yet, it is
  /// dropped when it does. False: it has arrived, or too many are to be dropped already.
  bool void_incoming(Lane lane, std::uint64_t number);
  /// All that a frame takes of any room.
  static std::uint64_t cost(std::uint64_t room) { return room + kFrameCostBytes; }
  /// The handlers of so many requests, which cost so much together, have started: the room is free.
  void return_room(std::uint64_t requests, std::uint64_t costs, TimePoint now,
                   LinkOutputs& outputs);

  // --- Connections.

  /// What the other end has, and what it accepts. Frames that it lacks are written again; overdue
  /// or given-up ones void.
  void on_up(const LinkHello& theirs, TimePoint now, LinkOutputs& outputs);
  void on_down();
  void fill_hello(LinkHello& own) const;
  /// Puts what the other end is to be told into the header of a frame that leaves.
  void fill_header(LinkHeader& header);
  /// When to poll at the latest: receipts must leave, if nothing else does first, or there may be
  /// room for frames that wait.
  TimePoint due() const { return std::min(receipts_due_, pump_due_); }
  /// Time has passed: sends what is due.
  void poll(TimePoint now, LinkOutputs& outputs);

  /// The link has ended: so have all frames.
  void close(LinkOutputs& outputs);

  /// What the other end accepts; known once a connection was up.
  const std::optional<LinkLimits>& their_limits() const { return theirs_; }
  /// Of requests that have not ended.
  std::uint64_t requests_here_bytes() const { return requests_here_bytes_; }
  /// Frames that have not ended.
  std::size_t frames() const { return frames_.size(); }
  /// The latest that send() gave; 0 before.
  FrameToken last_token() const { return last_token_; }
  /// Replies among the frames up to that one which have not ended.
  std::size_t replies_until(FrameToken last) const;

 private:
  friend struct LinkInspector;  // tests only: a digest of the state
  struct Entry {
    OutgoingFrame frame;
    std::uint64_t number = 0;
    bool given_up = false;
  };
  using FrameMap = absl::flat_hash_map<FrameToken, Entry>;
  struct OutLane {
    std::uint64_t last_number = 0;
    std::size_t large = 0;
    // Written and without a receipt. All are in frames_.
    absl::btree_map<std::uint64_t, FrameToken> written;
  };
  struct InLane {
    FrameNumbers numbers;
    // Given up by the other end before they arrived; bounded.
    std::vector<std::uint64_t> voided;
  };

  static std::size_t index(FrameKind kind) { return static_cast<std::size_t>(kind); }
  bool may_write(const Entry& entry) const;
  bool fits_limits(const OutgoingFrame& frame) const;
  void pump(TimePoint now, LinkOutputs& outputs);
  void drop_ended(std::deque<FrameToken>& waiting);
  void write_first(FrameToken token, Entry& entry, TimePoint now, LinkOutputs& outputs);
  void write(const Entry& entry, bool is_void, TimePoint now, LinkOutputs& outputs);
  void apply_receipts(Lane lane, const NumberRanges& ranges, LinkOutputs& outputs);
  void end(FrameToken token, FrameEnd how, LinkOutputs& outputs);
  void end_unlisted(FrameMap::iterator found, FrameEnd how, LinkOutputs& outputs);
  void on_returned(std::uint64_t frames, std::uint64_t bytes);
  Delivery take_new(const LinkHeader& header, std::uint64_t room, TimePoint now,
                    LinkOutputs& outputs);
  void note_receipt(const LinkHeader& header, std::uint64_t room, TimePoint now,
                    LinkOutputs& outputs);
  void send_link_frame(LinkOutputs& outputs);

  const LinkLimits own_;
  const std::uint64_t send_window_bytes_;
  std::optional<LinkLimits> theirs_;
  bool up_ = false;
  bool closed_ = false;

  FrameToken last_token_ = 0;
  FrameMap frames_;
  // Not written yet, by kind. May name frames that have ended.
  std::deque<FrameToken> waiting_[4];
  OutLane out_[kLaneCount];
  InLane in_[kLaneCount];

  // Requests that have not ended, waiting or written.
  std::uint64_t requests_here_bytes_ = 0;
  // Requests, ever: written first by us, and given back by the other end.
  std::uint64_t sent_frames_ = 0;
  std::uint64_t sent_bytes_ = 0;
  std::uint64_t sent_returned_frames_ = 0;
  std::uint64_t sent_returned_bytes_ = 0;
  // Replies and control frames that were written and have no receipt, and all that are here.
  std::uint64_t written_bytes_[4] = {};
  std::uint64_t replies_here_bytes_ = 0;
  // The largest frame that was ever written.
  std::uint64_t largest_bytes_ = 0;

  // Requests of the other end, ever: arrived, and given back here; and what it was told of that.
  std::uint64_t arrived_frames_ = 0;
  std::uint64_t arrived_bytes_ = 0;
  std::uint64_t returned_frames_ = 0;
  std::uint64_t returned_bytes_ = 0;
  std::uint64_t told_frames_ = 0;
  std::uint64_t told_bytes_ = 0;
  // On the connection that is up: frames whose payloads are on their way, and what they cost.
  struct Announced {
    FrameKind kind = FrameKind::kRequest;
    std::uint64_t cost = 0;
  };
  absl::flat_hash_map<std::pair<Lane, std::uint64_t>, Announced> announced_;
  std::uint64_t announced_bytes_[4] = {};
  // Frames that arrived since receipts left last: their bytes, and how many may have had payloads
  // outside of the lane.
  std::uint64_t unreceipted_in_bytes_ = 0;
  std::size_t unreceipted_in_large_ = 0;
  TimePoint receipts_due_ = TimePoint::max();
  TimePoint pump_due_ = TimePoint::max();
};

inline std::uint64_t OutgoingFrame::room() const { return LinkLanes::room_of(bytes, payloads); }

}  // namespace sinew::internal
