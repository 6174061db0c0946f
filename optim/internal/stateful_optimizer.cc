#include "sinew/optim/internal/stateful_optimizer.h"

#include <torch/serialize/archive.h>

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sinew::internal {

StatefulOptimizer::StatefulOptimizer(std::vector<torch::optim::OptimizerParamGroup> groups,
                                     std::unique_ptr<torch::optim::OptimizerOptions> defaults)
    : Optimizer(std::move(groups), std::move(defaults)) {
  std::size_t count = 0;
  for (const auto& group : param_groups_) count += group.params().size();
  states_.resize(count);
}

std::size_t StatefulOptimizer::state_bytes() const {
  std::size_t bytes = 0;
  for (const optim::ParameterState& state : states_) {
    for (const auto& [name, tensor] : state) bytes += tensor.nbytes();
  }
  return bytes;
}

void StatefulOptimizer::save(torch::serialize::OutputArchive& archive) const {
  archive.write("count", c10::IValue(static_cast<std::int64_t>(states_.size())));
  for (std::size_t i = 0; i < states_.size(); ++i) {
    torch::serialize::OutputArchive one(archive.compilation_unit());
    for (const auto& [name, tensor] : states_[i]) {
      // One that was looked for and not set.
      if (tensor.defined()) one.write(name, tensor, /*is_buffer=*/true);
    }
    archive.write(absl::StrCat("state", i), one);
  }
}

void StatefulOptimizer::load(torch::serialize::InputArchive& archive) {
  c10::IValue count;
  archive.read("count", count);
  TORCH_CHECK(count.toInt() == static_cast<std::int64_t>(states_.size()),
              "the file has the state of another number of parameters");
  for (std::size_t i = 0; i < states_.size(); ++i) {
    torch::serialize::InputArchive one;
    archive.read(absl::StrCat("state", i), one);
    states_[i].clear();
    for (const std::string& name : one.keys()) {
      one.read(name, states_[i][name], /*is_buffer=*/true);
    }
  }
}

}  // namespace sinew::internal
