#pragma once

#include <cstddef>
#include <cstdint>

#include "sinew/rref/internal/ledger_messages.h"

namespace sinew::internal::ledger {

/// SplitMix64: the same numbers on every platform, unlike the standard distributions.
class SimulationRandom {
 public:
  explicit SimulationRandom(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(next() % bound); }
  bool chance(int percent) { return below(100) < static_cast<std::size_t>(percent); }
  Time between(Time low, Time high) {
    return low + Time(static_cast<std::int64_t>(
                     next() % static_cast<std::uint64_t>((high - low).count() + 1)));
  }

 private:
  std::uint64_t state_;
};

}  // namespace sinew::internal::ledger
