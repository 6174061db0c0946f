#pragma once

#include <functional>
#include <memory>

#include "ATen/core/Tensor.h"

// What LibTorch 1.13's reducer.hpp needs of a header that is not installed with it. Nothing of this
// is called: the library has its own.
namespace torch::distributed::autograd {

class DistAutogradContext {
 public:
  using GradCallback = std::function<bool(at::Tensor&)>;
};
using ContextPtr = std::shared_ptr<DistAutogradContext>;

}  // namespace torch::distributed::autograd
