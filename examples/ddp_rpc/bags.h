#pragma once

#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"

namespace ddp_rpc {

/// Bags of words, each of a class that most of its words belong to.
struct Bags {
  static constexpr std::int64_t kWords = 100;
  static constexpr std::int64_t kClasses = 8;

  /// All bags' words one after another; {count} places where each begins, and its class.
  at::Tensor words;
  at::Tensor offsets;
  at::Tensor classes;

  /// The same bags for the same seed, on every machine. A bag has 1 to 10 words.
  static Bags make(std::int64_t count, std::int64_t seed);
  Bags on(const at::Device& device) const {
    return {words.to(device), offsets.to(device), classes.to(device)};
  }
  /// One after another.
  static Bags joined(const std::vector<Bags>& parts);
  /// What a trainer sees in a step; trainers count from 0.
  static Bags of_step(std::int64_t count, std::int64_t seed, std::int64_t trainer,
                      std::int64_t step);
};

}  // namespace ddp_rpc
