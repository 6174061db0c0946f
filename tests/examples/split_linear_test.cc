#include "sinew/examples/common/split_linear.h"

#include <vector>

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/version.h>

#include "ATen/ATen.h"
#include "ATen/autocast_mode.h"
#include "ATen/core/grad_mode.h"

using at::Tensor;
using examples::split_linear;

namespace {

constexpr std::int64_t kIn = 5;
constexpr std::int64_t kOut = 3;

Tensor random(std::vector<std::int64_t> sizes, bool trained = true) {
  return at::randn(sizes, at::kDouble).set_requires_grad(trained);
}

/// Whether both give the same values, and the same gradients for all that is trained.
void expect_like_linear(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  const Tensor ours = split_linear(input, weight, bias);
  const Tensor theirs = at::linear(input, weight, bias);
  ASSERT_EQ(ours.sizes(), theirs.sizes());
  EXPECT_TRUE(at::allclose(ours, theirs));
  ASSERT_EQ(ours.requires_grad(), theirs.requires_grad());
  if (!ours.requires_grad()) return;
  std::vector<Tensor> trained;
  for (const Tensor& one : {input, weight, bias}) {
    if (one.defined() && one.requires_grad()) trained.push_back(one);
  }
  const Tensor gradient = at::randn(ours.sizes(), ours.scalar_type());
  const auto got = torch::autograd::grad({ours}, trained, {gradient});
  const auto wanted = torch::autograd::grad({theirs}, trained, {gradient});
  for (std::size_t i = 0; i < trained.size(); ++i) {
    ASSERT_EQ(got[i].sizes(), trained[i].sizes());
    EXPECT_TRUE(at::allclose(got[i], wanted[i])) << got[i] << wanted[i];
  }
}

TEST(SplitLinear, IsLikeLinearInAllShapes) {
  for (const std::vector<std::int64_t>& sizes : {std::vector<std::int64_t>{kIn},
                                                 {1, kIn},
                                                 {4, kIn},
                                                 {2, 4, kIn},
                                                 {2, 3, 4, kIn},
                                                 {0, kIn},
                                                 {2, 0, kIn}}) {
    expect_like_linear(random(sizes), random({kOut, kIn}), random({kOut}));
    expect_like_linear(random(sizes), random({kOut, kIn}), {});
  }
}

TEST(SplitLinear, IsLikeLinearWhereSomeAreNotTrained) {
  for (int which = 0; which < 8; ++which) {
    expect_like_linear(random({4, kIn}, (which & 1) != 0), random({kOut, kIn}, (which & 2) != 0),
                       random({kOut}, (which & 4) != 0));
  }
  const at::NoGradGuard no_grad;
  expect_like_linear(random({4, kIn}), random({kOut, kIn}), random({kOut}));
}

TEST(SplitLinear, TakesInputsThatAreNotContiguous) {
  expect_like_linear(random({kIn, 4, 2}).transpose(0, 2), random({kIn, kOut}).t(), random({kOut}));
}

TEST(SplitLinear, TakesComplexNumbers) {
  const auto random_complex = [](std::vector<std::int64_t> sizes) {
    return at::randn(sizes, at::kComplexDouble).set_requires_grad(true);
  };
  expect_like_linear(random_complex({4, kIn}), random_complex({kOut, kIn}), random_complex({kOut}));
}

struct NoGradient : torch::autograd::Function<NoGradient> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x) { return x * 2; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list) {
    return {Tensor()};
  }
};

TEST(SplitLinear, HasNoGradientWhereNoneComes) {
  const std::vector<Tensor> trained = {random({4, kIn}), random({kOut, kIn}), random({kOut})};
  const Tensor output = split_linear(trained[0], trained[1], trained[2]);
  const auto gradients = torch::autograd::grad({NoGradient::apply(output).sum()}, trained, {},
                                               false, false, /*allow_unused=*/true);
  for (const Tensor& gradient : gradients) EXPECT_FALSE(gradient.defined()) << gradient;
}

void set_autocast(bool on) {
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
  at::autocast::set_autocast_enabled(at::kCPU, on);
#else
  at::autocast::set_cpu_enabled(on);
#endif
}

TEST(SplitLinear, WorksUnderAutocast) {
  const std::vector<Tensor> trained = {at::randn({4, kIn}).set_requires_grad(true),
                                       at::randn({kOut, kIn}).set_requires_grad(true),
                                       at::randn({kOut}).set_requires_grad(true)};
  const auto half = [&](const auto& linear) {
    set_autocast(true);
    const Tensor output = linear(trained[0], trained[1], trained[2]);
    at::autocast::clear_cache();
    set_autocast(false);
    EXPECT_EQ(output.scalar_type(), at::kBFloat16);
    return torch::autograd::grad({output.sum()}, trained);
  };
  const auto ours = half(&split_linear);
  const auto theirs = half([](const Tensor& input, const Tensor& weight, const Tensor& bias) {
    return at::linear(input, weight, bias);
  });
  for (std::size_t i = 0; i < trained.size(); ++i) {
    EXPECT_EQ(ours[i].scalar_type(), at::kFloat);
    EXPECT_TRUE(at::allclose(ours[i], theirs[i], 0.02, 0.02)) << ours[i] << theirs[i];
  }
}

TEST(SplitLinear, HasGradientsOfGradients) {
  const Tensor input = random({4, kIn});
  const Tensor weight = random({kOut, kIn});
  const auto second = [&](const Tensor& output) {
    const auto first =
        torch::autograd::grad({output.pow(3).sum()}, {input, weight}, {}, true, true);
    return torch::autograd::grad({first[0].pow(2).sum() + first[1].pow(2).sum()}, {input, weight});
  };
  const auto ours = second(split_linear(input, weight));
  const auto theirs = second(at::linear(input, weight));
  EXPECT_TRUE(at::allclose(ours[0], theirs[0]));
  EXPECT_TRUE(at::allclose(ours[1], theirs[1]));
}

TEST(SplitLinear, ItsResultCanBeChangedInPlace) {
  const Tensor input = random({2, 4, kIn});
  const Tensor weight = random({kOut, kIn});
  Tensor output = split_linear(input, weight);
  output.relu_();
  const auto ours = torch::autograd::grad({output.sum()}, {input, weight});
  const auto theirs =
      torch::autograd::grad({at::linear(input, weight).relu().sum()}, {input, weight});
  EXPECT_TRUE(at::allclose(ours[0], theirs[0]));
  EXPECT_TRUE(at::allclose(ours[1], theirs[1]));
}

TEST(SplitLinear, SeesThatItsWeightHasChangedSince) {
  const Tensor input = random({4, kIn});
  const Tensor weight = random({kOut, kIn});
  const Tensor output = split_linear(input, weight);
  {
    const at::NoGradGuard no_grad;
    weight.mul_(2);
  }
  EXPECT_THROW(output.sum().backward(), c10::Error);
}

TEST(SplitLinear, RefusesWhatLinearRefuses) {
  EXPECT_THROW(split_linear(random({4, kIn + 1}), random({kOut, kIn})), c10::Error);
  EXPECT_THROW(split_linear(random({4, kIn}), random({kOut, kIn}), random({kOut + 1})), c10::Error);
  EXPECT_THROW(split_linear(random({}), random({kOut, kIn})), c10::Error);
}

}  // namespace
