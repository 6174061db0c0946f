#pragma once

#include <string>

#include "ATen/core/Tensor.h"
#include "sinew/optim/options.h"

// The options of an optimizer, in files of its state and in texts.
namespace sinew::internal {

/// As bytes.
at::Tensor write_options(const optim::Options& options);
/// Equal for equal ones, and for people: "SGD with lr 0.1 (0.1, 0.9, 0, 0, false)", which are the
/// fields in order.
std::string text_of(const optim::Options& options);

/// What an optimizer that has `now` goes on with when it loads the state of one that had these: the
/// saved ones, as in PyTorch. Where it keeps what that one did not
/// (OptimizerRules::check_change()), its own, with the saved rate. Throws RpcError kInvalidArgument
/// for bytes that are no options of the optimizer.
optim::Options options_after_load(const optim::Options& now, const at::Tensor& saved);

}  // namespace sinew::internal
