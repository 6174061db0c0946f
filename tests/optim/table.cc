#include "sinew/tests/optim/table.h"

#include "ATen/ATen.h"

namespace testoptim {

Table::Table(std::int64_t size) : weight_(at::zeros({size}).set_requires_grad(true)) {}

sinew::RRef<at::Tensor> Table::parameter() { return sinew::make_rref(weight_); }
at::Tensor Table::pick(std::int64_t index) { return weight_[index]; }
at::Tensor Table::weighted_sum(double factor) { return (weight_ * factor).sum(); }
at::Tensor Table::value() { return weight_.detach().clone(); }
void Table::fold() { weight_.set_data(at::zeros({1}).expand(weight_.sizes())); }
void Table::unfold() { weight_.set_data(weight_.detach().clone()); }

sinew::optim::SgdOptions rate_of_one() {
  sinew::optim::SgdOptions sgd;
  sgd.lr = 1;
  return sgd;
}

void pick_from(const std::vector<sinew::RRef<Table>>& tables, std::int64_t index,
               const sinew::autograd::Context& context) {
  at::Tensor sum;
  for (const auto& table : tables) {
    const at::Tensor element = table.call<&Table::pick>(index);
    sum = sum.defined() ? sum + element : element;
  }
  sinew::autograd::backward(context, {sum});
}

}  // namespace testoptim
