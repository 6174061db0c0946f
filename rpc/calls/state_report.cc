#include "sinew/rpc/calls/state_report.h"

#include <algorithm>
#include <chrono>

namespace sinew::internal {
namespace {

std::uint64_t microseconds(std::chrono::nanoseconds time) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(
      0, std::chrono::duration_cast<std::chrono::microseconds>(time).count()));
}

}  // namespace

bool StateReport::wants(std::string_view list) const {
  return std::find(wanted_.begin(), wanted_.end(), list) != wanted_.end();
}

std::uint64_t StateReport::age_us(Clock::TimePoint since) const {
  return microseconds(now_ - since);
}

std::uint64_t StateReport::left_us(Clock::TimePoint deadline) const {
  return microseconds(deadline - now_);
}

}  // namespace sinew::internal
