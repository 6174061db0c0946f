#include "sinew/autograd/internal/graph_walk.h"

#include <typeinfo>

#include "absl/container/flat_hash_set.h"
#include "sinew/autograd/internal/recv_node.h"

namespace sinew::internal {

using torch::autograd::Edge;
using torch::autograd::Node;

Behind behind(const torch::autograd::edge_list& edges, const autograd::ContextId& context,
              const KnownNodes& known) {
  Behind result;
  absl::flat_hash_set<EdgeId> received;
  absl::flat_hash_set<const Node*> seen;
  std::vector<const Node*> open;
  const auto visit = [&](const Edge& edge) {
    const Node* node = edge.function.get();
    if (node == nullptr) return;
    // typeid is cheaper than dynamic_cast, and this is asked for each node.
    if (typeid(*node) == typeid(RecvNode)) {
      const auto& recv = static_cast<const RecvNode&>(*node);
      const EdgeId id = recv.edge(edge.input_nr);
      if (recv.context() == context && received.insert(id).second) result.received.push_back(id);
      return;
    }
    if (!seen.insert(node).second) return;
    const auto found = known.find(node);
    if (found != known.end()) {
      result.as.push_back(found->second);
    } else {
      open.push_back(node);
    }
  };
  for (const Edge& edge : edges) visit(edge);
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    for (const Edge& edge : node->next_edges()) visit(edge);
  }
  return result;
}

}  // namespace sinew::internal
