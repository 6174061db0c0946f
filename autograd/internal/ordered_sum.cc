#include "sinew/autograd/internal/ordered_sum.h"

#include <utility>

#include "ATen/TensorOperators.h"

namespace sinew::internal {

at::Tensor sum_of(const at::Tensor& a, const at::Tensor& b) {
  // A dense tensor plus a sparse one has a kernel, the other order has none.
  return a.is_sparse() && !b.is_sparse() ? b + a : a + b;
}

void OrderedSum::add(std::size_t number, at::Tensor gradient) {
  if (number != next_) {
    early_.emplace(number, std::move(gradient));
    return;
  }
  add_next(std::move(gradient));
  for (auto at = early_.begin(); at != early_.end() && at->first == next_; at = early_.erase(at)) {
    add_next(std::move(at->second));
  }
}

void OrderedSum::add_next(at::Tensor gradient) {
  ++next_;
  if (!gradient.defined()) return;
  if (!total_.defined()) {
    total_ = std::move(gradient);
  } else if (is_own_ && !total_.is_sparse()) {
    total_.add_(gradient);
  } else {
    total_ = sum_of(total_, gradient);
    is_own_ = true;
  }
}

}  // namespace sinew::internal
