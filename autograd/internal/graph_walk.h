#pragma once

#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "sinew/autograd/context_id.h"
#include "sinew/autograd/internal/edge_id.h"
#include "sinew/autograd/internal/lineage.h"
#include "sinew/rpc/base/ids.h"

namespace sinew::internal {

/// Finds out what lies behind the tensors that one worker sends in one context, in its own graph.
/// However much of the graph they share, a node is looked at a few times, not once for each tensor
/// behind which it lies: a node where two walks meet, a *junction*, gets a fact of its own, as if
/// it were sent, and later walks end there. The nodes must stay: the edges that are sent hold them.
/// Not thread-safe.
class GraphWalk {
 public:
  GraphWalk(Incarnation self, const autograd::ContextId& context)
      : self_(self), context_(context) {}

  /// Facts about an edge that is sent as `id`, which comes last, and about junctions that were
  /// found on the way. From then on walks end at its node.
  std::vector<Lineage::Fact> send(const EdgeId& id, const torch::autograd::Edge& edge);
  /// What the gradients that flow along `edges` lead to at this worker: tensors that were received
  /// in the context, and what was sent. Tensors received in other contexts are skipped: a pass that
  /// comes across one says so.
  Behind behind(const torch::autograd::edge_list& edges) const;

  /// How many nodes were looked at for send().
  std::uint64_t looked_at() const { return looked_at_; }
  void clear();

 private:
  using Node = torch::autograd::Node;
  struct Walk;

  /// Nothing: the node leads nowhere.
  const EdgeId* junction(const Node* node, std::vector<Lineage::Fact>& facts);

  const Incarnation self_;
  const autograd::ContextId context_;
  // Nodes behind which everything is known: the edge that knows it.
  absl::flat_hash_map<const Node*, EdgeId> known_;
  // Nodes that walks have reached.
  absl::flat_hash_set<const Node*> seen_;
  // Of these, such that lead to nothing that was received.
  absl::flat_hash_set<const Node*> ends_;
  std::uint64_t junctions_ = 0;
  std::uint64_t looked_at_ = 0;
};

}  // namespace sinew::internal
