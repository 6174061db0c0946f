#pragma once

namespace sinew {

/// How a reduction combines the values of all ranks, element by element.
enum class ReduceOp {
  kSum,
  /// The sum divided by the size of the group.
  kAverage,
  kProduct,
  /// Of floating-point numbers NaN where any rank has it, and so kMax.
  kMin,
  kMax,
};

}  // namespace sinew
