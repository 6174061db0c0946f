#pragma once

#include <vector>

#include "ATen/core/Tensor.h"
#include "c10/core/Device.h"
#include "sinew/autograd/internal/edge_id.h"

namespace sinew::internal {

/// Gradients of tensors of one message, as they travel back to its sender.
struct EdgeGradients {
  MessageEdges edges;
  /// One for each index; some may be undefined.
  std::vector<at::Tensor> gradients;
  /// To be sent: where each one is to be at the receiver. Empty for received ones.
  std::vector<c10::Device> targets = {};
};

}  // namespace sinew::internal
