#pragma once

#include <vector>

#include "ATen/core/Tensor.h"
#include "sinew/autograd/context.h"
#include "sinew/optim/internal/layer.h"
#include "sinew/rpc/call_options.h"
#include "sinew/rref/rref.h"

namespace sinew::optim {

struct ClipGradOptions {
  /// Of the p-norm: more than 0, or infinity for the largest absolute value.
  double norm_type = 2;
  /// Whether a norm that is no finite number is an error (kOutOfRange), and nothing is changed;
  /// otherwise gradients become what LibTorch makes of them.
  bool error_if_nonfinite = false;
};

/// Scales the gradients that the context has for these parameters, wherever they are, so that their
/// norm, of all of them as one vector, is `max_norm` at most, as
/// torch::nn::utils::clip_grad_norm_ does. Returns the norm that they had. Parameters without a
/// gradient count for nothing.
///
///     sinew::autograd::backward(context, {loss});
///     sinew::optim::clip_grad_norm_(context, parameters, 1.0);
///     optimizer.step(context);
///
/// When a data-parallel module (sinew/parallel) has reduced some of these gradients in the context,
/// all of its ranks call it: the largest of their norms counts on all of them, and is returned, so
/// that all scale by one factor, or all throw. Otherwise ranks of which each has an embedding's
/// gradient of its own would part. When they pass another `max_norm` or other options all throw
/// kInvalidArgument, and nothing is scaled.
///
/// All owners are asked at once for the norms of theirs, and then, if need be, told at once by how
/// much to scale. Blocks. Throws RpcError; when an owner could not be told, some gradients are
/// scaled and others are not: give up the context. kInvalidArgument for an empty reference, a
/// parameter that is there twice (a weight that is tied is given once), or a norm that is none.
double clip_grad_norm_(const autograd::Context& context,
                       const std::vector<RRef<at::Tensor>>& parameters, double max_norm,
                       const ClipGradOptions& how = {}, const CallOptions& options = {});

}  // namespace sinew::optim
