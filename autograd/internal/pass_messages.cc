#include "sinew/autograd/internal/pass_messages.h"

#include "absl/container/flat_hash_set.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {

void write_context(const autograd::ContextId& id, proto::AutogradContext& out) {
  out.set_creator(id.creator.value);
  out.set_serial(id.serial);
  out.set_secret(id.secret);
}

autograd::ContextId read_context(const proto::AutogradContext& context) {
  return {Incarnation{context.creator()}, context.serial(), context.secret()};
}

void write_pass(const autograd::ContextId& context, const PassId& id, proto::AutogradPass& out) {
  write_context(context, *out.mutable_context());
  out.set_initiator(id.initiator.value);
  out.set_serial(id.serial);
}

PassId read_pass(const proto::AutogradPass& pass) {
  return {Incarnation{pass.initiator()}, pass.serial()};
}

void write_edge(const EdgeId& edge, proto::AutogradEdge& out) {
  out.set_sender(edge.sender.value);
  out.set_message(edge.message);
  out.set_index(edge.index);
}

EdgeId read_edge(const proto::AutogradEdge& edge) {
  return {Incarnation{edge.sender()}, edge.message(), edge.index()};
}

void write_fact(const Lineage::Fact& fact, proto::AutogradFact& out) {
  write_edge(fact.first, *out.mutable_edge());
  for (const EdgeId& edge : fact.second.received) write_edge(edge, *out.add_received());
  for (const EdgeId& edge : fact.second.as) write_edge(edge, *out.add_as());
}

Lineage::Fact read_fact(const proto::AutogradFact& fact) {
  Behind behind;
  for (const auto& edge : fact.received()) behind.received.push_back(read_edge(edge));
  for (const auto& edge : fact.as()) behind.as.push_back(read_edge(edge));
  return {read_edge(fact.edge()), std::move(behind)};
}

std::vector<MessageEdges> read_edges(const RepeatedGradients& messages) {
  std::vector<MessageEdges> result;
  absl::flat_hash_set<std::uint64_t> seen;
  for (const proto::AutogradGradients& message : messages) {
    MessageEdges& edges = result.emplace_back();
    edges.message = message.message();
    edges.indexes.assign(message.indexes().begin(), message.indexes().end());
    bool valid = seen.insert(edges.message).second && !edges.indexes.empty();
    for (std::size_t i = 1; i < edges.indexes.size(); ++i) {
      valid = valid && edges.indexes[i - 1] < edges.indexes[i];
    }
    if (!valid) {
      throw RpcError(ErrorCode::kInvalidArgument,
                     "a list of gradients names a message twice, or its edges out of order");
    }
  }
  return result;
}

void write_edges(const std::vector<MessageEdges>& edges, RepeatedGradients& out) {
  for (const MessageEdges& one : edges) {
    proto::AutogradGradients& message = *out.Add();
    message.set_message(one.message);
    message.mutable_indexes()->Add(one.indexes.begin(), one.indexes.end());
  }
}

void write_edges(const std::vector<EdgeGradients>& gradients, RepeatedGradients& out) {
  for (const EdgeGradients& one : gradients) write_edges({one.edges}, out);
}

}  // namespace sinew::internal
