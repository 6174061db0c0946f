#include "sinew/rpc/link/process_watch.h"

#include <algorithm>
#include <utility>

namespace sinew::internal {

void ProcessWatch::set_up(bool is_up, TimePoint now) {
  if (is_up_ == is_up) return;
  is_up_ = is_up;
  seen_ended_ = false;
  pause_ = kFirstPause;
  look_at_ = now;
}

bool ProcessWatch::has_ended(TimePoint now) {
  if (process_ == nullptr || now < look_at_) return false;
  const bool ended = process_->has_ended();
  if (is_up_) {
    look_at_ = now + kLongestPause;
    return std::exchange(seen_ended_, ended) && ended;
  }
  look_at_ = now + pause_;
  pause_ = std::min(2 * pause_, kLongestPause);
  return ended;
}

ProcessWatch::TimePoint ProcessWatch::wake() const {
  return process_ == nullptr || is_up_ ? TimePoint::max() : look_at_;
}

}  // namespace sinew::internal
