// Checkpointed parts against plain calls of the same parts.

#include <torch/csrc/autograd/autograd.h>
#include <torch/nn.h>

#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ATen/ATen.h"
#include "ATen/autocast_mode.h"
#include "sinew/parallel/checkpoint.h"
#include "sinew/rpc/base/error.h"

using sinew::ErrorCode;
using sinew::RpcError;
using sinew::parallel::checkpoint;
using sinew::parallel::CheckpointOptions;
using sinew::parallel::RandomNumbers;
using ::testing::AllOf;
using ::testing::HasSubstr;

namespace {

ErrorCode code_of(const std::function<void()>& call, std::string* text) {
  try {
    call();
  } catch (const RpcError& error) {
    *text = error.what();
    return error.code();
  }
  return ErrorCode::kOk;
}

/// All that a layer may have: statistics, random numbers, parameters.
struct BlockImpl : torch::nn::Module {
  BlockImpl() {
    linear = register_module("linear", torch::nn::Linear(6, 6));
    norm = register_module("norm", torch::nn::BatchNorm1d(6));
    dropout = register_module("dropout", torch::nn::Dropout(0.5));
  }
  at::Tensor forward(const at::Tensor& input) {
    ++calls;
    return input + dropout->forward(norm->forward(linear->forward(input)).relu());
  }
  torch::nn::Linear linear{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Dropout dropout{nullptr};
  int calls = 0;
};
TORCH_MODULE(Block);

enum class How { kPlain, kCheckpointed };

/// Gradients of the input and of all parameters, buffers, the output, and a number that is drawn
/// behind the pass.
std::vector<at::Tensor> pass_of_three(How how) {
  torch::manual_seed(5);
  std::vector<Block> blocks = {Block(), Block(), Block()};
  const at::Tensor input = at::randn({4, 6}).requires_grad_();
  at::Tensor x = input * 2;
  for (Block& block : blocks) {
    x = how == How::kPlain ? block->forward(x) : checkpoint(block, x);
  }
  std::vector<at::Tensor> seen = {x.detach()};
  x.pow(2).sum().backward();
  seen.push_back(input.grad());
  for (const Block& block : blocks) {
    EXPECT_EQ(block->calls, how == How::kPlain ? 1 : 2);
    for (const at::Tensor& parameter : block->parameters()) seen.push_back(parameter.grad());
    for (const at::Tensor& buffer : block->buffers()) seen.push_back(buffer);
  }
  seen.push_back(at::rand({1}));
  return seen;
}

void expect_same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i], b[i])) << i;
}

TEST(Checkpoint, IsAPlainCallToTheBit) {
  expect_same(pass_of_three(How::kCheckpointed), pass_of_three(How::kPlain));
}

TEST(Checkpoint, KeepsNothingOfThePart) {
  const at::Tensor input = at::ones({3}).requires_grad_();
  c10::weak_intrusive_ptr<c10::TensorImpl> inner(at::ones({1}).getIntrusivePtr());
  const at::Tensor output = checkpoint(
      [&inner](const at::Tensor& x) {
        const at::Tensor between = x.exp();
        inner = c10::weak_intrusive_ptr<c10::TensorImpl>(between.getIntrusivePtr());
        return between.sin();
      },
      input);
  EXPECT_TRUE(inner.expired());
  output.sum().backward();
  EXPECT_TRUE(at::equal(input.grad(), at::ones({3}).exp().cos() * at::ones({3}).exp()));
}

TEST(Checkpoint, TakesFunctionsWithParametersOfTheirOwn) {
  const at::Tensor weight = at::full({2}, 3.0).requires_grad_();
  const at::Tensor input = at::tensor({1.0, 2.0}, at::kFloat);
  CheckpointOptions uses;
  uses.parameters = {weight, weight};
  const auto product = [weight](const at::Tensor& x) { return x * weight; };
  checkpoint(uses, product, input).sum().backward();
  EXPECT_TRUE(at::equal(weight.grad(), input));
  std::string text;
  EXPECT_EQ(
      code_of([&] { checkpoint(product, input.clone().requires_grad_()).sum().backward(); }, &text),
      ErrorCode::kFailedPrecondition);
  EXPECT_THAT(text, AllOf(HasSubstr("sizes [2]"), HasSubstr("CheckpointOptions::parameters")));
  // Through something that was computed before.
  const at::Tensor outside = weight.exp();
  EXPECT_EQ(code_of(
                [&] {
                  const auto part = [outside](const at::Tensor& x) { return x * outside; };
                  checkpoint(part, input.clone().requires_grad_()).sum().backward();
                },
                &text),
            ErrorCode::kFailedPrecondition);
}

TEST(Checkpoint, HasSeveralInputsAndOutputs) {
  const at::Tensor a = at::full({2}, 2.0).requires_grad_();
  const at::Tensor b = at::full({2}, 5.0).requires_grad_();
  const auto [sum, nothing, product] =
      checkpoint([](const at::Tensor& x,
                    const at::Tensor& y) { return std::make_tuple(x + y, at::Tensor(), x * y); },
                 a, b);
  EXPECT_FALSE(nothing.defined());
  // One of them is not used.
  product.sum().backward();
  EXPECT_TRUE(at::equal(a.grad(), b));
  EXPECT_TRUE(at::equal(b.grad(), a));
  const std::vector<at::Tensor> list = checkpoint(
      [](const at::Tensor& x) {
        return std::vector<at::Tensor>{x, x.argmax(0)};
      },
      a);
  EXPECT_TRUE(list[0].requires_grad());
  EXPECT_FALSE(list[1].requires_grad());
  const auto pair = checkpoint([](const at::Tensor& x) { return std::make_pair(x * 2, x * 3); }, a);
  a.mutable_grad().reset();
  (pair.first + pair.second).sum().backward();
  EXPECT_TRUE(at::equal(a.grad(), at::full({2}, 5.0)));
}

TEST(Checkpoint, IsAPlainCallWhereNothingNeedsGradients) {
  Block block;
  const at::Tensor input = at::ones({4, 6});
  {
    const at::NoGradGuard no_grad;
    EXPECT_FALSE(checkpoint(block, input).requires_grad());
  }
  int calls = 0;
  const auto part = [&calls](const at::Tensor& x) {
    ++calls;
    return x.exp();
  };
  EXPECT_FALSE(checkpoint(part, input).requires_grad());
  EXPECT_EQ(calls, 1);
}

TEST(Checkpoint, NestsAndRunsTwice) {
  const at::Tensor input = at::ones({3}).requires_grad_();
  const at::Tensor weight = at::full({3}, 2.0).requires_grad_();
  CheckpointOptions uses;
  uses.parameters = {weight};
  const auto inner = [weight](const at::Tensor& x) { return (x * weight).sin(); };
  const at::Tensor output = checkpoint(
      uses, [&](const at::Tensor& x) { return checkpoint(uses, inner, x).exp(); }, input);
  output.sum().backward({}, /*retain_graph=*/true);
  const at::Tensor once = weight.grad().clone();
  EXPECT_TRUE(at::allclose(once, at::full({3}, 2.0).cos() * at::full({3}, 2.0).sin().exp()));
  output.sum().backward();
  EXPECT_TRUE(at::equal(weight.grad(), once * 2));
}

TEST(Checkpoint, BuffersAreThoseOfTheFirstRun) {
  Block block;
  const at::Tensor input = at::randn({4, 6}).requires_grad_();
  block->eval();
  block->forward(input).sum().backward();
  const at::Tensor expected = input.grad().clone();
  input.mutable_grad().reset();
  const at::Tensor output = checkpoint(block, input);
  // Another batch, as with a forward() in between.
  block->norm->running_var.fill_(100);
  output.sum().backward();
  EXPECT_TRUE(at::equal(input.grad(), expected));
  EXPECT_EQ(block->norm->running_var[0].item<double>(), 100);
}

TEST(Checkpoint, AutocastIsThatOfForward) {
  const at::Tensor input = at::randn({4, 4}).requires_grad_();
  const at::Tensor weight = at::randn({4, 4}).requires_grad_();
  CheckpointOptions uses;
  uses.parameters = {weight};
  const auto part = [weight](const at::Tensor& x) { return x.mm(weight); };
  const auto gradients = [&](How how) {
    input.mutable_grad().reset();
    weight.mutable_grad().reset();
    at::autocast::set_cpu_enabled(true);
    const at::Tensor output = how == How::kPlain ? part(input) : checkpoint(uses, part, input);
    at::autocast::clear_cache();
    at::autocast::set_cpu_enabled(false);
    EXPECT_EQ(output.scalar_type(), at::kBFloat16);
    output.sum().backward();
    return std::vector<at::Tensor>{input.grad(), weight.grad()};
  };
  expect_same(gradients(How::kCheckpointed), gradients(How::kPlain));
}

// ---- What would be wrong.

TEST(Checkpoint, RefusesOtherOutputsAndDraws) {
  const at::Tensor input = at::ones({3}).requires_grad_();
  std::string text;
  int calls = 0;
  const auto grows = [&calls](const at::Tensor& x) { return x.repeat({++calls}); };
  EXPECT_EQ(code_of([&] { checkpoint(grows, input).sum().backward(); }, &text),
            ErrorCode::kFailedPrecondition);
  EXPECT_THAT(text, HasSubstr("other outputs"));
  calls = 0;
  const auto draws = [&calls](const at::Tensor& x) {
    return ++calls == 1 ? x * 2 : x * at::rand({3});
  };
  const at::Tensor before = at::detail::getDefaultCPUGenerator().get_state();
  EXPECT_EQ(code_of([&] { checkpoint(draws, input).sum().backward(); }, &text),
            ErrorCode::kFailedPrecondition);
  EXPECT_THAT(text, HasSubstr("RandomNumbers::kIgnored"));
  EXPECT_TRUE(at::equal(at::detail::getDefaultCPUGenerator().get_state(), before));
  calls = 0;
  CheckpointOptions any;
  any.random = RandomNumbers::kIgnored;
  EXPECT_NO_THROW(checkpoint(any, draws, input).sum().backward());
}

TEST(Checkpoint, RefusesChangesInPlace) {
  const at::Tensor input = at::ones({3}).requires_grad_() * 1;
  std::string text;
  EXPECT_EQ(
      code_of([&] { checkpoint([](const at::Tensor& x) { return x.relu_(); }, input); }, &text),
      ErrorCode::kInvalidArgument);
  EXPECT_THAT(text, AllOf(HasSubstr("input 0"), HasSubstr("in place")));
  // Between the runs: LibTorch sees that.
  const at::Tensor weight = at::ones({3}).requires_grad_();
  CheckpointOptions uses;
  uses.parameters = {weight};
  const at::Tensor output = checkpoint(
      uses, [weight](const at::Tensor& x) { return x * weight; }, at::ones({3}));
  {
    const at::NoGradGuard no_grad;
    weight.add_(1);
  }
  EXPECT_THROW(output.sum().backward(), c10::Error);
}

TEST(Checkpoint, RefusesGradientsOfGradients) {
  const at::Tensor input = at::ones({3}).requires_grad_();
  const at::Tensor output = checkpoint([](const at::Tensor& x) { return x.exp(); }, input);
  std::string text;
  EXPECT_EQ(code_of([&] { torch::autograd::grad({output.sum()}, {input}, {}, true, true); }, &text),
            ErrorCode::kUnimplemented);
  EXPECT_THAT(text, HasSubstr("create_graph"));
}

TEST(Checkpoint, ErrorsOfThePartComeThrough) {
  Block block;
  const at::Tensor input = at::ones({4, 6}).requires_grad_();
  int calls = 0;
  const auto fails = [&](const at::Tensor& x) {
    if (++calls == 2) throw std::runtime_error("no second run");
    return block->forward(x);
  };
  CheckpointOptions uses;
  uses.parameters = block->parameters();
  uses.buffers = block->buffers();
  const at::Tensor output = checkpoint(uses, fails, input);
  const at::Tensor mean = block->norm->running_mean.clone();
  EXPECT_THROW(output.sum().backward(), std::runtime_error);
  EXPECT_TRUE(at::equal(block->norm->running_mean, mean));
}

}  // namespace
