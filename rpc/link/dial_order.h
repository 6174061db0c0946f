#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/btree_map.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/base/threads/timer_queue.h"

namespace sinew::internal {

/// Whom a worker dials next, of those that it wants a first connection with. All workers stand in a
/// ring, by their incarnations. Where a worker wants many connections at once it dials the half of
/// the ring that follows it, a few at a time, and leaves it to the other half to dial, as long as
/// those do. So where all start to call each other, each two make one connection, rather than two
/// of which one is for nothing.
///
/// Pure: no threads, clock or I/O. Not thread-safe.
class DialOrder {
 public:
  using TimePoint = Clock::TimePoint;
  using Turn = std::uint64_t;  // never 0

  static constexpr std::size_t kAtOnce = 8;
  /// A turn ends after so long, since who does not answer must not hold up the others.
  static constexpr std::chrono::milliseconds kLongestTurn{500};
  /// A peer that is to dial here is waited for so long: long enough to see whether this worker
  /// wants many.
  static constexpr std::chrono::milliseconds kGlance{1};
  /// And if it wants many, until so long after the last one of those has connected.
  static constexpr std::chrono::milliseconds kQuiet{250};
  /// But not longer than so long in all.
  static constexpr std::chrono::milliseconds kLongestWait{5000};

  explicit DialOrder(Incarnation self) : self_(self) {}

  /// It is wanted. Nothing if it waits already.
  void enter(Incarnation peer, TimePoint now);
  /// It has dialled here: so it needs no turn any more.
  void on_accepted(Incarnation peer, TimePoint now);
  struct Begun {
    Turn turn;
    Incarnation peer;
  };
  /// Those whose turn begins now.
  std::vector<Begun> begin(TimePoint now);
  /// Nothing if it is over.
  void end(Turn turn);
  /// When to ask begin() next at the latest.
  TimePoint wake() const;

 private:
  // How far it is along the ring. Modulo 2^64: the ring is closed.
  std::uint64_t distance(Incarnation peer) const { return peer.value - self_.value; }
  void end_those_over(TimePoint now);
  TimePoint due(std::uint64_t distance, TimePoint entered) const;

  const Incarnation self_;
  Turn last_turn_ = 0;
  // When each ends by itself.
  absl::btree_map<Turn, TimePoint> running_;
  // By distance; when it entered.
  absl::btree_map<std::uint64_t, TimePoint> waiting_;
  // There were more than may dial at once; as long as any of them waits.
  bool many_ = false;
  std::optional<TimePoint> accepted_at_;
};

}  // namespace sinew::internal
