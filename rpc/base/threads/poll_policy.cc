#include "sinew/rpc/base/threads/poll_policy.h"

#include <algorithm>

namespace sinew::internal {
namespace {

// How many moments of polling a moment less of waiting is worth.
constexpr int kWorthForItself = 8;
constexpr int kWorthForOthers = 2;
// Waits that the average is over.
constexpr double kLatestWaits = 16;
// Wake-ups for which a thread has a core at most that only looks after something, as one that
// watches.
constexpr int kLooksAfter = 4;
// Shorter than so many times that it was away since the last time: this core is shared.
constexpr int kOften = 16;
// Times that a core was away, until it is polled on again.
constexpr int kPause = 64;

}  // namespace

PollPolicy::PollPolicy(Duration max_poll, Waits whose)
    : max_poll_(std::max(max_poll, Duration(0))),
      worth_(whose == Waits::kForItself ? kWorthForItself : kWorthForOthers) {}

PollPolicy::Duration PollPolicy::begin(TimePoint now, Duration price) {
  price_ = price;
  if (gain_ns_ <= 0 || now < pause_until_) return Duration(0);
  return std::min(worth_ * price, max_poll_);
}

void PollPolicy::on_polled(Duration waited) { learn(waited); }

void PollPolicy::on_slept(Duration waited, Duration polled) {
  // Without its own wake-up it would have ended earlier; but not while the thread polled.
  learn(std::max(waited - price_, polled + Duration(1)));
}

void PollPolicy::learn(Duration wait) {
  const Duration saved = worth_ * price_;
  const Duration bound = std::min(saved, max_poll_);
  const Duration gain = wait <= bound ? saved - wait : -bound;
  gain_ns_ += (static_cast<double>(gain.count()) - gain_ns_) / kLatestWaits;
}

void PollPolicy::on_core_taken(TimePoint back, Duration away) {
  const bool is_often = last_taken_ > back - kOften * away;
  if (away > kLooksAfter * price_ || is_often) pause_until_ = back + kPause * away;
  last_taken_ = back;
}

}  // namespace sinew::internal
