#include "sinew/rpc/link/dial_order.h"

#include <algorithm>

namespace sinew::internal {
namespace {

// Of each two workers one finds the other one in this half.
bool is_own_half(std::uint64_t distance) { return distance <= ~std::uint64_t{0} / 2; }

}  // namespace

void DialOrder::end_those_over(TimePoint now) {
  for (auto each = running_.begin(); each != running_.end();) {
    each = each->second <= now ? running_.erase(each) : std::next(each);
  }
}

void DialOrder::enter(Incarnation peer, TimePoint now) {
  end_those_over(now);
  waiting_.emplace(distance(peer), now);
  if (waiting_.size() + running_.size() > kAtOnce) many_ = true;
}

void DialOrder::on_accepted(Incarnation peer, TimePoint now) {
  accepted_at_ = now;
  waiting_.erase(distance(peer));
  if (waiting_.empty()) many_ = false;
}

DialOrder::TimePoint DialOrder::due(std::uint64_t distance, TimePoint entered) const {
  if (is_own_half(distance)) return entered;
  if (!many_) return entered + kGlance;
  const TimePoint last = std::max(entered, accepted_at_.value_or(entered));
  return std::min(last + kQuiet, entered + kLongestWait);
}

std::vector<DialOrder::Begun> DialOrder::begin(TimePoint now) {
  end_those_over(now);
  std::vector<Begun> begun;
  for (auto each = waiting_.begin(); each != waiting_.end() && running_.size() < kAtOnce;) {
    if (due(each->first, each->second) > now) {
      ++each;
      continue;
    }
    begun.push_back({++last_turn_, {self_.value + each->first}});
    running_.emplace(last_turn_, now + kLongestTurn);
    each = waiting_.erase(each);
  }
  if (waiting_.empty()) many_ = false;
  return begun;
}

void DialOrder::end(Turn turn) { running_.erase(turn); }

DialOrder::TimePoint DialOrder::wake() const {
  TimePoint wake = TimePoint::max();
  if (waiting_.empty()) return wake;
  // Turns are all as long, so the first one to begin is the first one to end.
  if (running_.size() >= kAtOnce) return running_.begin()->second;
  for (const auto& [distance, entered] : waiting_) wake = std::min(wake, due(distance, entered));
  return wake;
}

}  // namespace sinew::internal
