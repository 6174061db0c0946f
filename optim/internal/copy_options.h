#pragma once

#include <vector>

#include "sinew/optim/options.h"
#include "sinew/rpc/peer.h"
#include "sinew/rref/rref.h"

namespace sinew::internal {

/// Makes the options at each of the owners, and waits until all are there: by owner, then in the
/// order given. Throws what the first one failed with: RpcError kUnimplemented that names the
/// worker, the optimizer that it does not serve, and what to do.
std::vector<std::vector<RRef<optim::Options>>> copy_options(
    const std::vector<Peer>& owners, const std::vector<optim::Options>& options);

}  // namespace sinew::internal
