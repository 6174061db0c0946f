#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sinew/optim/grad_scaler_state.h"
#include "sinew/rpc/wire/codec.h"

// What trainers and owners tell each other of checkpoints.
namespace sinew::internal {

/// A part of a checkpoint: those of one checkpoint have the same.
struct CheckpointId {
  /// Counts from 1 within a folder.
  std::uint64_t number = 0;
  /// Drawn by each save().
  std::uint64_t save = 0;

  friend bool operator==(const CheckpointId& a, const CheckpointId& b) {
    return a.number == b.number && a.save == b.save;
  }
  friend bool operator<(const CheckpointId& a, const CheckpointId& b) {
    return std::pair(a.number, a.save) < std::pair(b.number, b.save);
  }
};

/// Which one of which folder.
struct CheckpointPlace {
  std::string folder;
  CheckpointId id;
};

/// What the program that saves says of where it is.
struct CheckpointNotes {
  std::string note;
  std::optional<optim::GradScalerState> grad_scaler;
};

/// What an owner has in a folder.
struct CheckpointParts {
  /// The greatest number that any file has, whole or not; 0: there is none.
  std::uint64_t last = 0;
  /// Rising.
  std::vector<CheckpointId> whole;
};

}  // namespace sinew::internal

SINEW_STRUCT(sinew::internal::CheckpointId, number, save);
SINEW_STRUCT(sinew::internal::CheckpointPlace, folder, id);
SINEW_STRUCT(sinew::internal::CheckpointNotes, note, grad_scaler);
SINEW_STRUCT(sinew::internal::CheckpointParts, last, whole);
