#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace sinew::internal {

/// How long waits of one kind are worth polling for before they sleep.
///
/// To wake a thread on a core that has gone idle takes longer than most of what a short call does,
/// so a wait that is about to end is better polled for. How long waits last is learned from the
/// latest ones: of a few bounds the one is chosen with which polling would have saved most of those
/// the wake-up, less a part of the time that it would have taken from others. Where none would have
/// paid the wait sleeps at once. (Karlin, Li, Manasse, Owicki: Empirical studies of competitive
/// spinning for a shared-memory multiprocessor, SOSP 1991.)
///
/// A core that somebody else wants is left to him: whoever has offered it between two looks and
/// gets it back late sleeps. If it was away for long, it does not poll for a pause either, which
/// doubles each time until polling has paid for long enough again. So does not, for longer, who
/// waited for a core itself for a good part of the time: a poller is not in the way on its own core
/// only, since no idle core takes work over from another while it polls there. One such reading
/// alone says nothing. Where messages come by the packet a little lateness does no harm, though:
/// more of them share the next packet, and whoever had the core mostly works on their behalf.
///
/// Knows no clock and no thread. Not thread-safe.
class PollPolicy {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::nanoseconds;

  /// On whose behalf a thread waits.
  enum class Waits : std::uint8_t {
    /// Its own: it needs what comes, so its time counts for more than what polling takes.
    kForItself,
    /// Maybe nobody's, as a server's between two requests: a quarter of that.
    kForOthers,
  };

  /// `max_poll` zero or less: never polls. What is over 200 us counts as that: no wake-up is worth
  /// more.
  PollPolicy(Duration max_poll, Waits waits);

  /// How long to poll in the wait that begins at `now`; zero: sleep at once.
  Duration begin(TimePoint now) const;
  /// Something has come `waited` after the beginning, while the thread polled.
  void on_polled(Duration waited);
  /// It slept when something came, after it had polled for `polled` in vain. `waited` includes the
  /// wake-up.
  void on_slept(Duration waited, Duration polled);
  /// The thread that polls could have run and waited for a core for `delay` of the last `time`.
  void on_run_delay(TimePoint now, Duration delay, Duration time);
  /// What came has brought so many messages, one or more.
  void on_messages(int messages);
  /// Between two looks the core was `offered` to others, and the thread is `back`. False: they have
  /// worked meanwhile, so the thread is in their way and must not go on polling.
  bool may_go_on(TimePoint offered, TimePoint back);

 private:
  static constexpr std::size_t kBounds = 7;

  Duration bound(std::size_t index) const;
  bool come_together() const;
  void learn(Duration wait);
  void choose();

  const Duration max_poll_;
  const Waits whose_;
  // How many of the latest waits would have ended in time for each bound and for none smaller, and
  // how many for none at all; each wait weighs less with every one that follows.
  std::array<std::int64_t, kBounds + 1> waits_{};
  Duration poll_{0};
  // That came together; weighted towards the latest.
  double average_messages_ = 1;
  TimePoint pause_until_ = TimePoint::min();
  int pauses_in_a_row_ = 0;
  int paid_since_pause_ = 0;
  // Of the latest readings of the run delay, the last one first.
  std::array<bool, 3> was_delayed_{};
};

}  // namespace sinew::internal
