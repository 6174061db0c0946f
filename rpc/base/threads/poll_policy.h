#pragma once

#include <chrono>
#include <cstdint>

namespace sinew::internal {

/// Whether waits of one kind are worth polling for before they sleep, and for how long.
///
/// To wake a thread takes longer than most of what a short call does, so a wait that is about to
/// end is better polled for. A moment less of waiting is worth a few moments of polling, so a wait
/// is polled for at most so many times the price of a wake-up. It is polled for at all while that
/// has paid lately: what the latest waits would have saved by it is more than what it would have
/// cost. (Karlin, Li, Manasse, Owicki: Empirical studies of competitive spinning for a
/// shared-memory multiprocessor, SOSP 1991.)
///
/// Where the core is given to another thread, the thread is in the way: it sleeps, and does not
/// poll for a pause.
///
/// Knows no clock and no thread. Not thread-safe. docs/threads.md has the reasons for its numbers.
class PollPolicy {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::nanoseconds;

  /// On whose behalf a thread waits.
  enum class Waits : std::uint8_t {
    /// Its own: it needs what comes, so its time counts for more than what polling takes.
    kForItself,
    /// Possibly for no caller, as a server between two requests: a quarter of that.
    kForOthers,
  };

  /// `max_poll` zero or less: never polls.
  PollPolicy(Duration max_poll, Waits whose);

  /// How long to poll in the wait that begins at `now`, where a wake-up takes `price`; zero: sleep
  /// at once.
  Duration begin(TimePoint now, Duration price);
  /// Something has arrived `waited` after the beginning, while the thread polled.
  void on_polled(Duration waited);
  /// It slept when something came, after it had polled for `polled` in vain. `waited` includes the
  /// wake-up.
  void on_slept(Duration waited, Duration polled);
  /// Between two looks the thread was away for so long. Whether another one may have had the core,
  /// so that it is worth asking the kernel.
  bool may_be_taken(Duration away) const { return kSwitch * away > price_; }
  /// Another thread had the core, for so long. Where that is more than it takes to look after
  /// something, or not the first time lately, this one must not poll for a while.
  void on_core_taken(TimePoint back, Duration away);

 private:
  // To go over to another thread and back takes at least that part of a wake-up.
  static constexpr int kSwitch = 8;

  void learn(Duration wait);

  const Duration max_poll_;
  const int worth_;
  Duration price_{0};
  // What polling for all of the latest waits would have saved, on the average.
  double gain_ns_ = 0;
  TimePoint last_taken_ = TimePoint::min();
  TimePoint pause_until_ = TimePoint::min();
};

}  // namespace sinew::internal
