#include "model.h"

#include <cmath>

#include "ATen/ATen.h"
#include "ATen/CPUGeneratorImpl.h"
#include "sinew/examples/common/spirals.h"

namespace batch_ps {
namespace {
constexpr std::int64_t kWidths[] = {2, 64, 64, examples::Spirals::kClasses};
constexpr std::size_t kLayers = std::size(kWidths) - 1;
}  // namespace

Parameters make_parameters(std::int64_t seed) {
  const at::Generator random = at::detail::createCPUGenerator(static_cast<std::uint64_t>(seed));
  Parameters parameters;
  for (std::size_t layer = 0; layer < kLayers; ++layer) {
    const double bound = std::sqrt(3.0 / static_cast<double>(kWidths[layer]));
    parameters.push_back(
        at::empty({kWidths[layer + 1], kWidths[layer]}).uniform_(-bound, bound, random));
    parameters.push_back(at::zeros({kWidths[layer + 1]}));
  }
  return parameters;
}

at::Tensor scores(const Parameters& parameters, const at::Tensor& points) {
  at::Tensor hidden = points;
  for (std::size_t layer = 0; layer < kLayers; ++layer) {
    if (layer > 0) hidden = hidden.relu();
    hidden = at::linear(hidden, parameters[2 * layer], parameters[2 * layer + 1]);
  }
  return hidden;
}

}  // namespace batch_ps
