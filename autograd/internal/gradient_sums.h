#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/function.h>

#include "absl/container/flat_hash_map.h"

#include "sinew/autograd/internal/ordered_sum.h"

namespace sinew::internal {

/// The inputs of the nodes of a graph that get several gradients, and the order in which those are
/// added. The order follows from the graph and from the order of its entries, not from which
/// gradient arrives first. Not thread-safe.
class GradientSums {
 public:
  using Node = torch::autograd::Node;

  /// One input of a node.
  struct Sum {
    Node* node;
    std::uint32_t input;
    OrderedSum so_far;
  };
  /// A gradient that is the one with that number of a sum; of none when `sum` is null.
  struct Addend {
    Sum* sum = nullptr;
    std::size_t number = 0;
  };

  struct Graph {
    /// The edges along which gradients enter, with a number that names the entry; in order.
    std::vector<std::pair<std::uint64_t, const torch::autograd::edge_list*>> entries;
    /// Those that run, each behind those that it leads to: in the order in which a depth-first
    /// search from the entries leaves them.
    std::vector<const Node*> operations;
    /// Nodes with inputs whose gradients may need an order, and from how many of them on they do.
    absl::flat_hash_map<const Node*, std::size_t> shared;
  };
  GradientSums() = default;
  explicit GradientSums(const Graph& graph);

  bool empty() const { return sums_.empty(); }
  /// What comes along edge `edge` of an entry.
  Addend of_entry(std::uint64_t entry, std::uint32_t edge) const;
  /// What comes out of an operation.
  Addend of_output(const Node* node, std::uint32_t output) const;
  /// LibTorch's engine, given the whole graph, adds in the same order by itself. It runs what was
  /// recorded last first, and adds what comes as it comes.
  bool engine_agrees() const { return engine_agrees_; }

 private:
  using Source = std::pair<const Node*, std::uint32_t>;
  using Sources = std::vector<Source>;

  bool engine_adds(const Sources& sources) const;

  std::deque<Sum> sums_;
  absl::flat_hash_map<std::pair<std::uint64_t, std::uint32_t>, Addend> of_entries_;
  absl::flat_hash_map<Source, Addend> of_outputs_;
  bool engine_agrees_ = true;
};

}  // namespace sinew::internal
