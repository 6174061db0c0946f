#pragma once

#include <vector>

#include "ATen/core/Tensor.h"

namespace rl {

struct PolicyImpl;

/// Actions for several states, and what it takes to compute their probabilities once more.
struct Decision {
  /// Float, {n, 4}.
  at::Tensor states;
  /// What dropout made of the hidden units: PolicyImpl::draw_dropout().
  at::Tensor dropout;
  /// 0 or 1; int64, {n}.
  at::Tensor actions;
};

/// Draws an action for each row of `states`. Keeps no autograd graph: one for each call would cost
/// more than the decision.
Decision decide(PolicyImpl& policy, const at::Tensor& states);
/// How probable these actions were, {n}, with a graph: one pass over the states of all decisions.
/// Its gradients are those that graphs of the single decisions would give, as long as the policy
/// has not learned since.
at::Tensor probabilities_of(PolicyImpl& policy, const std::vector<Decision>& decisions);

}  // namespace rl
