#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

#include "sinew/rpc/base/boot_clock.h"

namespace sinew::internal {

/// Connection reversal (rule L8): a peer that this end cannot reach is asked, by a worker that has
/// a connection with it, to open the one with this end. This says when to ask for that, and for how
/// long what waits here should go on waiting. Only for links that never were up: on all others the
/// peer opens connections by itself.
///
/// Pure: no threads, clock or I/O. Time must not go back. Not thread-safe.
class ConnectionReversal {
 public:
  using TimePoint = BootClock::TimePoint;

  /// An attempt counts as without an answer after so long, or after a fifth of the lease.
  static constexpr std::chrono::nanoseconds kSilence = std::chrono::seconds(3);
  /// Between two questions: doubled each time that the one before did not help.
  static constexpr std::chrono::nanoseconds kFirstPause = std::chrono::seconds(1);
  static constexpr std::chrono::nanoseconds kLongestPause = std::chrono::seconds(8);
  /// For the answer.
  static constexpr std::chrono::nanoseconds kAnswerTime = std::chrono::seconds(2);
  /// For the connection of a peer that has been asked, and for all of that together.
  static constexpr std::chrono::nanoseconds kGrace = std::chrono::seconds(4);
  static constexpr std::chrono::nanoseconds kLongestGrace = std::chrono::seconds(10);

  explicit ConnectionReversal(std::chrono::nanoseconds lease)
      : silence_(std::min(kSilence, lease / 5)) {}

  /// An attempt to reach the peer begins, or goes on.
  void on_dial(TimePoint now);
  /// It has failed, and not because the peer did not want it.
  void on_failed(TimePoint now);
  /// True when another worker is to be asked now; on_answer() may follow.
  bool take_question(TimePoint now);
  /// Whether the peer has been asked.
  void on_answer(bool is_asked, TimePoint now);
  /// The peer may still come: who cannot reach it has not failed yet.
  bool awaits(TimePoint now) const { return now < awaits_until_; }
  /// When to call take_question(); max(): never, as things are.
  TimePoint wake() const;
  /// There is contact, or none is needed.
  void reset();

 private:
  const std::chrono::nanoseconds silence_;
  // From when on a question is called for.
  TimePoint due_ = TimePoint::max();
  // Not before this: also where one contact after the other is wanted and fails.
  TimePoint next_question_ = TimePoint::min();
  std::chrono::nanoseconds pause_ = kFirstPause;
  // Of the first question since the last reset().
  std::optional<TimePoint> first_question_;
  TimePoint awaits_until_ = TimePoint::min();
};

}  // namespace sinew::internal
