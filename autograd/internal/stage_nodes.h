#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <torch/csrc/autograd/function.h>

// What LocalBackward gives to LibTorch's engine in the place of the nodes of a graph, when only a
// part of that can run.
namespace sinew::internal {

/// Takes gradients for one node out of a stage.
class Collector final : public torch::autograd::Node {
 public:
  explicit Collector(const torch::autograd::Node& like);

  torch::autograd::variable_list gradients;
  /// Runs when they are there; may be null.
  std::function<void()> on_gradients;

 private:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& inputs) override;
};

/// Takes one gradient for an input of a node out of a stage, where more are added to it than the
/// engine would add in one order.
class AddendNode final : public torch::autograd::Node {
 public:
  using Add = std::function<void(at::Tensor gradient)>;
  /// `next`: a SumNode that waits for it, or nothing.
  AddendNode(const torch::autograd::Node& like, std::uint32_t input,
             torch::autograd::edge_list next, Add add);

 private:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& inputs) override;
  const Add add_;
};

/// Waits for the addends of an input that a stage brings, and hands their sum on.
class SumNode final : public torch::autograd::Node {
 public:
  using Take = std::function<at::Tensor()>;
  SumNode(const torch::autograd::Node& like, std::uint32_t input, torch::autograd::Edge next,
          Take take);

 private:
  torch::autograd::variable_list apply(torch::autograd::variable_list&&) override;
  const Take take_;
};

/// Starts nodes for which nothing but undefined gradients came: the engine cannot take those as
/// roots, but passes them on within a graph.
class Starter final : public torch::autograd::Node {
 public:
  explicit Starter(torch::autograd::edge_list started);
  static at::Tensor root();

 private:
  torch::autograd::variable_list apply(torch::autograd::variable_list&&) override {
    return torch::autograd::variable_list(num_outputs());
  }
};

/// Runs a node of the graph in its place in a stage.
class Proxy final : public torch::autograd::Node {
 public:
  enum class Saved { kRelease, kKeep };
  /// What is more urgent runs earlier; then, what has the greater number.
  struct Turn {
    std::uint64_t urgency = 0;
    std::uint64_t number = 0;
  };
  Proxy(std::shared_ptr<Node> node, torch::autograd::edge_list next, Turn turn, Saved saved);
  std::string name() const override { return node_->name(); }

 private:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& inputs) override;

  const std::shared_ptr<Node> node_;
  const Saved saved_;
};

}  // namespace sinew::internal
