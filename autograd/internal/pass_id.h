#pragma once

#include <cstdint>

#include "sinew/rpc/base/ids.h"

namespace sinew::internal {

/// One backward pass of a context.
struct PassId {
  Incarnation initiator;
  /// Counted by the initiator.
  std::uint64_t serial = 0;

  friend bool operator==(const PassId& a, const PassId& b) {
    return a.initiator == b.initiator && a.serial == b.serial;
  }
};

}  // namespace sinew::internal
