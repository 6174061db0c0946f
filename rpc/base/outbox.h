#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "sinew/rpc/base/ids.h"

/// A reliable channel for control messages between one worker and one incarnation of a peer, over a
/// network that drops, repeats, reorders and delays. Each message is handed over at most once, and
/// exactly once as long as neither end is lost; in no particular order. An Outbox at the sender
/// retains messages until they are acknowledged, an Inbox at the receiver tells new from repeated
/// ones. Both are pure: no threads, I/O or clocks. `now` is nanoseconds since any epoch, and never
/// goes back.
///
///     sender:    outbox.send(message, now);
///                for (auto& due : outbox.due(now)) transmit(self.incarnation, due.sequence,
///                due.payload); on an acknowledgement: outbox.on_ack(ack);
///     receiver:  if (inbox.accept(incarnation, sequence) == Inbox::Verdict::kNew) handle(payload);
///                if (inbox.ack_due()) transmit(inbox.take_ack());
namespace sinew::internal {

/// What a receiver has got: every sequence up to `cumulative`, and those listed beyond it.
struct ControlAck {
  std::uint64_t cumulative = 0;
  /// Ascending, at most kMaxSelective.
  std::vector<std::uint64_t> selective;

  static constexpr std::size_t kMaxSelective = 64;
};

struct OutboxOptions {
  std::chrono::nanoseconds first_retry = std::chrono::milliseconds(200);
  /// The retry delay doubles up to this.
  std::chrono::nanoseconds max_retry = std::chrono::seconds(1);
  /// Sequences that may be in flight beyond the oldest unacknowledged one; not more than the
  /// receiver's Inbox::kWindow. Later messages wait here.
  std::uint64_t window = 4096;
};

/// The schedule of an Outbox, without the payloads: sequences start at 1. Not thread-safe.
class OutboxSchedule {
 public:
  explicit OutboxSchedule(OutboxOptions options) : options_(options) {}

  /// Numbers a new message; it is due at once.
  std::uint64_t add(std::chrono::nanoseconds now);

  /// The sequences to transmit now, ascending; each is due again after its next delay.
  std::vector<std::uint64_t> take_due(std::chrono::nanoseconds now);

  /// When take_due has something next; nullopt when nothing is unacknowledged.
  std::optional<std::chrono::nanoseconds> next_due() const;

  /// The sequences that this acknowledges and that were not acknowledged before. Sequences that
  /// were never sent are ignored: the peer may say anything.
  std::vector<std::uint64_t> acknowledge(const ControlAck& ack);

  void clear();
  std::size_t size() const { return pending_.size(); }

 private:
  struct Pending {
    std::chrono::nanoseconds due{0};
    std::chrono::nanoseconds delay{0};  // before the next retry
    bool sent = false;
  };

  bool in_window(std::uint64_t sequence) const {
    return sequence < pending_.begin()->first + options_.window;
  }

  OutboxOptions options_;
  std::uint64_t last_sequence_ = 0;
  absl::btree_map<std::uint64_t, Pending> pending_;
};

/// Messages for one incarnation of a peer. A value type where Payload is one; not thread-safe.
template <class Payload>
class Outbox {
 public:
  struct Due {
    std::uint64_t sequence;
    Payload payload;
  };

  explicit Outbox(OutboxOptions options = {}) : schedule_(options) {}

  /// Takes a message; it is due at once. Returns its sequence, or 0 when the peer is lost: then the
  /// message is dropped.
  std::uint64_t send(Payload payload, std::chrono::nanoseconds now) {
    if (lost_) return 0;
    const std::uint64_t sequence = schedule_.add(now);
    payloads_.emplace(sequence, std::move(payload));
    return sequence;
  }

  /// What is to be transmitted now: new messages, and unacknowledged ones whose delay is over.
  std::vector<Due> due(std::chrono::nanoseconds now) {
    std::vector<Due> due;
    for (std::uint64_t sequence : schedule_.take_due(now)) {
      due.push_back(Due{sequence, payloads_.at(sequence)});
    }
    return due;
  }

  std::optional<std::chrono::nanoseconds> next_due() const { return schedule_.next_due(); }

  /// Forgets what the peer has got.
  void on_ack(const ControlAck& ack) {
    for (std::uint64_t sequence : schedule_.acknowledge(ack)) payloads_.erase(sequence);
  }

  /// Drops everything, now and later.
  void peer_lost() {
    lost_ = true;
    schedule_.clear();
    payloads_.clear();
  }

  std::size_t unacknowledged() const { return payloads_.size(); }
  /// What the peer has not acknowledged, by sequence.
  const absl::btree_map<std::uint64_t, Payload>& payloads() const { return payloads_; }

 private:
  OutboxSchedule schedule_;
  absl::btree_map<std::uint64_t, Payload> payloads_;
  bool lost_ = false;
};

/// What has been received from one incarnation of a peer. Memory is bounded by kWindow. Not
/// thread-safe.
class Inbox {
 public:
  static constexpr std::uint64_t kWindow = 4096;

  enum class Verdict {
    kNew,       // hand the message over; counted as received from now on
    kRepeated,  // handed over before, or still being handled: drop it
    kTooFar,    // beyond the window: drop it, the sender will repeat it
    kForeign,   // of another incarnation, or no sequence at all: drop it
  };

  explicit Inbox(Incarnation sender) : sender_(sender) {}

  Verdict accept(Incarnation sender, std::uint64_t sequence);

  /// Something arrived since the last take_ack(), be it a repetition: its first ack may have been
  /// lost.
  bool ack_due() const { return ack_due_; }
  ControlAck take_ack();

 private:
  Incarnation sender_;
  std::uint64_t cumulative_ = 0;
  absl::btree_set<std::uint64_t> beyond_;
  bool ack_due_ = false;
};

}  // namespace sinew::internal
