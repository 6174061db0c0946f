// ZeroRedundancyOptimizer against the plain optimizer.

#include "sinew/parallel/zero_redundancy_optimizer.h"

#include <torch/nn.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "sinew/optim/internal/torch_optimizer.h"
#include "sinew/parallel/distributed_data_parallel.h"
#include "sinew/tests/parallel/ranks/models.h"
#include "sinew/tests/parallel/ranks/rank_test.h"

using sinew::ErrorCode;
using sinew::RpcError;
using sinew::internal::TorchOptimizer;
using sinew::parallel::DistributedDataParallel;
using sinew::parallel::ParameterGroup;
using sinew::parallel::ZeroRedundancyOptimizer;
using ::testing::HasSubstr;
using testranks::Batch;
using testranks::difference;
using testranks::error_of;
using testranks::make_batch;
using testranks::mean_loss;
using testranks::Mlp;
using testranks::values_of;

namespace {

class Zero : public testranks::RankTest {};

std::vector<sinew::optim::Options> all_options() {
  sinew::optim::SgdOptions sgd;
  sgd.lr = 0.1;
  sgd.momentum = 0.9;
  sgd.nesterov = true;
  sinew::optim::AdamOptions adam;
  adam.lr = 0.01;
  adam.amsgrad = true;
  adam.weight_decay = 0.01;
  sinew::optim::RmsPropOptions rmsprop;
  rmsprop.centered = true;
  rmsprop.momentum = 0.5;
  return {sgd,
          adam,
          sinew::optim::AdamWOptions(),
          sinew::optim::AdagradOptions(),
          rmsprop,
          sinew::optim::AdadeltaOptions(),
          sinew::optim::AdamaxOptions(),
          sinew::optim::RpropOptions()};
}

/// The same gradients on all ranks; without one for the parameter `step` % count.
void set_gradients(torch::nn::Module& module, int step) {
  const std::vector<at::Tensor> parameters = module.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor values = at::arange(parameters[i].numel(), at::kDouble)
                                  .mul(0.7)
                                  .add(static_cast<double>(step) + static_cast<double>(i))
                                  .cos();
    parameters[i].mutable_grad() = values.view(parameters[i].sizes());
  }
  parameters[static_cast<std::size_t>(step) % parameters.size()].mutable_grad().reset();
}

/// The first parameters with `options`, the others with another rate.
std::vector<ParameterGroup> groups_of(const torch::nn::Module& module,
                                      const sinew::optim::Options& options) {
  std::vector<at::Tensor> parameters = module.parameters();
  sinew::optim::Options other = options;
  other.set_learning_rate(0.003);
  const auto half = parameters.begin() + static_cast<std::ptrdiff_t>(parameters.size() / 2);
  return {{{parameters.begin(), half}, options}, {{half, parameters.end()}, other}};
}

std::vector<TorchOptimizer::Group> plain_groups(const std::vector<ParameterGroup>& groups) {
  std::vector<TorchOptimizer::Group> plain;
  for (const ParameterGroup& group : groups) plain.push_back({group.parameters, group.options});
  return plain;
}

void set_learning_rate(TorchOptimizer& plain, const std::vector<ParameterGroup>& groups,
                       std::size_t group, double lr) {
  sinew::optim::Options options = groups[group].options;
  options.set_learning_rate(lr);
  plain.set_options(group, options);
}

TEST_F(Zero, StepsAreThoseOfThePlainOptimizerBitByBit) {
  for (const sinew::optim::Options& options : all_options()) {
    SCOPED_TRACE(options.name());
    Mlp model(3, 3);
    Mlp whole(3, 3);
    ZeroRedundancyOptimizer optimizer(group(), groups_of(model, options));
    TorchOptimizer plain(plain_groups(groups_of(whole, options)));
    for (int step = 0; step < 8; ++step) {
      if (step == 5) {
        optimizer.set_learning_rate(1, 0.0007);
        set_learning_rate(plain, groups_of(whole, options), 1, 0.0007);
      }
      set_gradients(model, step);
      set_gradients(whole, step);
      optimizer.step();
      plain.step();
      ASSERT_EQ(difference(values_of(model), values_of(whole)), 0) << "step " << step;
    }
  }
}

TEST_F(Zero, TheStateIsSpreadOverTheRanks) {
  // Eight layers of one size, so that it can be divided evenly.
  std::vector<at::Tensor> parameters;
  for (int i = 0; i < 8; ++i) parameters.push_back(at::zeros({50, 40}).requires_grad_());
  for (const sinew::optim::Options& options : all_options()) {
    SCOPED_TRACE(options.name());
    ZeroRedundancyOptimizer optimizer(group(), parameters, options);
    TorchOptimizer plain({{parameters, options}});
    // LibTorch's Adagrad makes its state at once, the others at the first step.
    for (const at::Tensor& parameter : parameters) {
      parameter.mutable_grad() = at::ones_like(parameter);
    }
    optimizer.step();
    plain.step();
    ASSERT_GT(plain.state_bytes(), 0U);
    const double whole = static_cast<double>(plain.state_bytes());
    const double share = static_cast<double>(optimizer.state_bytes());
    EXPECT_NEAR(share, whole / size(), 0.001 * whole);
  }
}

TEST_F(Zero, TheLargestParametersAreSpreadFirst) {
  std::vector<at::Tensor> parameters;
  for (const std::int64_t elements : {1, 2, 100, 3, 100}) {
    parameters.push_back(at::zeros({elements}).requires_grad_());
  }
  const ZeroRedundancyOptimizer optimizer(group(), parameters, sinew::optim::SgdOptions());
  EXPECT_EQ(optimizer.owner_of(2), 0);
  EXPECT_EQ(optimizer.owner_of(4), 1);
  EXPECT_EQ(optimizer.owner_of(3), size() == 2 ? 0 : 2);
  EXPECT_EQ(error_of([&] { optimizer.owner_of(5); }).code(), ErrorCode::kOutOfRange);
}

TEST_F(Zero, GoesOnFromWhatWasSaved) {
  for (const sinew::optim::Options& options : all_options()) {
    SCOPED_TRACE(options.name());
    Mlp whole(3);
    TorchOptimizer plain(plain_groups(groups_of(whole, options)));
    Mlp model(3);
    std::string state;
    {
      ZeroRedundancyOptimizer optimizer(group(), groups_of(model, options));
      optimizer.set_learning_rate(0, 0.02);
      set_learning_rate(plain, groups_of(whole, options), 0, 0.02);
      for (int step = 0; step < 4; ++step) {
        set_gradients(model, step);
        set_gradients(whole, step);
        optimizer.step();
        plain.step();
      }
      const int to = size() - 1;
      state = optimizer.save(to);
      EXPECT_EQ(state.empty(), rank() != to);
      // As by a file.
      const at::Tensor bytes = at::full({1}, static_cast<std::int64_t>(state.size()), at::kLong);
      group().broadcast(bytes, to);
      const at::Tensor text = at::zeros({bytes.item<std::int64_t>()}, at::kByte);
      if (rank() == to) std::memcpy(text.data_ptr(), state.data(), state.size());
      group().broadcast(text, to);
      state.assign(static_cast<const char*>(text.data_ptr()), text.nbytes());
    }
    // In the same number of ranks; and alone, which is another number.
    Mlp lone(3);
    {
      const at::AutoGradMode no_grad(false);
      for (std::size_t i = 0; i < lone.parameters().size(); ++i) {
        lone.parameters()[i].copy_(model.parameters()[i]);
      }
    }
    ZeroRedundancyOptimizer optimizer(group(), groups_of(model, options));
    optimizer.load(state);
    std::vector<sinew::ProcessGroup> alone;
    for (int one = 0; one < size(); ++one) alone.push_back(group().new_group({one}));
    ZeroRedundancyOptimizer single(alone[static_cast<std::size_t>(rank())],
                                   groups_of(lone, options));
    single.load(state);
    for (int step = 4; step < 8; ++step) {
      set_gradients(model, step);
      set_gradients(whole, step);
      set_gradients(lone, step);
      optimizer.step();
      single.step();
      plain.step();
    }
    EXPECT_EQ(difference(values_of(model), values_of(whole)), 0);
    EXPECT_EQ(difference(values_of(lone), values_of(whole)), 0);
  }
}

TEST_F(Zero, WhatDoesNotFitIsNotLoaded) {
  Mlp model(3);
  ZeroRedundancyOptimizer adam(group(), model.parameters(), sinew::optim::AdamOptions());
  set_gradients(model, 0);
  adam.step();
  const std::string state = adam.save(0);
  if (rank() == 0) {
    std::string damaged = state;
    damaged.resize(damaged.size() / 2);
    EXPECT_THAT(error_of([&] { adam.load(damaged); }).message(), HasSubstr("cannot be read"));
    EXPECT_EQ(error_of([&] { adam.load("nonsense"); }).code(), ErrorCode::kInvalidArgument);
  }
  ZeroRedundancyOptimizer sgd(group(), model.parameters(), sinew::optim::SgdOptions());
  Mlp wider(3, 2, 20);
  ZeroRedundancyOptimizer other(group(), wider.parameters(), sinew::optim::AdamOptions());
  if (rank() == 0) {
    EXPECT_THAT(error_of([&] { sgd.load(state); }).message(),
                HasSubstr("of Adam with 6 parameters"));
    EXPECT_THAT(error_of([&] { other.load(state); }).message(), HasSubstr("'0' Double [16, 6]"));
    adam.load(state);
  }
}

TEST_F(Zero, ClosuresComputeTheLoss) {
  const auto model = std::make_shared<Mlp>(3);
  DistributedDataParallel ddp(model, group());
  ZeroRedundancyOptimizer optimizer(group(), model->parameters(), sinew::optim::AdamOptions());
  Mlp whole(3);
  TorchOptimizer plain({{whole.parameters(), sinew::optim::AdamOptions()}});
  const Batch batch = make_batch(1, 4 * size());
  const Batch part = batch.part(rank(), size());
  const at::AutoGradMode no_grad(false);
  const at::Tensor loss = optimizer.step([&] {
    optimizer.zero_grad();
    const at::Tensor one = mean_loss(ddp.forward(part.input), part.target);
    one.backward();
    return one;
  });
  {
    const at::AutoGradMode grad(true);
    mean_loss(whole.forward(batch.input), batch.target).backward();
  }
  plain.step();
  EXPECT_LT(difference(values_of(*model), values_of(whole)), 1e-9);
  EXPECT_TRUE(loss.requires_grad());
}

TEST_F(Zero, MistakesAreNamed) {
  Mlp model(3);
  const auto make = [&](std::vector<ParameterGroup> groups) {
    return error_of([&] { ZeroRedundancyOptimizer(group(), std::move(groups)); });
  };
  EXPECT_EQ(make({}).code(), ErrorCode::kInvalidArgument);
  const std::vector<at::Tensor> parameters = model.parameters();
  EXPECT_THAT(make({{{parameters[0]}, sinew::optim::SgdOptions()},
                    {{parameters[1]}, sinew::optim::AdamOptions()}})
                  .message(),
              HasSubstr("SGD and Adam"));
  EXPECT_THAT(make({{{parameters[0], parameters[0]}, sinew::optim::SgdOptions()}}).message(),
              HasSubstr("parameter 1 is there twice: a weight that modules share is given once"));
  EXPECT_THAT(make({{{at::ones({2}, at::kLong)}, sinew::optim::SgdOptions()}}).message(),
              HasSubstr("parameter 0 is not dense and of floating point"));
  sinew::optim::SgdOptions sgd;
  sgd.lr = -1;
  EXPECT_THAT(make({{{parameters[0]}, sgd}}).message(), HasSubstr("lr is -1"));
  // A gradient that cannot be stepped is refused by all ranks, also by those that would not step
  // it, and nothing is stepped.
  ZeroRedundancyOptimizer adam(group(), parameters, sinew::optim::AdamOptions());
  for (const at::Tensor& parameter : parameters) {
    parameter.mutable_grad() = at::ones_like(parameter);
  }
  parameters.back().mutable_grad() = at::zeros_like(parameters.back()).to_sparse();
  const std::vector<at::Tensor> before = values_of(model);
  EXPECT_THAT(error_of([&] { adam.step(); }).message(),
              HasSubstr("parameter 5: its gradient is sparse"));
  EXPECT_EQ(difference(values_of(model), before), 0);
  // All ranks hear of it when one has other parameters.
  EXPECT_THAT(make({{{parameters[static_cast<std::size_t>(rank() == 1 ? 2 : 0)]},
                     sinew::optim::SgdOptions()}})
                  .message(),
              HasSubstr("Double [16, 6]"));
}

}  // namespace
