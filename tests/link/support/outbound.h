#pragma once

#include <cstdint>

namespace sinew::internal {

/// What frames consist of in the model: which call they are about.
struct Outbound {
  enum class Part : std::uint8_t { kRequest = 0, kReply = 1, kCancel = 2 };
  int call = 0;
  Part part = Part::kRequest;
  std::uint64_t bytes = 0;
  bool large = false;
  /// Of a cancel: the number of the request.
  std::uint64_t target = 0;

  std::uint64_t id() const {
    return static_cast<std::uint64_t>(call) * 4 + static_cast<std::uint64_t>(part);
  }
};

}  // namespace sinew::internal
