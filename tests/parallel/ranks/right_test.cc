// A gradient is the mean over all ranks, or an error on all of them: programs that use a module in
// ways in which ranks could part without a word.

#include <torch/nn.h>
#include <torch/optim.h>

#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "sinew/parallel/distributed_data_parallel.h"
#include "sinew/tests/parallel/ranks/rank_test.h"

using sinew::ErrorCode;
using sinew::RpcError;
using sinew::parallel::BufferSync;
using sinew::parallel::DdpOptions;
using sinew::parallel::DistributedDataParallel;
using sinew::parallel::GradientMemory;
using sinew::parallel::UnusedParameters;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testranks::error_of;

namespace {

class Right : public testranks::RankTest {
 protected:
  /// 1, 3, 5, ...: their mean over the ranks is size().
  at::Tensor odd(double factor = 1) const {
    return at::full({1}, factor * (2 * rank() + 1), at::kDouble);
  }
};

/// Two factors, of which a forward() uses the ones that it is told to.
class Factors : public torch::nn::Module {
 public:
  explicit Factors(bool second_is_fixed = false) {
    a = register_parameter("a", at::ones({1}, at::kDouble));
    b = register_parameter("b", at::ones({1}, at::kDouble), !second_is_fixed);
  }
  at::Tensor forward(const at::Tensor& input, bool first, bool second) {
    at::Tensor sum = at::zeros({1}, at::kDouble);
    if (first) sum = sum + a * input;
    if (second) sum = sum + b * input;
    return sum;
  }
  at::Tensor a;
  at::Tensor b;
};

DdpOptions finding_unused() {
  DdpOptions options;
  options.unused_parameters = UnusedParameters::kFound;
  return options;
}

std::vector<DdpOptions> kinds_of_buckets() {
  DdpOptions each;
  each.bucket_bytes = 1;
  each.first_bucket_bytes = 1;
  DdpOptions views;
  views.gradients = GradientMemory::kBucketViews;
  return {DdpOptions(), each, views};
}

double value(const at::Tensor& tensor) { return tensor.item<double>(); }

// ---- The module changes.

TEST_F(Right, AParameterThatIsUnfrozenIsNamed) {
  const auto model = std::make_shared<Factors>(/*second_is_fixed=*/true);
  DistributedDataParallel ddp(model, group());
  ddp.forward(odd(), true, true).backward();
  model->b.set_requires_grad(true);
  const RpcError error = error_of([&] { ddp.forward(odd(), true, true); });
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(error.message(), HasSubstr("'b' requires a gradient now"));
  model->b.set_requires_grad(false);
  model->zero_grad();
  ddp.forward(odd(), true, true).backward();
  EXPECT_EQ(value(model->a.grad()), size());
}

TEST_F(Right, AParameterThatIsFrozenIsNamedOrUnused) {
  const auto model = std::make_shared<Factors>();
  DistributedDataParallel strict(model, group());
  model->b.set_requires_grad(false);
  EXPECT_THAT(error_of([&] { strict.forward(odd(), true, true); }).message(),
              HasSubstr("'b' requires no gradient any more"));
  const auto other = std::make_shared<Factors>();
  DistributedDataParallel finding(other, group(), finding_unused());
  other->b.set_requires_grad(false);
  finding.forward(odd(), true, true).backward();
  EXPECT_EQ(value(other->a.grad()), size());
  EXPECT_FALSE(other->b.grad().defined());
}

TEST_F(Right, ParametersThatAreAddedOrReplacedAreNamed) {
  const auto model = std::make_shared<Factors>();
  DistributedDataParallel ddp(model, group());
  ddp.forward(odd(), true, true).backward();
  model->register_parameter("late", at::ones({1}, at::kDouble));
  EXPECT_THAT(error_of([&] { ddp.forward(odd(), true, true); }).message(),
              HasSubstr("'late' was added or replaced"));

  torch::nn::Sequential layers(torch::nn::Linear(1, 1), torch::nn::Linear(1, 1));
  DistributedDataParallel sequence(layers, group());
  sequence.forward(at::ones({1, 1})).sum().backward();
  layers->replace_module("1", torch::nn::Linear(1, 1));
  const RpcError error = error_of([&] { sequence.forward(at::ones({1, 1})); });
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("'1.weight' was added or replaced"),
                                     HasSubstr("'1.bias' is not there any more")));
}

// ---- Unused parameters.

// Before anybody can step; and a sum of the bucket's shape right after meets none of a bucket.
TEST_F(Right, AParameterThatOneRankHasNotUsedIsAnErrorOfThePassOnAllRanks) {
  for (const DdpOptions& options : kinds_of_buckets()) {
    const auto model = std::make_shared<Factors>();
    DistributedDataParallel ddp(model, group(), options);
    for (int step = 0; step < 2; ++step) {
      const RpcError error =
          error_of([&] { ddp.forward(odd(), true, /*second=*/rank() == 0).backward(); });
      EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
      EXPECT_THAT(error.message(), AllOf(HasSubstr("on rank 1"), HasSubstr("'b'"),
                                         Not(HasSubstr("on rank 0")), HasSubstr("kFound")));
      const at::Tensor sum = at::ones({1}, at::kDouble);
      group().all_reduce(sum);
      EXPECT_EQ(value(sum), size());
      // The next pass is none the worse for it.
      ddp.zero_grad();
      ddp.forward(odd(), true, true).backward();
      EXPECT_EQ(value(model->a.grad()), size());
      EXPECT_EQ(value(model->b.grad()), size());
    }
  }
}

TEST_F(Right, WhatOnlyPassesWithoutSyncHaveUsedIsReduced) {
  for (const bool all_of_them : {true, false}) {
    const auto model = std::make_shared<Factors>();
    DistributedDataParallel ddp(model, group(), finding_unused());
    {
      const auto scope = ddp.no_sync();
      ddp.forward(odd(), true, all_of_them || rank() == 1).backward();
    }
    ddp.forward(odd(10), true, false).backward();
    EXPECT_EQ(value(model->a.grad()), 11 * size());
    ASSERT_TRUE(model->b.grad().defined());
    EXPECT_DOUBLE_EQ(value(model->b.grad()), all_of_them ? size() : 3.0 / size());
    // What has been reduced stays as it is when nobody uses it.
    ddp.forward(odd(), true, false).backward();
    EXPECT_DOUBLE_EQ(value(model->b.grad()), all_of_them ? size() : 3.0 / size());
  }
}

// ---- Several passes, several calls.

TEST_F(Right, TwoForwardsAndTwoBackwards) {
  for (const DdpOptions& options : kinds_of_buckets()) {
    for (const bool backwards : {false, true}) {
      const auto model = std::make_shared<Factors>();
      DistributedDataParallel ddp(model, group(), options);
      for (int step = 0; step < 2; ++step) {
        ddp.zero_grad();
        at::Tensor first = ddp.forward(odd(1), true, true);
        at::Tensor second = ddp.forward(odd(10), true, true);
        if (backwards) std::swap(first, second);
        first.backward();
        second.backward();
        EXPECT_EQ(value(model->a.grad()), 11 * size());
        EXPECT_EQ(value(model->b.grad()), 11 * size());
      }
    }
  }
}

TEST_F(Right, OneForwardAndTwoBackwards) {
  const auto model = std::make_shared<Factors>();
  DistributedDataParallel ddp(model, group());
  const at::Tensor output = ddp.forward(odd(), true, true);
  output.backward({}, /*retain_graph=*/true);
  EXPECT_EQ(value(model->a.grad()), size());
  output.backward();
  EXPECT_EQ(value(model->a.grad()), 2 * size());
}

TEST_F(Right, OneBackwardOfTwoForwardsThatUseDifferentParameters) {
  const auto model = std::make_shared<Factors>();
  DistributedDataParallel ddp(model, group(), finding_unused());
  (ddp.forward(odd(), true, false) + ddp.forward(odd(10), false, true)).backward();
  EXPECT_EQ(value(model->a.grad()), size());
  EXPECT_EQ(value(model->b.grad()), 10 * size());
}

TEST_F(Right, AForwardWithoutSyncBetweenForwardAndBackward) {
  const auto model = std::make_shared<Factors>();
  DistributedDataParallel ddp(model, group());
  const at::Tensor output = ddp.forward(odd(), true, true);
  {
    const auto scope = ddp.no_sync();
    ddp.forward(odd(10), true, true);
  }
  output.backward();
  EXPECT_EQ(value(model->a.grad()), size());
}

/// A trunk with two heads.
class ActorAndCritic : public torch::nn::Module {
 public:
  ActorAndCritic() {
    trunk = register_parameter("trunk", at::ones({1}, at::kDouble));
    actor = register_parameter("actor", at::ones({1}, at::kDouble));
    critic = register_parameter("critic", at::ones({1}, at::kDouble));
  }
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& input) {
    const at::Tensor hidden = trunk * input;
    return {hidden * actor, hidden * critic};
  }
  at::Tensor trunk;
  at::Tensor actor;
  at::Tensor critic;
};

TEST_F(Right, LossesOfTwoHeadsOneAfterTheOther) {
  const auto model = std::make_shared<ActorAndCritic>();
  DistributedDataParallel ddp(model, group(), finding_unused());
  for (int step = 0; step < 2; ++step) {
    ddp.zero_grad();
    const auto [policy, worth] = ddp.forward(odd());
    policy.backward({}, /*retain_graph=*/true);
    (10 * worth).backward();
    EXPECT_EQ(value(model->trunk.grad()), 11 * size());
    EXPECT_EQ(value(model->actor.grad()), size());
    EXPECT_EQ(value(model->critic.grad()), 10 * size());
  }
  const auto other = std::make_shared<ActorAndCritic>();
  DistributedDataParallel strict(other, group());
  const auto [policy, worth] = strict.forward(odd());
  EXPECT_THAT(error_of([&, policy = policy] { policy.backward(); }).message(),
              HasSubstr("no gradient for parameters of the data-parallel module: 'critic'"));
}

TEST_F(Right, WhatIsLeftOfAModuleIsNotReducedWithoutAWord) {
  const auto model = std::make_shared<Factors>();
  at::Tensor output;
  {
    DistributedDataParallel ddp(model, group());
    output = ddp.forward(odd(), true, true);
  }
  EXPECT_THAT(error_of([&] { output.backward(); }).message(), HasSubstr("no longer there"));
}

// ---- Ranks in different passes.

TEST_F(Right, ARankThatGoesOnAfterAFailedPassIsFoundByAll) {
  const auto model = std::make_shared<Factors>();
  DistributedDataParallel ddp(model, group());
  if (rank() == 0) {
    const at::Tensor output = ddp.forward(odd(), true, true) * 2;
    output.register_hook([](const at::Tensor&) { throw std::runtime_error("a hook broke"); });
    EXPECT_THROW(output.backward(), std::exception);
  }
  const RpcError error = error_of([&] { ddp.forward(odd(), true, true).backward(); });
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("rank 0 those of call 2 of forward()"),
                                     HasSubstr("those of call 1")));
}

TEST_F(Right, ModulesInAnotherOrderAreFoundByAll) {
  const auto first = std::make_shared<Factors>();
  const auto second = std::make_shared<Factors>();
  DistributedDataParallel one(first, group());
  DistributedDataParallel other(second, group());
  for (const bool turn : {true, false}) {
    auto& ddp = turn == (rank() == 0) ? one : other;
    const RpcError error = error_of([&] { ddp.forward(odd(), true, true).backward(); });
    EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
    EXPECT_THAT(error.message(), HasSubstr("ranks reduce gradients of different passes together"));
  }
}

TEST_F(Right, CallsWhosePassesComeInAnotherOrderAreFoundByAll) {
  const auto model = std::make_shared<Factors>();
  DistributedDataParallel ddp(model, group());
  std::vector<at::Tensor> outputs = {ddp.forward(odd(), true, true),
                                     ddp.forward(odd(10), true, true)};
  if (rank() == 0) std::swap(outputs[0], outputs[1]);
  for (const at::Tensor& output : outputs) {
    EXPECT_THAT(error_of([&] { output.backward(); }).message(),
                AllOf(HasSubstr("call 1 of forward()"), HasSubstr("call 2 of forward()")));
  }
}

/// Its first forward() waits until it is let go.
class Waiting : public torch::nn::Module {
 public:
  Waiting() { weight = register_parameter("weight", at::ones({1}, at::kDouble)); }
  at::Tensor forward(const at::Tensor& input) {
    if (!std::exchange(is_inside_, true)) {
      inside.set_value();
      EXPECT_EQ(go.get_future().wait_for(std::chrono::seconds(50)), std::future_status::ready);
    }
    return input * weight;
  }
  at::Tensor weight;
  std::promise<void> inside;
  std::promise<void> go;

 private:
  bool is_inside_ = false;
};

TEST_F(Right, TwoThreadsAtOnceAreAnError) {
  const auto model = std::make_shared<Waiting>();
  DistributedDataParallel ddp(model, group());
  at::Tensor output;
  std::thread other([&] { output = ddp.forward(odd()); });
  model->inside.get_future().wait();
  const RpcError error = error_of([&] { ddp.forward(odd(10)); });
  model->go.set_value();
  other.join();
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(error.message(), HasSubstr("two threads call forward()"));
  // A backward pass is use too.
  std::string text;
  model->weight.register_hook(
      [&](const at::Tensor&) { text = error_of([&] { ddp.forward(odd(10)); }).message(); });
  output.backward();
  EXPECT_THAT(text, HasSubstr("while a backward pass of it runs"));
  EXPECT_EQ(value(model->weight.grad()), size());
}

// ---- forward() changes parameters.

/// Scales its weight by its input, as max_norm may.
class Restless : public torch::nn::Module {
 public:
  Restless() { weight = register_parameter("weight", at::ones({1}, at::kDouble)); }
  at::Tensor forward(const at::Tensor& input) {
    {
      const at::AutoGradMode no_grad(false);
      weight.mul_(input);
    }
    return input * weight;
  }
  at::Tensor weight;
};

TEST_F(Right, WeightsThatForwardChangesOnEachRankByItself) {
  for (const bool while_evaluating : {false, true}) {
    const auto model = std::make_shared<Restless>();
    DistributedDataParallel ddp(model, group());
    const at::Tensor same = at::full({1}, 2, at::kDouble);
    if (while_evaluating) {
      const at::AutoGradMode no_grad(false);
      ddp.forward(odd());
    }
    const RpcError error =
        error_of([&] { ddp.forward(while_evaluating ? same : odd()).backward(); });
    EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
    EXPECT_THAT(error.message(), AllOf(HasSubstr("have parted"), HasSubstr("rank 0 has 'weight'"),
                                       HasSubstr("max_norm")));
  }
  // Alike on all ranks, it is no mistake.
  const auto model = std::make_shared<Restless>();
  DistributedDataParallel ddp(model, group());
  ddp.forward(at::full({1}, 2, at::kDouble)).backward();
  EXPECT_EQ(value(model->weight.grad()), 2);
}

TEST_F(Right, EmbeddingsWithAMaximalNorm) {
  torch::nn::Embedding table(torch::nn::EmbeddingOptions(8, 2).max_norm(0.1));
  DistributedDataParallel ddp(table, group());
  EXPECT_THAT(
      error_of([&] { ddp.forward(at::full({1}, rank(), at::kLong)).sum().backward(); }).message(),
      HasSubstr("rank 0 has 'weight' with checksum"));
}

// ---- Buffers between forward() and backward().

class Normalised : public torch::nn::Module {
 public:
  Normalised() {
    linear = register_module("linear", torch::nn::Linear(2, 3));
    norm = register_module("norm", torch::nn::BatchNorm1d(3));
    to(at::kDouble);
    const at::AutoGradMode no_grad(false);
    for (const at::Tensor& parameter : parameters()) {
      parameter.copy_(at::arange(parameter.numel(), at::kDouble).add(1).sin().view_as(parameter));
    }
  }
  at::Tensor forward(const at::Tensor& input) {
    return norm->forward(linear->forward(input)).pow(3);
  }
  torch::nn::Linear linear{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};

TEST_F(Right, StatisticsMayBeCopiedBetweenForwardAndBackward) {
  const auto input = [&](int call) {
    return at::arange(8, at::kDouble).mul(1.7).add(call + 3 * rank()).sin().view({4, 2});
  };
  enum Between { kForward, kEvaluation, kSync, kLast };
  for (int between = 0; between < kLast; ++between) {
    std::vector<std::vector<at::Tensor>> gradients;
    for (const auto buffers : {BufferSync::kKept, BufferSync::kBroadcast}) {
      const auto model = std::make_shared<Normalised>();
      DdpOptions options;
      options.buffers = buffers;
      DistributedDataParallel ddp(model, group(), options);
      at::Tensor sum = ddp.forward(input(0)).sum();
      if (between == kForward) sum = sum + ddp.forward(input(1)).sum();
      if (between == kSync) ddp.sync_buffers();
      if (between == kEvaluation) {
        const at::AutoGradMode no_grad(false);
        model->eval();
        ddp.forward(input(2));
        model->train();
      }
      sum.backward();
      gradients.emplace_back();
      for (const at::Tensor& one : model->parameters()) gradients.back().push_back(one.grad());
    }
    for (std::size_t i = 0; i < gradients[0].size(); ++i) {
      EXPECT_TRUE(gradients[0][i].equal(gradients[1][i])) << between << " " << i;
    }
  }
}

}  // namespace
