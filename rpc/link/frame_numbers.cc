#include "sinew/rpc/link/frame_numbers.h"

#include <algorithm>
#include <iterator>

namespace sinew::internal {

bool FrameNumbers::contains(std::uint64_t number) const {
  auto after = runs_.upper_bound(number);
  return after != runs_.begin() && std::prev(after)->second >= number;
}

std::uint64_t FrameNumbers::first_missing() const {
  const bool begins_at_one = !runs_.empty() && runs_.begin()->first == 1;
  return begins_at_one ? runs_.begin()->second + 1 : 1;
}

FrameNumbers::Arrival FrameNumbers::add(std::uint64_t number, Report report) {
  // The last number is never used, so that "one more" cannot wrap around.
  if (number == 0 || number == UINT64_MAX) return Arrival::kRefused;
  const auto after = runs_.upper_bound(number);
  const bool has_before = after != runs_.begin();
  const auto before = has_before ? std::prev(after) : runs_.end();
  if (has_before && before->second >= number) return Arrival::kRepeated;
  const bool joins_before = has_before && before->second + 1 == number;
  const bool joins_after = after != runs_.end() && after->first == number + 1;
  if (joins_before && joins_after) {
    before->second = after->second;
    runs_.erase(after);
  } else if (joins_before) {
    before->second = number;
  } else if (joins_after) {
    const std::uint64_t last = after->second;
    runs_.erase(after);
    runs_.emplace(number, last);
  } else if (runs_.size() >= kMaxRuns) {
    return Arrival::kRefused;
  } else {
    runs_.emplace(number, number);
  }
  if (report == Report::kNow) this->report(number);
  return Arrival::kNew;
}

void FrameNumbers::report(std::uint64_t number) {
  if (!unreported_.empty() && unreported_.back().last + 1 == number) {
    unreported_.back().last = number;
  } else if (!unreported_.empty() && unreported_.back().first == number + 1) {
    unreported_.back().first = number;
  } else {
    unreported_.push_back({number, number});
  }
}

NumberRanges FrameNumbers::all() const {
  NumberRanges ranges;
  ranges.reserve(runs_.size());
  for (const auto& [first, last] : runs_) ranges.push_back({first, last});
  return ranges;
}

NumberRanges FrameNumbers::take_unreported() {
  const std::size_t count = std::min(unreported_.size(), kMaxReported);
  const auto end = unreported_.begin() + static_cast<std::ptrdiff_t>(count);
  NumberRanges taken(unreported_.begin(), end);
  unreported_.erase(unreported_.begin(), end);
  return taken;
}

}  // namespace sinew::internal
