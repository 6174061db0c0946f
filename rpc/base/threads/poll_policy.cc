#include "sinew/rpc/base/threads/poll_policy.h"

#include <algorithm>
#include <numeric>

namespace sinew::internal {
namespace {

using std::chrono::microseconds;

// What the wake-up of an idle core takes, in the order of magnitude.
constexpr PollPolicy::Duration kTimeOfWakeUp = microseconds(30);
// Of what a moment less of waiting is worth, a moment of polling costs one part in so many.
constexpr std::int64_t worth_of_waiting(PollPolicy::Waits whose) {
  return whose == PollPolicy::Waits::kForItself ? 8 : 2;
}
// The weight of the latest wait, and the part of its weight that each one loses with the next.
constexpr std::int64_t kWeight = 1 << 16;
constexpr std::int64_t kDecay = 16;
// The last of the bounds; each other one is half of the next.
constexpr PollPolicy::Duration kLongest = microseconds(200);
// A thread that gets its core back later has left it to somebody with work to do: threads that only
// look after something take less.
constexpr auto kGivenCore = microseconds(35);
// And from here on to somebody who will want it again: a worker's own threads take less.
constexpr auto kTakenCore = microseconds(150);
// So late it may be where that many messages come together.
constexpr double kManyMessages = 3;
constexpr auto kGivenCoreByMany = microseconds(1000);
// A thread that waits for cores for a larger part of its time shares them with more than there are.
constexpr double kMaxRunDelay = 0.08;
// Of the latest readings so many have to say so: one alone does now and then where two processes
// call each other and nobody wants their cores.
constexpr int kDelayedReadings = 2;
constexpr auto kPauseWhereCoresAreWanted = std::chrono::milliseconds(100);
constexpr auto kFirstPause = microseconds(500);
constexpr int kMaxPauseDoublings = 8;
// Polls that have paid after which the last pause is forgotten.
constexpr int kPaidPerPause = 64;

}  // namespace

PollPolicy::PollPolicy(Duration max_poll, Waits waits)
    : max_poll_(std::max(max_poll, Duration(0))), whose_(waits) {}

PollPolicy::Duration PollPolicy::bound(std::size_t index) const {
  return std::min<Duration>(kLongest / (1 << (kBounds - 1 - index)), max_poll_);
}

PollPolicy::Duration PollPolicy::begin(TimePoint now) const {
  return now < pause_until_ ? Duration(0) : poll_;
}

void PollPolicy::on_polled(Duration waited) {
  if (++paid_since_pause_ >= kPaidPerPause) {
    paid_since_pause_ = 0;
    pauses_in_a_row_ = std::max(pauses_in_a_row_ - 1, 0);
  }
  learn(waited);
}

void PollPolicy::on_slept(Duration waited, Duration polled) {
  learn(std::max(waited - kTimeOfWakeUp, polled + Duration(1)));
}

void PollPolicy::on_messages(int messages) {
  average_messages_ += (messages - average_messages_) / 8;
}

bool PollPolicy::come_together() const { return average_messages_ >= kManyMessages; }

void PollPolicy::on_run_delay(TimePoint now, Duration delay, Duration time) {
  std::rotate(was_delayed_.rbegin(), was_delayed_.rbegin() + 1, was_delayed_.rend());
  was_delayed_.front() = std::chrono::duration<double>(delay) > kMaxRunDelay * time;
  const auto delayed = std::count(was_delayed_.begin(), was_delayed_.end(), true);
  if (!was_delayed_.front() || delayed < kDelayedReadings || come_together()) return;
  pause_until_ = std::max(pause_until_, now + kPauseWhereCoresAreWanted);
}

void PollPolicy::learn(Duration wait) {
  std::size_t index = 0;
  while (index < kBounds && wait > bound(index)) ++index;
  for (std::int64_t& weight : waits_) weight -= weight / kDecay;
  waits_[index] += kWeight;
  choose();
}

void PollPolicy::choose() {
  std::int64_t longer = std::accumulate(waits_.begin(), waits_.end(), std::int64_t{0});
  std::int64_t saved = 0;
  std::int64_t polled = 0;
  std::int64_t best = 0;
  poll_ = Duration(0);
  for (std::size_t i = 0; i < kBounds; ++i) {
    longer -= waits_[i];
    saved += waits_[i] * kTimeOfWakeUp.count();
    polled += waits_[i] * bound(i).count();
    const std::int64_t gain =
        saved - (polled + longer * bound(i).count()) / worth_of_waiting(whose_);
    if (gain <= best) continue;
    best = gain;
    poll_ = bound(i);
  }
}

bool PollPolicy::may_go_on(TimePoint offered, TimePoint back) {
  const Duration late = back - offered;
  const Duration harmless = come_together() ? kGivenCoreByMany : kGivenCore;
  if (late <= harmless) return true;
  if (late <= kTakenCore) return false;
  pause_until_ = back + kFirstPause * (1 << pauses_in_a_row_);
  pauses_in_a_row_ = std::min(pauses_in_a_row_ + 1, kMaxPauseDoublings);
  paid_since_pause_ = 0;
  return false;
}

}  // namespace sinew::internal
