#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "sinew/optim/internal/step_messages.h"
#include "sinew/rpc/wire/codec.h"
#include "sinew/rref/rref.h"

// What an owner of parameters tells its standby: changes, in the order in which they were made.
namespace sinew::internal {

/// Changes of one owner are numbered from 0, and the first one is a snapshot.
struct ChangeId {
  /// Drawn by the standby.
  std::uint64_t stream = 0;
  std::uint64_t number = 0;
};

/// A step that the owner has applied.
struct MirroredStep {
  StepId id;
  std::uint64_t live_from = 0;
  StepAnswer answer;
  /// Of the parameters that had a gradient, by their positions in the owner's part.
  std::vector<std::uint64_t> positions;
  std::vector<at::Tensor> gradients;
};

/// The answers that an owner remembers of one trainer, by the numbers of steps.
struct TrainerAnswers {
  std::uint64_t trainer = 0;
  std::uint64_t live_from = 0;
  std::vector<std::uint64_t> numbers;
  std::vector<StepAnswer> answers;
};

/// What an owner's part of the optimizer is made of; that of its standby is made of the same.
struct OwnerMake {
  std::string optimizer;
  std::uint64_t groups = 0;
  /// As OptimizedParameter::describe() says it.
  std::vector<std::string> parameters;
};

/// All that an owner has.
struct OwnerSnapshot {
  /// By which the owner's parts of checkpoints are found.
  std::string name;
  OwnerMake make;
  /// Of the groups; they live at the standby.
  std::vector<RRef<optim::Options>> options;
  std::vector<TrainerAnswers> answers;
  /// The StepAnswer::order of the owner's last step.
  std::uint64_t order = 0;
  /// As in a checkpoint, without the tensors that were added with keep().
  at::Tensor state;
};

enum class FollowOutcome : std::int32_t {
  kFollowed = 0,
  /// The standby is the owner now, so the change is none of what there is.
  kTookOver = 1,
};

}  // namespace sinew::internal

SINEW_STRUCT(sinew::internal::ChangeId, stream, number);
SINEW_STRUCT(sinew::internal::MirroredStep, id, live_from, answer, positions, gradients);
SINEW_STRUCT(sinew::internal::TrainerAnswers, trainer, live_from, numbers, answers);
SINEW_STRUCT(sinew::internal::OwnerMake, optimizer, groups, parameters);
SINEW_STRUCT(sinew::internal::OwnerSnapshot, name, make, options, answers, order, state);
