// Optimizers that LibTorch's C++ frontend does not have, against numbers of PyTorch 1.13.

#include "sinew/optim/internal/torch_optimizer.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ATen/ATen.h"

using sinew::internal::TorchOptimizer;

namespace {

constexpr std::int64_t kMoreSteps = 40;

/// From sin(1.7 i), 40 steps with the gradients cos(0.9 i + 0.7 step).
std::vector<double> run(const sinew::optim::Options& options) {
  const at::Tensor i = at::arange(6, at::kDouble);
  at::Tensor parameter = at::sin(i * 1.7);
  TorchOptimizer optimizer({{{parameter}, options}});
  for (std::int64_t step = 0; step < kMoreSteps; ++step) {
    parameter.mutable_grad() = at::cos(i * 0.9 + static_cast<double>(step) * 0.7);
    optimizer.step();
  }
  return std::vector<double>(parameter.data_ptr<double>(), parameter.data_ptr<double>() + 6);
}

auto near(const std::vector<double>& expected) {
  return ::testing::Pointwise(::testing::DoubleNear(1e-9), expected);
}

TEST(MoreOptimizers, Adadelta) {
  sinew::optim::AdadeltaOptions options;
  options.lr = 0.7;
  options.rho = 0.8;
  options.eps = 1e-5;
  options.weight_decay = 0.01;
  EXPECT_THAT(run(options), near({-0.00862082744265, 0.997305082597, -0.227687844437,
                                  -0.907683825128, 0.493047160378, 0.776472943577}));
}

TEST(MoreOptimizers, Adamax) {
  sinew::optim::AdamaxOptions options;
  options.lr = 0.02;
  options.betas = {0.8, 0.95};
  options.eps = 1e-7;
  options.weight_decay = 0.01;
  EXPECT_THAT(run(options), near({-0.0485619665889, 0.983202485829, -0.17859141507, -0.846649512043,
                                  0.520211632464, 0.76211463401}));
}

TEST(MoreOptimizers, Rprop) {
  sinew::optim::RpropOptions options;
  options.lr = 0.03;
  options.etas = {0.4, 1.3};
  options.step_sizes = {1e-4, 0.2};
  EXPECT_THAT(run(options), near({-0.12811547351, 1.03447530307, 0.0193021508195, -0.923354861247,
                                  0.470985603607, 0.830029077064}));
}

}  // namespace
