#include "model.h"

#include <cmath>

#include "ATen/ATen.h"
#include "ATen/CPUGeneratorImpl.h"

namespace ddp_rpc {
namespace {

// A generator of its own: what others draw in the same process changes nothing.
void fill_uniform(const std::vector<at::Tensor>& parameters, double bound, std::int64_t seed) {
  const at::NoGradGuard no_grad;
  const at::Generator random = at::detail::createCPUGenerator(static_cast<std::uint64_t>(seed));
  for (const at::Tensor& parameter : parameters) parameter.uniform_(-bound, bound, random);
}

}  // namespace

EmbeddingTable::EmbeddingTable(std::int64_t seed) {
  table_ = register_module(
      "table", torch::nn::EmbeddingBag(
                   torch::nn::EmbeddingBagOptions(Bags::kWords, kWidth).mode(torch::kSum)));
  fill_uniform(parameters(), 0.1, seed);
}

at::Tensor EmbeddingTable::forward(const at::Tensor& words, const at::Tensor& offsets) {
  return table_->forward(words, offsets);
}

DensePart::DensePart(std::int64_t seed) {
  scores_ = register_module("scores", torch::nn::Linear(EmbeddingTable::kWidth, Bags::kClasses));
  fill_uniform(parameters(), 1 / std::sqrt(static_cast<double>(EmbeddingTable::kWidth)), seed + 1);
}

at::Tensor DensePart::forward(const at::Tensor& embedded) { return scores_->forward(embedded); }

}  // namespace ddp_rpc
