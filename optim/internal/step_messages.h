#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "sinew/autograd/context_id.h"
#include "sinew/optim/options.h"
#include "sinew/rpc/wire/codec.h"
#include "sinew/rref/rref.h"

// What trainers and owners of parameters tell each other.
namespace sinew::internal {

/// What one owner has of an optimizer.
using ParametersByGroup = std::vector<std::vector<RRef<at::Tensor>>>;

/// The parameters of one group that one owner has, and the group's options at that owner.
struct OptimizerGroup {
  std::vector<RRef<at::Tensor>> parameters;
  RRef<optim::Options> options;
};

/// One step of one trainer. Its repetitions have the same id.
struct StepId {
  /// The trainer's incarnation, and the number of the step among all of the trainer's.
  std::uint64_t trainer = 0;
  std::uint64_t number = 0;
};

/// What parts an optimizer has: DistributedOptimizer::rebind() makes another one. Of two that were
/// made at once the greater one counts.
struct Binding {
  std::uint64_t number = 0;
  std::uint64_t draw = 0;

  friend bool operator==(const Binding& a, const Binding& b) {
    return a.number == b.number && a.draw == b.draw;
  }
  friend bool operator<(const Binding& a, const Binding& b) {
    return std::pair(a.number, a.draw) < std::pair(b.number, b.draw);
  }
};

enum class StepMode : std::int32_t {
  kApply = 0,
  /// Says what became of the step; one that was not applied never will be.
  kAsk = 1,
};

struct StepRequest {
  autograd::ContextId context;
  StepId id;
  /// The trainer will never repeat a step with a smaller number, nor wants one to be applied that
  /// comes late.
  std::uint64_t live_from = 0;
  StepMode mode = StepMode::kApply;
  Binding binding = {};
};

enum class StepOutcome : std::int32_t {
  kApplied = 0,
  /// Nothing was changed.
  kRefused = 1,
  /// Some parameters were changed.
  kBroken = 2,
};

struct StepAnswer {
  StepOutcome outcome = StepOutcome::kRefused;
  /// Parameters that had a gradient.
  std::uint64_t updated = 0;
  /// Counts the steps of all optimizers of the owner.
  std::uint64_t order = 0;
  /// As OwnerStep's.
  std::uint64_t version = 0;
  std::int32_t code = 0;
  std::string error;
};

}  // namespace sinew::internal

SINEW_STRUCT(sinew::internal::OptimizerGroup, parameters, options);
SINEW_STRUCT(sinew::internal::Binding, number, draw);
SINEW_STRUCT(sinew::internal::StepId, trainer, number);
SINEW_STRUCT(sinew::internal::StepRequest, context, id, live_from, mode, binding);
SINEW_STRUCT(sinew::internal::StepAnswer, outcome, updated, order, version, code, error);
