#pragma once

#include <torch/optim/optimizer.h>

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"

namespace sinew::optim {

/// What an optimizer remembers of one parameter, by name.
using ParameterState = std::map<std::string, at::Tensor>;

}  // namespace sinew::optim

namespace sinew::internal {

/// An optimizer whose state is tensors of parameters.
class StatefulOptimizer : public torch::optim::Optimizer {
 public:
  StatefulOptimizer(std::vector<torch::optim::OptimizerParamGroup> groups,
                    std::unique_ptr<torch::optim::OptimizerOptions> defaults);

  std::size_t state_bytes() const;
  void save(torch::serialize::OutputArchive& archive) const override;
  /// Throws c10::Error when the archive is of another number of parameters.
  void load(torch::serialize::InputArchive& archive) override;

 protected:
  // In the order of the parameters.
  std::vector<optim::ParameterState> states_;
};

}  // namespace sinew::internal
