#pragma once

#include <cstdint>
#include <random>

#include "sinew/testing/messages.h"

namespace sinew::internal {

/// Counts messages, and chooses those that a Messages means. Not thread-safe.
class MessageChoice {
 public:
  explicit MessageChoice(testing::Messages messages);

  /// Whether the next message is one of them.
  bool choose(const testing::Message& message);

 private:
  testing::Messages messages_;
  std::mt19937_64 random_;
  std::uint64_t matched_ = 0;
  std::uint64_t chosen_ = 0;
};

}  // namespace sinew::internal
