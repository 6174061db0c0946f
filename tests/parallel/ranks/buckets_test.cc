// Which gradients are reduced together, where they lie, and what hooks make of them.

#include <torch/nn.h>

#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "sinew/parallel/distributed_data_parallel.h"
#include "sinew/tests/parallel/ranks/models.h"
#include "sinew/tests/parallel/ranks/rank_test.h"

using sinew::ErrorCode;
using sinew::Future;
using sinew::ProcessGroup;
using sinew::RpcError;
using sinew::parallel::CommHook;
using sinew::parallel::DdpOptions;
using sinew::parallel::DistributedDataParallel;
using sinew::parallel::GradientBucket;
using sinew::parallel::GradientMemory;
using sinew::parallel::UnusedParameters;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testranks::error_of;
using testranks::Mlp;

namespace {

class Buckets : public testranks::RankTest {};

/// Two layers, of which the one that is registered last is used first.
class Crossed : public torch::nn::Module {
 public:
  Crossed() {
    last = register_module("last", torch::nn::Linear(4, 4));
    first = register_module("first", torch::nn::Linear(4, 4));
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& input) { return last->forward(first->forward(input)); }

  torch::nn::Linear first{nullptr};
  torch::nn::Linear last{nullptr};
};

/// The means, and the names of the parameters in each bucket of the latest pass.
class Recorder {
 public:
  explicit Recorder(const torch::nn::Module& module) : module_(module) {}

  CommHook hook() {
    return [this](const ProcessGroup& group, const GradientBucket& bucket) {
      if (bucket.index == 0) names_.clear();
      std::string names;
      for (const at::Tensor& parameter : bucket.parameters) names += name_of(parameter) + " ";
      names_.push_back(names);
      return sinew::parallel::all_reduce_hook()(group, bucket);
    };
  }
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::string name_of(const at::Tensor& parameter) const {
    for (const auto& item : module_.named_parameters()) {
      if (item.value().is_same(parameter)) return item.key();
    }
    return "?";
  }

  const torch::nn::Module& module_;
  std::vector<std::string> names_;
};

TEST_F(Buckets, TheFirstOneIsSmallAndTheOrderIsThatOfTheGradients) {
  const auto model = std::make_shared<Crossed>();
  Recorder recorder(*model);
  DdpOptions options;
  options.first_bucket_bytes = 1;
  options.comm_hook = recorder.hook();
  DistributedDataParallel ddp(model, group(), options);
  const at::Tensor input = at::ones({2, 4}, at::kDouble);
  ddp.forward(input).sum().backward();
  EXPECT_THAT(recorder.names(), ElementsAre("first.bias ", "first.weight last.bias last.weight "));
  ddp.forward(input).sum().backward();
  ASSERT_EQ(recorder.names().size(), 2U);
  EXPECT_THAT(recorder.names()[0], HasSubstr("last."));
  EXPECT_THAT(recorder.names()[1], HasSubstr("first.weight"));
  EXPECT_THAT(recorder.names()[1], HasSubstr("first.bias"));
}

TEST_F(Buckets, GradientsLieInThemWhenTheyAreViews) {
  for (const auto memory : {GradientMemory::kOwn, GradientMemory::kBucketViews}) {
    const auto model = std::make_shared<Crossed>();
    DdpOptions options;
    options.gradients = memory;
    options.first_bucket_bytes = options.bucket_bytes;
    DistributedDataParallel ddp(model, group(), options);
    const at::Tensor input = at::ones({2, 4}, at::kDouble);
    const auto backward = [&] { ddp.forward(input).sum().backward(); };
    backward();
    backward();
    const at::Tensor one = model->first->weight.grad();
    const at::Tensor other = model->last->bias.grad();
    const bool views = memory == GradientMemory::kBucketViews;
    EXPECT_EQ(one.storage().data() == other.storage().data(), views);
    // Zeros in place, so that views stay what they are.
    ddp.zero_grad();
    EXPECT_TRUE(model->first->weight.grad().is_same(one));
    EXPECT_EQ(one.abs().max().item<double>(), 0);
    backward();
    EXPECT_EQ(model->first->weight.grad().data_ptr() == one.data_ptr(), true);
    EXPECT_GT(one.abs().max().item<double>(), 0);
  }
}

// ---- Hooks.

/// A parameter whose gradient is what it is multiplied by.
class Factor : public torch::nn::Module {
 public:
  Factor() { weight = register_parameter("weight", at::ones({4})); }
  at::Tensor forward(const at::Tensor& input) { return (input * weight).sum(); }
  at::Tensor weight;
};

at::Tensor gradient_with(const ProcessGroup& group, const CommHook& hook, double value) {
  const auto model = std::make_shared<Factor>();
  DdpOptions options;
  options.comm_hook = hook;
  DistributedDataParallel ddp(model, group, options);
  ddp.forward(at::full({4}, value)).backward();
  return model->weight.grad();
}

// Half precision has ten digits of two and ends at 65504; bfloat16 has seven and float's range.
TEST_F(Buckets, CompressionRoundsAsItsTypeDoes) {
  const double fine = 1 + 1.0 / 512;
  const auto half = sinew::parallel::fp16_compress_hook();
  const auto brain = sinew::parallel::bf16_compress_hook();
  EXPECT_TRUE(gradient_with(group(), half, fine).equal(at::full({4}, fine)));
  EXPECT_TRUE(gradient_with(group(), brain, fine).equal(at::ones({4})));
  // The sum of all ranks' would be too large, their mean is not.
  EXPECT_TRUE(gradient_with(group(), half, 40000).equal(at::full({4}, 40000)));
  EXPECT_TRUE(
      gradient_with(group(), brain, std::ldexp(1, 100)).equal(at::full({4}, std::ldexp(1, 100))));
}

TEST_F(Buckets, AHookThatReturnsSomethingElseIsNamed) {
  const auto returning = [](const at::Tensor& result) {
    return [result](const ProcessGroup&, const GradientBucket&) {
      return sinew::make_ready_future(result);
    };
  };
  const auto message = [&](const at::Tensor& result) {
    return error_of([&] { gradient_with(group(), returning(result), 1); }).message();
  };
  EXPECT_THAT(message(at::ones({3})),
              HasSubstr("a communication hook has returned 3 elements of type Float for bucket 0, "
                        "which has 4 elements of type Float"));
  EXPECT_THAT(message(at::ones({4}, at::kDouble)), HasSubstr("4 elements of type Double"));
  EXPECT_THAT(message(at::Tensor()), HasSubstr("returned an undefined tensor"));
}

// ---- What forward() returns.

class Outputs : public torch::nn::Module {
 public:
  using All = std::tuple<at::Tensor, std::map<std::string, at::Tensor>, std::optional<at::Tensor>,
                         std::pair<int, std::vector<at::Tensor>>>;

  Outputs() {
    for (int i = 0; i < 4; ++i) {
      weights.push_back(register_parameter("weight" + std::to_string(i), at::ones({1})));
    }
  }
  All forward(const at::Tensor& input) {
    return {input * weights[0],
            {{"a", input * weights[1]}},
            input * weights[2],
            {0, {input * weights[3], input}}};
  }
  std::vector<at::Tensor> weights;
};

// All of them are used, though each by one part of the result alone.
TEST_F(Buckets, UnusedParametersAreFoundFromAllPartsOfAResult) {
  const auto model = std::make_shared<Outputs>();
  DdpOptions options;
  options.unused_parameters = UnusedParameters::kFound;
  DistributedDataParallel ddp(model, group(), options);
  const auto [first, named, maybe, listed] = ddp.forward(at::full({1}, rank() + 1.0));
  (first + named.at("a") + *maybe + listed.second[0]).backward();
  for (const at::Tensor& weight : model->weights) {
    EXPECT_FLOAT_EQ(weight.grad().item<float>(), (1 + size()) / 2.0F);
  }
}

// ---- Parameters.

class Tied : public torch::nn::Module {
 public:
  explicit Tied(double start) {
    weight = register_parameter("weight", at::full({2}, start));
    register_parameter("tied", weight);
    fixed = register_parameter("fixed", at::full({2}, start), /*requires_grad=*/false);
  }
  at::Tensor forward(const at::Tensor& input) { return (input * weight * weight * fixed).sum(); }
  at::Tensor weight;
  at::Tensor fixed;
};

TEST_F(Buckets, SharedAndFixedParameters) {
  const auto model = std::make_shared<Tied>(rank() + 1.0);
  DistributedDataParallel ddp(model, group());
  EXPECT_TRUE(model->weight.equal(at::ones({2})));
  EXPECT_TRUE(model->fixed.equal(at::ones({2}))) << model->fixed;
  ddp.forward(at::full({2}, rank() + 1.0)).backward();
  EXPECT_TRUE(model->weight.grad().allclose(at::full({2}, 1.0 + size())));
}

}  // namespace
