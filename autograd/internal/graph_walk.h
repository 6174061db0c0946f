#pragma once

#include <torch/csrc/autograd/function.h>

#include "absl/container/flat_hash_map.h"
#include "sinew/autograd/context_id.h"
#include "sinew/autograd/internal/edge_id.h"

namespace sinew::internal {

/// Nodes behind which everything is known: the edge that knows it.
using KnownNodes = absl::flat_hash_map<const torch::autograd::Node*, EdgeId>;

/// What the gradients that flow along `edges` lead to at this worker. Ends at tensors that were
/// received in `context` and at `known` nodes. Tensors received in other contexts are skipped: a
/// pass that comes across one says so.
Behind behind(const torch::autograd::edge_list& edges, const autograd::ContextId& context,
              const KnownNodes& known);

}  // namespace sinew::internal
