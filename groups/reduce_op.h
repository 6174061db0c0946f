#pragma once

namespace sinew {

/// How a reduction combines the values of all ranks, element by element.
enum class ReduceOp {
  kSum,
  /// The sum divided by the size of the group.
  kAverage,
  kProduct,
  kMin,
  kMax,
};

}  // namespace sinew
