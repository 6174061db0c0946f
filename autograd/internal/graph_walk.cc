#include "sinew/autograd/internal/graph_walk.h"

#include <typeinfo>
#include <utility>

#include "sinew/autograd/internal/recv_node.h"

namespace sinew::internal {

using torch::autograd::Edge;
using torch::autograd::edge_list;

namespace {

// Junctions share the range of numbers with messages; the numbers of messages never get this high.
constexpr std::uint64_t kFirstJunction = std::uint64_t{1} << 63;

}  // namespace

/// One walk, from edges to what is known.
struct GraphWalk::Walk {
  explicit Walk(const GraphWalk& of) : all(of) {}

  void visit(const Edge& edge) {
    const Node* node = edge.function.get();
    if (node == nullptr) return;
    // typeid is cheaper than dynamic_cast, and this is asked for each node.
    if (typeid(*node) == typeid(RecvNode)) {
      const auto& recv = static_cast<const RecvNode&>(*node);
      const EdgeId id = recv.edge(edge.input_nr);
      if (recv.context() == all.context_ && received.insert(id).second) {
        behind.received.push_back(id);
      }
      return;
    }
    if (!seen.insert(node).second) return;
    const auto found = all.known_.find(node);
    if (found != all.known_.end()) {
      behind.as.push_back(found->second);
    } else if (node->num_outputs() > 0 && !all.ends_.contains(node)) {
      open.push_back(node);
    }
  }
  const Node* next() {
    if (open.empty()) return nullptr;
    const Node* node = open.back();
    open.pop_back();
    return node;
  }
  void run() {
    while (const Node* node = next()) {
      for (const Edge& edge : node->next_edges()) visit(edge);
    }
  }

  const GraphWalk& all;
  Behind behind;
  absl::flat_hash_set<EdgeId> received;
  absl::flat_hash_set<const Node*> seen;
  std::vector<const Node*> open;
};

Behind GraphWalk::behind(const edge_list& edges) const {
  Walk walk(*this);
  for (const Edge& edge : edges) walk.visit(edge);
  walk.run();
  return std::move(walk.behind);
}

const EdgeId* GraphWalk::junction(const Node* node, std::vector<Lineage::Fact>& facts) {
  Walk walk(*this);
  for (const Edge& edge : node->next_edges()) walk.visit(edge);
  walk.run();
  looked_at_ += walk.seen.size();
  if (walk.behind.received.empty() && walk.behind.as.empty()) {
    // The whole of it, which later walks need not come to.
    ends_.insert(node);
    ends_.insert(walk.seen.begin(), walk.seen.end());
    return nullptr;
  }
  const EdgeId id{self_, kFirstJunction + junctions_++, 0};
  facts.emplace_back(id, std::move(walk.behind));
  return &known_.emplace(node, id).first->second;
}

std::vector<Lineage::Fact> GraphWalk::send(const EdgeId& id, const Edge& edge) {
  std::vector<Lineage::Fact> facts;
  Walk walk(*this);
  walk.visit(edge);
  while (const Node* node = walk.next()) {
    if (seen_.contains(node)) {
      if (const EdgeId* at = junction(node, facts)) walk.behind.as.push_back(*at);
      continue;
    }
    for (const Edge& next : node->next_edges()) walk.visit(next);
  }
  looked_at_ += walk.seen.size();
  seen_.insert(walk.seen.begin(), walk.seen.end());
  facts.emplace_back(id, std::move(walk.behind));
  // Leaves and received tensors are looked up faster than an edge that stands for them.
  const Node* node = edge.function.get();
  if (node != nullptr && node->num_outputs() > 0) known_.try_emplace(node, id);
  return facts;
}

void GraphWalk::clear() {
  known_.clear();
  seen_.clear();
  ends_.clear();
}

}  // namespace sinew::internal
