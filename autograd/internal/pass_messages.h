#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sinew/autograd.pb.h"
#include "sinew/autograd/context_id.h"
#include "sinew/autograd/internal/edge_gradients.h"
#include "sinew/autograd/internal/edge_id.h"
#include "sinew/autograd/internal/lineage.h"
#include "sinew/autograd/internal/pass_id.h"
#include "sinew/rpc/wire/bounded_parse.h"
#include "sinew/rpc/wire/value_reader.h"
#include "sinew/rpc/wire/value_writer.h"

namespace sinew::internal {

/// What workers ask of each other for backward passes.
inline constexpr std::string_view kRunMethod = "sinew.autograd.run";
inline constexpr std::string_view kGradientsMethod = "sinew.autograd.gradients";
inline constexpr std::string_view kFactsMethod = "sinew.autograd.facts";
inline constexpr std::string_view kBackwardMethod = "sinew.autograd.backward";

// Between the protocol buffers of protos/sinew/autograd.proto and what the layer works with.

void write_context(const autograd::ContextId& id, proto::AutogradContext& out);
autograd::ContextId read_context(const proto::AutogradContext& context);

void write_pass(const autograd::ContextId& context, const PassId& id, proto::AutogradPass& out);
PassId read_pass(const proto::AutogradPass& pass);

void write_fact(const Lineage::Fact& fact, proto::AutogradFact& out);
Lineage::Fact read_fact(const proto::AutogradFact& fact);
void write_edge(const EdgeId& edge, proto::AutogradEdge& out);
EdgeId read_edge(const proto::AutogradEdge& edge);

using RepeatedGradients = google::protobuf::RepeatedPtrField<proto::AutogradGradients>;

/// Throws RpcError kInvalidArgument unless messages are distinct and indexes ascend.
std::vector<MessageEdges> read_edges(const RepeatedGradients& messages);
void write_edges(const std::vector<MessageEdges>& edges, RepeatedGradients& out);
void write_edges(const std::vector<EdgeGradients>& gradients, RepeatedGradients& out);

/// The tensors that follow, in order; `next` gives the reader of each further one. Throws RpcError
/// kInvalidArgument.
template <class Next>
std::vector<EdgeGradients> read_gradients(const RepeatedGradients& messages, Next next) {
  std::vector<EdgeGradients> gradients;
  for (MessageEdges& edges : read_edges(messages)) {
    EdgeGradients& one = gradients.emplace_back();
    one.edges = std::move(edges);
    for (std::size_t i = 0; i < one.edges.indexes.size(); ++i) {
      one.gradients.push_back(next().tensor());
    }
  }
  return gradients;
}

/// Throws RpcError kInvalidArgument.
template <class Message>
Message parse_message(const ValueReader& reader) {
  Message message;
  const std::string_view bytes = reader.binary();
  if (const absl::Status parsed = parse_bounded(bytes, message); !parsed.ok()) {
    reader.fail(absl::StrCat("a message about gradients: ", parsed.message()));
  }
  return message;
}

}  // namespace sinew::internal
