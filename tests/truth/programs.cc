#include "sinew/tests/truth/programs.h"

#include <utility>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"

namespace sinew::testing {

std::string in(Way way, const std::string& program) {
  return way == Way::kPlain ? program : absl::StrCat(program, ", in contexts");
}

Pass::Pass(Way way) {
  if (way == Way::kContext) context_.emplace();
}

void Pass::backward(const at::Tensor& loss, bool retain_graph) const {
  if (!context_) return loss.backward({}, retain_graph);
  autograd::BackwardOptions options;
  options.retain_graph = retain_graph;
  autograd::backward(*context_, {loss}, options);
}

double Pass::gradient(const at::Tensor& parameter) const {
  return value(context_ ? autograd::gradient_of(*context_, parameter) : parameter.grad());
}

void add_numbers(TruthRows& rows, const std::string& program, const Right& right,
                 const std::function<Numbers(const ProcessGroup& group, Way way)>& run) {
  for (const Way way : kWays) {
    rows.push_back(numbers_row(in(way, program), right,
                               [=](const ProcessGroup& group) { return run(group, way); }));
  }
}

void add_refused(TruthRows& rows, const std::string& program, const std::string& sentence,
                 const std::function<void(const ProcessGroup& group, Way way)>& run) {
  for (const Way way : kWays) {
    rows.push_back(refused_row(in(way, program), sentence,
                               [=](const ProcessGroup& group) { run(group, way); }));
  }
}

at::Tensor odd(const ProcessGroup& group, double factor) {
  return at::full({1}, factor * (2 * group.rank() + 1), at::kDouble);
}

Right always(Numbers numbers) {
  return [numbers = std::move(numbers)](int) { return numbers; };
}

Right times_size(Numbers numbers) {
  return [numbers = std::move(numbers)](int size) {
    Numbers times = numbers;
    for (double& number : times) number *= size;
    return times;
  };
}

parallel::DdpOptions finding_unused() {
  parallel::DdpOptions options;
  options.unused_parameters = parallel::UnusedParameters::kFound;
  return options;
}

Factors::Factors(bool second_is_fixed) {
  a = register_parameter("a", at::ones({1}, at::kDouble));
  b = register_parameter("b", at::ones({1}, at::kDouble), !second_is_fixed);
}

at::Tensor Factors::forward(const at::Tensor& input, bool first, bool second) {
  at::Tensor sum = at::zeros({1}, at::kDouble);
  if (first) sum = sum + a * input;
  if (second) sum = sum + b * input;
  return sum;
}

}  // namespace sinew::testing
