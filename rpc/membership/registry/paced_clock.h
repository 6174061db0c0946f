#pragma once

#include <algorithm>

#include "sinew/rpc/membership/registry/registry_bugs.h"
#include "sinew/rpc/membership/registry/registry_messages.h"

namespace sinew::internal::registry {

/// Time that goes on by a step at most between two looks at it. So a process that was stopped, or
/// was late, reads what was sent to it meanwhile before any timeout passes. Pure.
class PacedClock {
 public:
  PacedClock(Time now, Time step) : time_(now), looked_(now), step_(step) {}

  Time pass(Time now) {
    const Time gap = std::max(now - looked_, Time(0));
    time_ += SINEW_REGISTRY_BUG(kPauseCounts) ? gap : std::min(gap, step_);
    looked_ = std::max(looked_, now);
    return time_;
  }
  Time time() const { return time_; }

 private:
  Time time_;
  Time looked_;
  Time step_;
};

}  // namespace sinew::internal::registry
