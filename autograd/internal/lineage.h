#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "sinew/autograd/internal/edge_id.h"

namespace sinew::internal {

/// What one worker knows about the graph of a context across all workers: for tensors that were
/// sent, what lies behind them at their senders. Facts travel with calls and replies; those that
/// did not come are asked for. Pure; not thread-safe.
class Lineage {
 public:
  using Fact = std::pair<EdgeId, Behind>;

  /// Adds a fact that `from` told, or that this worker knows by itself. Returns false when there
  /// are too many already; known ones are ignored.
  bool add(const EdgeId& edge, Behind behind, Incarnation from);
  const Behind* find(const EdgeId& edge) const;

  /// Facts that `peer` may not know, at most `limit`; each is handed out once per peer.
  std::vector<Fact> news_for(Incarnation peer, std::size_t limit);

  std::size_t size() const { return facts_.size(); }

 private:
  struct Entry {
    EdgeId edge;
    Incarnation from;
  };
  absl::flat_hash_map<EdgeId, Behind> facts_;
  // In the order in which they came.
  std::vector<Entry> log_;
  absl::flat_hash_map<Incarnation, std::size_t> told_;
};

/// The search for all edges that a backward pass sends gradients along, from what lies behind its
/// roots.
class LiveEdges {
 public:
  explicit LiveEdges(Incarnation self) : self_(self) {}

  /// What the gradients of the roots lead to.
  void start(const Behind& roots);
  /// Follows what `lineage` knows. Returns the edges about which it knows nothing, by the worker
  /// that does; empty: the search is complete.
  std::map<Incarnation, std::vector<EdgeId>> follow(const Lineage& lineage);

  /// By sender, each once; messages and indexes ascending.
  std::map<Incarnation, std::vector<MessageEdges>> by_sender() const;
  /// Whether all gradients that come for this worker's messages come from the worker that searches.
  bool only_from_self(Incarnation sender) const { return !from_others_.contains(sender); }

 private:
  void visit(const Behind& behind, Incarnation receiver);

  const Incarnation self_;

  // Those whose gradient is sent.
  absl::flat_hash_set<EdgeId> live_;
  // Those that have been looked behind, or are going to be.
  absl::flat_hash_set<EdgeId> seen_;
  std::vector<EdgeId> open_;
  // Workers with messages whose receiver is not the one that searches.
  absl::flat_hash_set<Incarnation> from_others_;
};

}  // namespace sinew::internal
