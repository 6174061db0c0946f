#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "sinew/optim/grad_scaler_state.h"
#include "sinew/optim/internal/layer.h"
#include "sinew/rpc/worker.h"

namespace sinew::optim {

/// A saved state of an optimizer and its parameters. Each owner has a part of it.
struct Checkpoint {
  /// Counts from 1 within a folder.
  std::uint64_t number = 0;
  /// What the program said when it was saved, e.g. how far it was.
  std::string note;
  /// If the program said so (SaveOptions::grad_scaler).
  std::optional<GradScalerState> grad_scaler;
};

/// How DistributedOptimizer::save() does it.
struct SaveOptions {
  SaveOptions() = default;
  /// So that save("run7", "epoch 3") says it all.
  SaveOptions(std::string text) : note(std::move(text)) {}  // NOLINT
  SaveOptions(const char* text) : note(text) {}             // NOLINT

  /// What load() returns with it; up to 4096 bytes.
  std::string note;
  /// Where the program's GradScaler is: what Checkpoint::grad_scaler has.
  std::optional<GradScalerState> grad_scaler;
  /// How many checkpoints stay in the folder, the new one among them: a file of the last one may be
  /// damaged later. At least 1.
  std::size_t kept = 2;
};

/// Allows optimizers to save at this worker and to load from it, in folders below `root`, an
/// existing folder of this host; a worker that has not called this refuses to, since the name of a
/// folder comes from another worker. Calling it again replaces the root. Throws RpcError
/// kInvalidArgument when `root` is no folder.
void serve_checkpoints(const Worker& worker, const std::string& root);
/// The same at current_worker().
void serve_checkpoints(const std::string& root);

}  // namespace sinew::optim
