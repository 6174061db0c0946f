#pragma once

#include <cstddef>
#include <map>

#include "ATen/core/Tensor.h"

namespace sinew::internal {

/// Two gradients, of which each may be sparse.
at::Tensor sum_of(const at::Tensor& a, const at::Tensor& b);

/// The sum of gradients that come in any order and are added in one, that of their numbers, so that
/// its bits do not depend on which comes first. Those that come in order are added at once; others
/// are kept until those before them are there. Gradients are not recorded while it adds. Not
/// thread-safe.
class OrderedSum {
 public:
  explicit OrderedSum(std::size_t count) : count_(count) {}

  /// `gradient` is that with number `number`, which has not come before; undefined: zeros.
  void add(std::size_t number, at::Tensor gradient);
  bool has_begun() const { return next_ > 0 || !early_.empty(); }
  bool is_complete() const { return next_ == count_; }
  /// When it is complete. Undefined: all were.
  at::Tensor take() { return std::move(total_); }

 private:
  void add_next(at::Tensor gradient);

  const std::size_t count_;
  std::size_t next_ = 0;
  at::Tensor total_;
  // `total_` has not been given to any other code.
  bool is_own_ = false;
  std::map<std::size_t, at::Tensor> early_;
};

}  // namespace sinew::internal
