#include "sinew/tests/parallel/ranks/models.h"

#include <algorithm>
#include <string>

#include <ATen/CPUGeneratorImpl.h>
#include "ATen/ATen.h"

namespace testranks {
namespace {

at::Generator generator(std::uint64_t seed) {
  return at::make_generator<at::CPUGeneratorImpl>(seed);
}

void fill(torch::nn::Module& module, std::uint64_t seed) {
  const at::AutoGradMode no_grad(false);
  at::Generator random = generator(seed);
  module.to(at::kDouble);
  for (at::Tensor& parameter : module.parameters()) parameter.normal_(0, 0.5, random);
}

}  // namespace

Mlp::Mlp(std::uint64_t seed, std::int64_t layers, std::int64_t width) {
  std::int64_t in = kInputs;
  for (std::int64_t i = 0; i <= layers; ++i) {
    const std::int64_t out = i == layers ? kOutputs : width;
    layers_.push_back(register_module("layer" + std::to_string(i), torch::nn::Linear(in, out)));
    in = out;
  }
  fill(*this, seed);
}

at::Tensor Mlp::forward(at::Tensor input) {
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    input = layers_[i]->forward(input);
    if (i + 1 < layers_.size()) input = input.tanh();
  }
  return input;
}

Branches::Branches(std::uint64_t seed) {
  first = register_module("first", torch::nn::Linear(Mlp::kInputs, Mlp::kOutputs));
  second = register_module("second", torch::nn::Linear(Mlp::kInputs, Mlp::kOutputs));
  fill(*this, seed);
}

at::Tensor Branches::forward(const at::Tensor& input, int which) {
  at::Tensor output = at::zeros({input.size(0), Mlp::kOutputs}, at::kDouble);
  if (which != 1) output = output + first->forward(input);
  if (which != 0) output = output + second->forward(input);
  return output;
}

Words::Words() {
  table = register_module("table",
                          torch::nn::Embedding(torch::nn::EmbeddingOptions(20, 3).sparse(true)));
  linear = register_module("linear", torch::nn::Linear(3, 2));
  const at::AutoGradMode no_grad(false);
  to(at::kDouble);
  for (at::Tensor& parameter : parameters()) {
    parameter.copy_(at::arange(parameter.numel(), at::kDouble).view(parameter.sizes()).sin());
  }
}

Batch Batch::rows(std::int64_t begin, std::int64_t end) const {
  return {input.slice(0, begin, end), target.slice(0, begin, end)};
}

Batch Batch::part(int rank, int ranks) const {
  const std::int64_t each = input.size(0) / ranks;
  return rows(rank * each, (rank + 1) * each);
}

Batch make_batch(std::uint64_t seed, std::int64_t rows) {
  at::Generator random = generator(seed);
  Batch batch;
  batch.input = at::empty({rows, Mlp::kInputs}, at::kDouble).normal_(0, 1, random);
  batch.target = at::empty({rows, Mlp::kOutputs}, at::kDouble).normal_(0, 1, random);
  return batch;
}

at::Tensor mean_loss(const at::Tensor& output, const at::Tensor& target) {
  return (output - target).pow(2).mean();
}

double difference(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  if (a.size() != b.size()) return 1e9;
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].defined() != b[i].defined()) return 1e9;
    if (!a[i].defined() || a[i].numel() == 0) continue;
    most = std::max(most, (a[i] - b[i]).abs().max().item<double>());
  }
  return most;
}

std::vector<at::Tensor> grads_of(const torch::nn::Module& module) {
  std::vector<at::Tensor> grads;
  for (const at::Tensor& parameter : module.parameters()) grads.push_back(parameter.grad());
  return grads;
}

std::vector<at::Tensor> values_of(const torch::nn::Module& module) {
  std::vector<at::Tensor> values;
  for (const at::Tensor& parameter : module.parameters()) {
    values.push_back(parameter.detach().clone());
  }
  return values;
}

}  // namespace testranks
