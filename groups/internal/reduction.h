#pragma once

#include <string>

#include "ATen/core/Tensor.h"
#include "sinew/groups/internal/backend.h"
#include "sinew/groups/reduce_op.h"

namespace sinew::internal {

/// As c10d says it.
c10d::ReduceOp::RedOpType c10d_op(ReduceOp op);
/// Throws RpcError kUnimplemented for what a group does not reduce by.
ReduceOp reduce_op_of(const c10d::ReduceOp& op);

/// How a tensor is reduced by a backend that may lack its type or the operation.
struct Reduction {
  /// What the backend is given.
  at::Tensor buffer;
  ReduceOp op = ReduceOp::kSum;
  /// The sum is divided by the size of the group afterwards.
  bool divides = false;
  /// The buffer has whole numbers in place of floating-point numbers, in the same order: NaN, which
  /// has no place in it, comes behind whatever the operation looks for.
  bool is_ordered = false;
};

/// The buffer has the values of `tensor`, and its memory where the backend can work on it in place.
/// Throws RpcError kUnimplemented, with what to do, for what has no meaning or no way.
Reduction plan_reduction(const Backend& backend, const at::Tensor& tensor, ReduceOp op);

/// Writes the result of a reduction, divided if it is to be, to `tensor`.
void store_reduced(const Reduction& reduction, int size, const at::Tensor& tensor);

/// The reduction of `parts`, one of each rank and in their order, computed here; written to
/// `output`. Half precision is summed in single precision. Throws as plan_reduction().
void reduce_here(const std::vector<at::Tensor>& parts, ReduceOp op, const at::Tensor& output);
/// Whether reduce_here() can: throws as it does.
void check_reducible(at::ScalarType type, ReduceOp op);

}  // namespace sinew::internal
