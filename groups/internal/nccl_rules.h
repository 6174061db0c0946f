#pragma once

#include "c10/core/ScalarType.h"
#include "sinew/groups/internal/backend.h"
#include "sinew/groups/reduce_op.h"

// What LibTorch's backend for NCCL has: as Backend asks. Apart from it, so that builds without NCCL
// can look too.
namespace sinew::internal {

/// `torch_major`: of LibTorch's version.
bool nccl_can(Function function, int torch_major);
bool nccl_reduces(at::ScalarType type, ReduceOp op);

}  // namespace sinew::internal
