#pragma once

#include <cstdint>

#include "sinew/rref/internal/ledger_messages.h"
#include "sinew/tests/support/split_mix64.h"

namespace sinew::internal::ledger {

class SimulationRandom : public testing::SplitMix64 {
 public:
  using SplitMix64::SplitMix64;
  Time between(Time low, Time high) {
    return low + Time(static_cast<std::int64_t>(
                     next() % static_cast<std::uint64_t>((high - low).count() + 1)));
  }
};

}  // namespace sinew::internal::ledger
