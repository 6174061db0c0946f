#include "sinew/autograd/internal/stage_nodes.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <stdexcept>

#include "ATen/ops/zeros.h"

#include "sinew/autograd/internal/node_hooks.h"

namespace sinew::internal {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::variable_list;

namespace {

// The engine runs the node with the largest number first, of those that can run.
constexpr std::uint64_t kFirst = std::numeric_limits<std::uint64_t>::max();
// What is urgent comes before all that is not, and what is more urgent before what is less.
constexpr int kUrgencyShift = 42;
constexpr std::uint64_t kMaxUrgency = std::uint64_t{1} << 20;

}  // namespace

Collector::Collector(const torch::autograd::Node& like) : Node(kFirst) {
  for (std::uint32_t i = 0; i < like.num_inputs(); ++i) {
    input_metadata_.emplace_back(like.input_metadata(i));
  }
}

variable_list Collector::apply(variable_list&& inputs) {
  gradients = std::move(inputs);
  try {
    if (on_gradients != nullptr) on_gradients();
  } catch (const std::exception&) {
    throw;
  } catch (...) {
    // The engine's own state is not made for these.
    throw std::runtime_error("a hook threw something that is no std::exception");
  }
  return {};
}

AddendNode::AddendNode(const torch::autograd::Node& like, std::uint32_t input, edge_list next,
                       Add add)
    : Node(kFirst, std::move(next)), add_(std::move(add)) {
  input_metadata_.emplace_back(like.input_metadata(input));
}

variable_list AddendNode::apply(variable_list&& inputs) {
  add_(std::move(inputs[0]));
  return variable_list(num_outputs());
}

SumNode::SumNode(const torch::autograd::Node& like, std::uint32_t input, Edge next, Take take)
    : Node(kFirst, {std::move(next)}), take_(std::move(take)) {
  input_metadata_.emplace_back(like.input_metadata(input));
}

variable_list SumNode::apply(variable_list&&) { return {take_()}; }

Starter::Starter(edge_list started) : Node(kFirst, std::move(started)) {
  add_input_metadata(root());
}

at::Tensor Starter::root() { return at::zeros({}); }

Proxy::Proxy(std::shared_ptr<Node> node, edge_list next, Turn turn, Saved saved)
    : Node(turn.number + (std::min(turn.urgency, kMaxUrgency) << kUrgencyShift), std::move(next)),
      node_(std::move(node)),
      saved_(saved) {
  for (std::uint32_t i = 0; i < node_->num_inputs(); ++i) {
    input_metadata_.emplace_back(node_->input_metadata(i));
  }
}

// What the engine does around a node, for the node that stands behind this one.
variable_list Proxy::apply(variable_list&& inputs) {
  inputs = run_tensor_hooks(*node_, std::move(inputs));
  inputs = run_pre_hooks(*node_, std::move(inputs));
  if (saved_ == Saved::kRelease) node_->will_release_variables();
  variable_list outputs;
  if (node_->post_hooks().empty()) {
    outputs = (*node_)(std::move(inputs));
  } else {
    outputs = (*node_)(variable_list(inputs));
    outputs = run_post_hooks(*node_, std::move(outputs), inputs);
  }
  if (saved_ == Saved::kRelease) node_->release_variables();
  return outputs;
}

}  // namespace sinew::internal
