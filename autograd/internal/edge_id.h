#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "sinew/rpc/base/ids.h"

namespace sinew::internal {

/// One tensor on its way between two workers.
struct EdgeId {
  Incarnation sender;
  /// The sender's number of the message.
  std::uint64_t message = 0;
  /// The tensor's number within the message.
  std::uint32_t index = 0;

  friend bool operator==(const EdgeId& a, const EdgeId& b) {
    return a.message == b.message && a.index == b.index && a.sender == b.sender;
  }
  template <class H>
  friend H AbslHashValue(H h, const EdgeId& id) {
    return H::combine(std::move(h), id.sender, id.message, id.index);
  }
};

/// What the gradient of a tensor leads to at one worker.
struct Behind {
  /// Tensors that the worker had received.
  std::vector<EdgeId> received;
  /// Edges of the same worker: everything that they lead to follows too.
  std::vector<EdgeId> as;
};

/// Which tensors of one message: the message's number and the tensors' numbers within it,
/// ascending.
struct MessageEdges {
  std::uint64_t message = 0;
  std::vector<std::uint32_t> indexes;
};

}  // namespace sinew::internal
