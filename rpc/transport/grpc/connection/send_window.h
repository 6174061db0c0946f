#pragma once

#include <atomic>
#include <cstddef>

namespace sinew::internal {

/// Counts what is queued on a lane. A frame that is larger than the whole window still passes,
/// alone. Thread-safe.
class SendWindow {
 public:
  explicit SendWindow(std::size_t limit_bytes) : limit_bytes_(limit_bytes) {}

  /// False when the window is full; nothing is counted then.
  bool take(std::size_t bytes) {
    std::size_t queued = queued_bytes_.load(std::memory_order_relaxed);
    do {
      if (queued > 0 && (queued >= limit_bytes_ || bytes > limit_bytes_ - queued)) return false;
    } while (
        !queued_bytes_.compare_exchange_weak(queued, queued + bytes, std::memory_order_relaxed));
    return true;
  }
  void give_back(std::size_t bytes) { queued_bytes_.fetch_sub(bytes, std::memory_order_relaxed); }

  std::size_t limit_bytes() const { return limit_bytes_; }
  std::size_t queued_bytes() const { return queued_bytes_.load(std::memory_order_relaxed); }

 private:
  const std::size_t limit_bytes_;
  std::atomic<std::size_t> queued_bytes_{0};
};

}  // namespace sinew::internal
