#pragma once

#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"
#include "sinew/sinew.h"

namespace testoptim {

/// Parameters whose gradients say which step they are of.
class Table {
 public:
  explicit Table(std::int64_t size);
  sinew::RRef<at::Tensor> parameter();
  /// Its gradient is one at `index`, and zero elsewhere.
  at::Tensor pick(std::int64_t index);
  /// Its gradient is `factor` everywhere.
  at::Tensor weighted_sum(double factor);
  at::Tensor value();
  /// All elements in the same place: no operator writes to that.
  void fold();
  void unfold();

 private:
  at::Tensor weight_;
};

sinew::optim::SgdOptions rate_of_one();
/// Gives the context a gradient of one at `index` of each table.
void pick_from(const std::vector<sinew::RRef<Table>>& tables, std::int64_t index,
               const sinew::autograd::Context& context);

}  // namespace testoptim

SINEW_SERVICE(testoptim::Table, (std::int64_t), parameter, pick, weighted_sum, value, fold, unfold);
