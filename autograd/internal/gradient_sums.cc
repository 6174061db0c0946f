#include "sinew/autograd/internal/gradient_sums.h"

#include "absl/container/flat_hash_set.h"

namespace sinew::internal {

using torch::autograd::Edge;
using torch::autograd::edge_list;

namespace {

/// Whether the engine runs all of them in the order of their numbers: what leads to a node has a
/// greater one than the node, so that the node with the greatest number can always run.
bool runs_by_number(const std::vector<const torch::autograd::Node*>& operations) {
  const absl::flat_hash_set<const torch::autograd::Node*> all(operations.begin(), operations.end());
  for (const torch::autograd::Node* node : operations) {
    for (const Edge& edge : node->next_edges()) {
      if (edge.is_valid() && all.contains(edge.function.get()) &&
          edge.function->sequence_nr() >= node->sequence_nr()) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace

GradientSums::GradientSums(const Graph& graph) {
  if (graph.shared.empty()) return;
  struct Input {
    Node* node = nullptr;
    std::vector<std::pair<std::uint64_t, std::uint32_t>> entries;
    Sources outputs;
  };
  absl::flat_hash_map<Source, Input> inputs;
  const auto input_of = [&](const Edge& edge) -> Input* {
    if (!edge.is_valid() || !graph.shared.contains(edge.function.get())) return nullptr;
    Input& input = inputs[{edge.function.get(), edge.input_nr}];
    input.node = edge.function.get();
    return &input;
  };
  // What was recorded last comes first, as in the engine.
  for (auto entry = graph.entries.rbegin(); entry != graph.entries.rend(); ++entry) {
    for (std::uint32_t i = 0; i < entry->second->size(); ++i) {
      if (Input* input = input_of((*entry->second)[i]))
        input->entries.emplace_back(entry->first, i);
    }
  }
  for (auto node = graph.operations.rbegin(); node != graph.operations.rend(); ++node) {
    const edge_list& edges = (*node)->next_edges();
    for (std::uint32_t i = 0; i < edges.size(); ++i) {
      if (Input* input = input_of(edges[i])) input->outputs.emplace_back(*node, i);
    }
  }
  for (const auto& [key, input] : inputs) {
    const std::size_t count = input.entries.size() + input.outputs.size();
    if (count < graph.shared.at(input.node)) continue;
    Sum& sum = sums_.emplace_back(Sum{input.node, key.second, OrderedSum(count)});
    std::size_t number = 0;
    for (const auto& source : input.entries) of_entries_.emplace(source, Addend{&sum, number++});
    for (const Source& source : input.outputs) of_outputs_.emplace(source, Addend{&sum, number++});
    engine_agrees_ = engine_agrees_ && input.entries.empty() && engine_adds(input.outputs);
  }
  engine_agrees_ = engine_agrees_ && (sums_.empty() || runs_by_number(graph.operations));
}

bool GradientSums::engine_adds(const Sources& sources) const {
  for (std::size_t i = 1; i < sources.size(); ++i) {
    const auto& [before, output_before] = sources[i - 1];
    const auto& [node, output] = sources[i];
    if (node != before && node->sequence_nr() >= before->sequence_nr()) return false;
  }
  return true;
}

GradientSums::Addend GradientSums::of_entry(std::uint64_t entry, std::uint32_t edge) const {
  const auto found = of_entries_.find({entry, edge});
  return found == of_entries_.end() ? Addend() : found->second;
}

GradientSums::Addend GradientSums::of_output(const Node* node, std::uint32_t output) const {
  const auto found = of_outputs_.find({node, output});
  return found == of_outputs_.end() ? Addend() : found->second;
}

}  // namespace sinew::internal
