#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace sinew::internal {

/// What it costs a call on this host that a thread sleeps which waits for it: twice what it takes
/// until a parked thread runs that is woken from another core. All that is said about polling and
/// about leaving work to others is a multiple of it. Thread-safe.
class WakeUpPrice {
 public:
  using Duration = std::chrono::nanoseconds;
  /// Where and when a thread was woken.
  struct Call {
    std::chrono::steady_clock::time_point at;
    int core = -1;
    static Call now();
  };

  explicit WakeUpPrice(Duration first) : most_(4 * first), now_ns_(first.count()) {}

  /// The process's. Measured by the first caller, in 2 ms; it may take longer where cores are busy.
  static WakeUpPrice& of_host();
  /// By the median of some dozens of wake-ups of a thread that is bound to another core than the
  /// calling thread's. 30 us where there is no other one, or it is busy.
  static Duration measure();

  Duration now() const { return Duration(now_ns_.load(std::memory_order_relaxed)); }
  /// The calling thread was woken by `call`, and runs. Nothing is learned where both have the same
  /// core: that one was awake.
  void on_wake_up(const Call& call);
  /// It was so much this time. The price follows the median of what it is told: a 64th up or down
  /// with each, to four times the first one at most.
  void learn(Duration took);

 private:
  const Duration most_;
  std::atomic<std::int64_t> now_ns_;
};

}  // namespace sinew::internal
