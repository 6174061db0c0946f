#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include "absl/container/flat_hash_map.h"
#include "sinew/autograd/context_id.h"
#include "sinew/autograd/internal/context_work.h"
#include "sinew/autograd/internal/gradient_sums.h"
#include "sinew/autograd/internal/recv_node.h"

namespace sinew::internal {

/// The part of a backward pass that runs at one worker, over the part of its graph that the pass
/// reaches. Gradients enter at *entries* (the roots, and tensors that were sent) and leave at
/// leaves and at tensors that were received. Each node runs once, when all of its inputs are there;
/// LibTorch's engine runs them. Not thread-safe; sends nothing.
class LocalBackward {
 public:
  /// A leaf with its gradient, after the hooks of the tensor.
  struct Leaf {
    std::shared_ptr<torch::autograd::AccumulateGrad> node;
    at::Tensor gradient;
  };
  /// Gradients that are to be sent, by number of the edge. Some may be undefined.
  struct Outgoing {
    std::shared_ptr<RecvNode> node;
    std::vector<std::uint32_t> indexes;
    torch::autograd::variable_list gradients;
  };

  enum class Graph { kRelease, kRetain };

  /// Where gradients enter.
  struct Entry {
    /// Of what took the tensors along. Sums are added in the order of these, what is greater first.
    MessageName name;
    torch::autograd::edge_list edges;
  };
  using Entries = std::map<std::uint64_t, Entry>;

  /// Gradients will enter along all of `entries`. Throws RpcError kFailedPrecondition when they
  /// lead to a tensor that was received in another context.
  LocalBackward(Entries entries, const autograd::ContextId& context, Graph graph);

  /// The gradients of an entry: one for each of its edges, in order; an undefined one stands for
  /// zeros. Throws RpcError kInvalidArgument for an entry that there is not, or that has arrived.
  void arrive(std::uint64_t entry, torch::autograd::variable_list gradients);

  /// What becomes of gradients while the rest of run() still has to run.
  struct Early {
    /// Is given gradients for one worker: all that this run() has for it, or some of several.
    /// `receivers`: all that this run() has gradients for. Returns whether it has taken them; if
    /// not, run() returns them. Runs within a node of the engine, on the thread that called run().
    std::function<bool(Incarnation worker, std::vector<Outgoing>& gradients,
                       const std::set<Incarnation>& receivers)>
        send;
    /// Whether those for `worker` may leave one after the other, where they take long to compute.
    std::function<bool(Incarnation worker)> in_pieces;
    /// Whether a leaf is one of those whose gradients on_leaf takes, each as soon as it is
    /// complete. Null: none is.
    std::function<bool(const at::Tensor& leaf)> takes_leaf;
    /// Runs as `send` does, or on a thread of the engine's for another device.
    std::function<void(const at::Tensor& leaf, at::Tensor gradient)> on_leaf;
  };

  /// Runs all nodes whose inputs are complete, those first that gradients for other workers depend
  /// on. Throws what a node, a hook or `early` throws; the object is of no use then.
  std::vector<Outgoing> run(const Early& early);

  /// All entries have arrived and all nodes have run.
  bool done() const { return entries_.empty() && nodes_left_ == 0; }
  /// Those that were not taken while run() ran.
  std::vector<Leaf> take_leaves() { return std::move(leaves_); }
  /// Whether there will be a gradient for `leaf`.
  bool reaches(const at::Tensor& leaf) const;
  /// Entries that have not arrived.
  std::vector<std::uint64_t> missing() const;

 private:
  using Node = torch::autograd::Node;
  enum class Kind { kOperation, kLeaf, kReceived };
  struct State {
    Kind kind = Kind::kOperation;
    std::shared_ptr<Node> node;
    // Of an operation: its turn in a search that leaves each node behind those that it leads to.
    std::uint64_t number = 0;
    // Edges to this node whose gradient is not there yet.
    int waits = 0;
    // Something has arrived from outside of the stage that runs it; may all be undefined.
    bool entered = false;
    bool in_stage = false;
    // What the stage sends is counted from 1; the largest number of what depends on this. 0:
    // nothing does.
    std::uint64_t urgency = 0;
    bool finished = false;
    // Sums so far, by input; empty when there are none.
    torch::autograd::variable_list pending;
    // Of a received tensor: inputs that an edge of the graph leads to.
    std::vector<bool> used;
  };
  struct Arrived {
    std::uint64_t entry = 0;
    torch::autograd::edge_list edges;
    torch::autograd::variable_list gradients;
  };
  class EarlySends;
  class EarlyLeaves;
  class StageGraph;

  GradientSums search();
  /// The state of the node that the edge leads to, and whether that is new.
  std::pair<State*, bool> visit(const torch::autograd::Edge& edge);
  std::unique_ptr<State> make_state(const std::shared_ptr<Node>& node) const;
  std::vector<State*> take_stage();
  std::uint64_t urgency_of(const torch::autograd::Edge& edge) const;
  void run_stage(const std::vector<State*>& stage, EarlySends& early, EarlyLeaves& leaves);
  bool run_whole(const std::vector<State*>& stage);
  void finish(State& state, std::vector<Outgoing>& outgoing, EarlyLeaves& leaves);
  torch::autograd::variable_list take_gradients(State& state) const;
  void add(const GradientSums::Addend& addend, at::Tensor gradient);
  static at::Tensor take_pending(State& state, std::uint32_t input);
  static void add(State& state, std::uint32_t input, at::Tensor gradient);
  static void add(State& state, torch::autograd::variable_list gradients);
  static bool has_gradient(const State& state);

  const autograd::ContextId context_;
  const Graph graph_;
  absl::flat_hash_map<const Node*, std::unique_ptr<State>> states_;
  std::size_t nodes_left_ = 0;
  Entries entries_;
  GradientSums sums_;
  // Some of them have an addend.
  bool sums_begun_ = false;
  std::vector<Arrived> arrived_;
  std::vector<Leaf> leaves_;
  // The engine has run the hooks of what it captured.
  bool hooks_ran_ = false;
};

}  // namespace sinew::internal
