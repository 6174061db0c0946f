#include "sinew/rpc/link/lease.h"

#include <algorithm>

namespace sinew::internal {

std::ostream& operator<<(std::ostream& out, LeaseState state) {
  switch (state) {
    case LeaseState::kAlive:
      return out << "alive";
    case LeaseState::kSuspected:
      return out << "suspected";
    case LeaseState::kLost:
      return out << "lost";
  }
  return out << "unknown";
}

Lease::Lease(Options options, TimePoint holder_start, TimePoint owner_start)
    : options_(options),
      acknowledged_(holder_start),
      received_(owner_start),
      next_beat_(owner_start) {}

Lease::Step Lease::on_beat_reply(std::uint64_t sequence, TimePoint now) {
  // First: an answer that comes after the end must not revive what the owner may have dropped
  // already.
  expire(now);
  const auto beat = std::find_if(sent_.begin(), sent_.end(),
                                 [&](const Sent& sent) { return sent.sequence == sequence; });
  if (!lost_ && beat != sent_.end()) {
    acknowledged_ = std::max(acknowledged_, beat->when);
    // Older ones cannot extend the lease any more.
    sent_.erase(sent_.begin(), beat + 1);
  }
  return step(now);
}

Lease::Step Lease::on_beat(TimePoint now) {
  expire(now);
  // From kLost on beats are not answered, so the peer's lease as a holder ends within one duration
  // of the last one that was; received_ stays at that one.
  if (!lost_) received_ = now;
  return step(now);
}

Lease::Step Lease::poll(TimePoint now) {
  expire(now);
  return step(now);
}

Lease::Step Lease::on_gone(TimePoint now) {
  lost_ = true;
  gone_ = true;
  return step(now);
}

void Lease::expire(TimePoint now) {
  if (now >= holder_end() || now >= owner_end()) lost_ = true;
}

Lease::Step Lease::step(TimePoint now) {
  Step step;
  if (lost_) {
    step.state = LeaseState::kLost;
    step.drop = may_drop(now);
    if (!step.drop) step.wake = owner_end();
    sent_.clear();
  } else {
    if (now >= suspicion()) step.state = LeaseState::kSuspected;
    if (now >= next_beat_) {
      step.beat = next_sequence_++;
      sent_.push_back({step.beat, now});
      while (now - sent_.front().when >= options_.duration) sent_.pop_front();
      next_beat_ = now + options_.beat_interval;
    }
    step.wake = std::min({next_beat_, holder_end(), owner_end()});
    if (step.state == LeaseState::kAlive) step.wake = std::min(step.wake, suspicion());
  }
  step.changed = step.state != reported_;
  reported_ = step.state;
  return step;
}

}  // namespace sinew::internal
