#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace sinew::internal {

/// What has become of the calls of one method at the worker that serves it. Thread-safe; each
/// number counts by itself.
class MethodStats {
 public:
  /// Times of 2^n microseconds at most are counted under n; the last one has all that are longer.
  static constexpr std::size_t kPowers = 28;

  /// A call with arguments of so many bytes was answered, so long after it had come.
  void add(std::chrono::nanoseconds time, std::uint64_t bytes, bool is_error);

  std::uint64_t calls() const;
  std::uint64_t errors() const { return errors_.load(std::memory_order_relaxed); }
  std::uint64_t time_us() const { return time_ns_.load(std::memory_order_relaxed) / 1000; }
  std::uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  std::uint64_t of_power(std::size_t power) const {
    return by_power_[power].load(std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint64_t> errors_{0};
  std::atomic<std::uint64_t> time_ns_{0};
  std::atomic<std::uint64_t> bytes_{0};
  std::array<std::atomic<std::uint64_t>, kPowers> by_power_{};
};

}  // namespace sinew::internal
