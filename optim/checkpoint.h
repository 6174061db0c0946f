#pragma once

#include <cstdint>
#include <string>

#include "sinew/rpc/worker.h"

namespace sinew::optim {

/// A saved state of an optimizer and its parameters. Each owner has a part of it.
struct Checkpoint {
  /// Counts from 1 within a folder.
  std::uint64_t number = 0;
  /// What the program said when it was saved, e.g. how far it was.
  std::string note;
};

/// Allows optimizers to save at this worker and to load from it, in folders below `root`, an
/// existing folder of this host; a worker that has not called this refuses to, since the name of a
/// folder comes from another worker. Calling it again replaces the root. Throws RpcError
/// kInvalidArgument when `root` is no folder.
void serve_checkpoints(const Worker& worker, const std::string& root);
/// The same at current_worker().
void serve_checkpoints(const std::string& root);

}  // namespace sinew::optim
