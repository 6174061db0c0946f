#include "sinew/tests/optim/training.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "ATen/ATen.h"
#include "sinew/tests/optim/history.h"
#include "sinew/tests/optim/own_optimizers.h"

using at::Tensor;
using sinew::optim::Options;

namespace testoptim {
namespace {

constexpr std::int64_t kRows = 12;
constexpr std::int64_t kWidth = 4;
enum : std::size_t { kEmbedding, kWeight, kBias, kParameters };

/// Numbers that depend on nothing but their arguments.
Tensor numbers(std::int64_t seed, at::IntArrayRef sizes) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  return at::sin(at::arange(count, at::kFloat) * 1.7 + static_cast<double>(seed) * 0.61)
      .reshape(sizes);
}

Tensor loss_of(const Tensor& output) { return (output - 0.3).square().sum(); }

std::unique_ptr<torch::optim::Optimizer> make_local(
    const std::vector<torch::optim::OptimizerParamGroup>& groups, const Options& options) {
  using namespace sinew::optim;  // NOLINT: only here
  if (const auto* sgd = options.get_if<SgdOptions>()) {
    return std::make_unique<torch::optim::SGD>(groups, torch::optim::SGDOptions(sgd->lr)
                                                           .momentum(sgd->momentum)
                                                           .dampening(sgd->dampening)
                                                           .weight_decay(sgd->weight_decay)
                                                           .nesterov(sgd->nesterov));
  }
  if (const auto* adam = options.get_if<AdamOptions>()) {
    return std::make_unique<torch::optim::Adam>(groups, torch::optim::AdamOptions(adam->lr)
                                                            .betas(adam->betas)
                                                            .eps(adam->eps)
                                                            .weight_decay(adam->weight_decay)
                                                            .amsgrad(adam->amsgrad));
  }
  if (const auto* adamw = options.get_if<AdamWOptions>()) {
    return std::make_unique<torch::optim::AdamW>(groups, torch::optim::AdamWOptions(adamw->lr)
                                                             .betas(adamw->betas)
                                                             .eps(adamw->eps)
                                                             .weight_decay(adamw->weight_decay)
                                                             .amsgrad(adamw->amsgrad));
  }
  if (const auto* adagrad = options.get_if<AdagradOptions>()) {
    return std::make_unique<torch::optim::Adagrad>(
        groups, torch::optim::AdagradOptions(adagrad->lr)
                    .lr_decay(adagrad->lr_decay)
                    .weight_decay(adagrad->weight_decay)
                    .initial_accumulator_value(adagrad->initial_accumulator_value)
                    .eps(adagrad->eps));
  }
  if (const auto* rms = options.get_if<RmsPropOptions>()) {
    return std::make_unique<torch::optim::RMSprop>(groups, torch::optim::RMSpropOptions(rms->lr)
                                                               .alpha(rms->alpha)
                                                               .eps(rms->eps)
                                                               .weight_decay(rms->weight_decay)
                                                               .momentum(rms->momentum)
                                                               .centered(rms->centered));
  }
  if (const auto* lion = options.get_if<LionOptions>()) {
    return std::make_unique<Lion>(groups, Lion::torch_options(*lion));
  }
  if (const auto* ball = options.get_if<HeavyBallOptions>()) {
    return std::make_unique<HeavyBall>(groups, HeavyBall::torch_options(*ball));
  }
  throw std::invalid_argument("LibTorch has no such optimizer");
}

}  // namespace

Shard::Shard(std::int64_t seed, bool sparse) : sparse_(sparse) {
  parameters_.resize(kParameters);
  parameters_[kEmbedding] = numbers(seed, {kRows, kWidth});
  parameters_[kWeight] = numbers(seed + 100, {kWidth, kWidth});
  parameters_[kBias] = numbers(seed + 200, {kWidth});
  for (Tensor& parameter : parameters_) parameter.set_requires_grad(true);
}

std::vector<sinew::RRef<Tensor>> Shard::parameters() {
  std::vector<sinew::RRef<Tensor>> references;
  for (const Tensor& parameter : parameters_) {
    references.push_back(sinew::make_rref(sinew::current_worker(), parameter));
  }
  return references;
}

Tensor Shard::forward(const Tensor& rows, const Tensor& input, bool bias) {
  const Tensor embedded = at::embedding(parameters_[kEmbedding], rows, /*padding_idx=*/-1,
                                        /*scale_grad_by_freq=*/false, sparse_);
  const Tensor product = (embedded + input).matmul(parameters_[kWeight]);
  return at::tanh(bias ? product + parameters_[kBias] : product);
}

std::vector<Tensor> Shard::values() {
  std::vector<Tensor> copies;
  for (const Tensor& parameter : parameters_) copies.push_back(parameter.detach().clone());
  return copies;
}

std::vector<Tensor> Shard::gradients(const sinew::autograd::ContextId& context) {
  std::vector<Tensor> copies;
  for (const Tensor& parameter : parameters_) {
    const Tensor gradient =
        sinew::autograd::gradient_of(sinew::current_worker(), context, parameter);
    copies.push_back(gradient.defined() ? gradient.detach().clone() : Tensor());
  }
  return copies;
}

void Shard::set_grads(double value) {
  for (Tensor& parameter : parameters_) {
    parameter.mutable_grad() = at::full_like(parameter.detach(), value);
  }
}

double Shard::sum_of_grads() {
  double sum = 0;
  for (const Tensor& parameter : parameters_) sum += parameter.grad().sum().item<double>();
  return sum;
}

Batch batch(std::int64_t step) {
  Batch one;
  // Some rows twice, and most not at all.
  one.rows = at::remainder(at::arange(5, at::kLong) * 3 + step * 2, kRows / 2);
  one.input = numbers(step, {5, kWidth});
  one.bias = step % 3 != 1;
  return one;
}

// ---- Local.

struct LocalTraining::Impl {
  std::vector<Shard> shards;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
};

LocalTraining::LocalTraining(std::int64_t shards, bool sparse, const Options& options)
    : LocalTraining(shards, sparse, options, options) {}

LocalTraining::LocalTraining(std::int64_t shards, bool sparse, const Options& options,
                             const Options& of_biases)
    : impl_(std::make_unique<Impl>()) {
  std::vector<Tensor> most;
  std::vector<Tensor> biases;
  for (std::int64_t i = 0; i < shards; ++i) {
    impl_->shards.emplace_back(i, sparse);
    const auto& parameters = impl_->shards.back().local();
    most.insert(most.end(), {parameters[kEmbedding], parameters[kWeight]});
    biases.push_back(parameters[kBias]);
  }
  // The options of another optimizer of the same kind.
  const auto other = make_local({torch::optim::OptimizerParamGroup(biases)}, of_biases);
  impl_->optimizer = make_local(
      {torch::optim::OptimizerParamGroup(most),
       torch::optim::OptimizerParamGroup(biases, other->param_groups().front().options().clone())},
      options);
}

LocalTraining::~LocalTraining() = default;

void LocalTraining::step(const Batch& batch) {
  // In C++ this zeroes; a parameter without a gradient must not have one.
  for (Shard& shard : impl_->shards) {
    for (Tensor parameter : shard.local()) parameter.mutable_grad().reset();
  }
  Tensor hidden = batch.input;
  for (Shard& shard : impl_->shards) hidden = shard.forward(batch.rows, hidden, batch.bias);
  loss_of(hidden).backward();
  impl_->optimizer->step();
}

void LocalTraining::set_learning_rate(double lr) {
  for (auto& group : impl_->optimizer->param_groups()) group.options().set_lr(lr);
}

void LocalTraining::set_options(std::size_t group, const Options& options) {
  const auto other = make_local({torch::optim::OptimizerParamGroup({at::zeros({})})}, options);
  impl_->optimizer->param_groups().at(group).set_options(
      other->param_groups().front().options().clone());
}

std::vector<Tensor> LocalTraining::values() const {
  std::vector<Tensor> all;
  for (Shard& shard : impl_->shards) {
    for (Tensor& value : shard.values()) all.push_back(std::move(value));
  }
  return all;
}

// ---- On workers.

RemoteTraining::RemoteTraining(const sinew::Worker& self, std::int64_t shards, bool sparse)
    : self_(self) {
  for (std::int64_t i = 0; i < shards; ++i) {
    shards_.push_back(self.peer(i + 1).remote<Shard>(i, sparse));
    parameters_.push_back(shards_.back().call<&Shard::parameters>());
  }
}

std::vector<sinew::RRef<Tensor>> RemoteTraining::parameters() const {
  std::vector<sinew::RRef<Tensor>> all;
  for (const auto& some : parameters_) all.insert(all.end(), some.begin(), some.end());
  return all;
}

std::vector<sinew::RRef<Tensor>> RemoteTraining::without_biases() const {
  std::vector<sinew::RRef<Tensor>> most;
  for (const auto& some : parameters_) most.insert(most.end(), {some[kEmbedding], some[kWeight]});
  return most;
}

std::vector<sinew::RRef<Tensor>> RemoteTraining::biases() const {
  std::vector<sinew::RRef<Tensor>> biases;
  for (const auto& some : parameters_) biases.push_back(some[kBias]);
  return biases;
}

Tensor RemoteTraining::loss(const Batch& batch) const {
  Tensor hidden = batch.input;
  for (const auto& shard : shards_) {
    hidden = shard.call<&Shard::forward>(batch.rows, hidden, batch.bias);
  }
  return loss_of(hidden);
}

sinew::optim::StepReport RemoteTraining::step(const sinew::optim::DistributedOptimizer& optimizer,
                                              const Batch& batch) const {
  const sinew::autograd::Context context(self_);
  sinew::autograd::backward(context, {loss(batch)});
  return optimizer.step(context);
}

std::vector<Tensor> RemoteTraining::values() const {
  std::vector<Tensor> all;
  for (const auto& shard : shards_) {
    for (const Tensor& value : shard.call<&Shard::values>()) all.push_back(value);
  }
  return all;
}

double difference(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const Tensor scale = at::clamp_min(at::maximum(a[i].abs(), b[i].abs()), 1);
    most = std::max(most, ((a[i] - b[i]).abs() / scale).max().item<double>());
  }
  return most;
}

void add_methods(sinew::MethodTable& methods) {
  methods.serve<Shard, Table, Picker>()
      .add<&Shard::parameters>()
      .add<&Shard::forward>()
      .add<&Shard::values>();
  methods.add<&Shard::gradients>().add<&Shard::set_grads>().add<&Shard::sum_of_grads>();
}

}  // namespace testoptim
