#include "sinew/groups/internal/nccl_rules.h"

namespace sinew::internal {

bool nccl_can(Function function, int torch_major) {
  // NCCL has no receive from any source; LibTorch scatters and gathers by it only since 2.0.
  if (function == Function::kRecvAnySource) return false;
  const bool is_newer = function == Function::kScatter || function == Function::kGather;
  return !is_newer || torch_major >= 2;
}

bool nccl_reduces(at::ScalarType type, ReduceOp op) {
  switch (type) {
    case at::kFloat:
    case at::kDouble:
    case at::kHalf:
    case at::kBFloat16:
      // What becomes of a NaN differs between versions of NCCL.
      return op != ReduceOp::kMin && op != ReduceOp::kMax;
    case at::kChar:
    case at::kByte:
    case at::kInt:
    case at::kLong:
      return op != ReduceOp::kAverage;
    default:
      return false;
  }
}

}  // namespace sinew::internal
