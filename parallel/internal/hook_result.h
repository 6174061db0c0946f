#pragma once

#include <cstddef>

#include "ATen/core/Tensor.h"

namespace sinew::parallel::internal {

/// Throws RpcError kInvalidArgument unless `result`, which a communication hook has returned, is of
/// the type and size of the bucket's gradients.
void check_hook_result(const at::Tensor& result, std::size_t bucket, const at::Tensor& gradients);

}  // namespace sinew::parallel::internal
