#include "sinew/rpc/calls/method_stats.h"

#include <algorithm>

namespace sinew::internal {

void MethodStats::add(std::chrono::nanoseconds time, std::uint64_t bytes, bool is_error) {
  const auto ns = static_cast<std::uint64_t>(std::max<std::int64_t>(time.count(), 0));
  std::size_t power = 0;
  while (power + 1 < kPowers && ns > (std::uint64_t{1000} << power)) ++power;
  by_power_[power].fetch_add(1, std::memory_order_relaxed);
  time_ns_.fetch_add(ns, std::memory_order_relaxed);
  bytes_.fetch_add(bytes, std::memory_order_relaxed);
  if (is_error) errors_.fetch_add(1, std::memory_order_relaxed);
}

std::uint64_t MethodStats::calls() const {
  std::uint64_t calls = 0;
  for (const auto& count : by_power_) calls += count.load(std::memory_order_relaxed);
  return calls;
}

}  // namespace sinew::internal
