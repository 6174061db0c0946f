// The networks of image_classifier.

#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rank_threads.h"
#include "sinew/examples/image_classifier/models/attention_block.h"
#include "sinew/examples/image_classifier/models/model_names.h"
#include "sinew/examples/image_classifier/models/resnet.h"
#include "torch/utils.h"

namespace image_classifier {
namespace {

using examples::testing::as_ranks;
using ::testing::Contains;
using ::testing::HasSubstr;

std::int64_t count_of(const torch::nn::Module& network) {
  std::int64_t count = 0;
  for (const at::Tensor& parameter : network.parameters()) count += parameter.numel();
  return count;
}

ResNetOptions small_network(const std::string& model) {
  ResNetOptions options;
  options.model = model;
  options.channels = 1;
  options.picture = {32, 48};
  options.width = 4;
  options.classes = 10;
  return options;
}

// Those of torchvision; botnet50: that of the Distribuuuu tutorial's, which gives the last stage of
// torchvision's resnet50 self-attention with four heads, for pictures of 224 x 224.
TEST(ModelsTest, HaveThePublishedNumbersOfParameters) {
  const std::vector<std::pair<std::string, std::int64_t>> published = {
      {"resnet18", 11'689'512},  {"resnet34", 21'797'672},  {"resnet50", 25'557'032},
      {"resnet101", 44'549'160}, {"resnet152", 60'192'808}, {"botnet50", 20'859'176}};
  EXPECT_EQ(published.size(), model_names().size());
  for (const auto& [model, count] : published) {
    ResNetOptions options;
    options.model = model;
    options.classes = 1000;
    EXPECT_EQ(count_of(ResNet(options)), count) << model;
  }
}

TEST(ModelsTest, HaveTheNamesOfTorchvision) {
  const ResNet small(small_network("resnet18"));
  const auto parameters = small.named_parameters().keys();
  EXPECT_EQ(parameters.size(), 62U);
  for (const char* name :
       {"conv1.weight", "bn1.bias", "layer1.0.conv1.weight", "layer1.1.bn2.weight",
        "layer2.0.downsample.0.weight", "layer2.0.downsample.1.bias", "fc.weight", "fc.bias"}) {
    EXPECT_THAT(parameters, Contains(name));
  }
  EXPECT_THAT(small.named_buffers().keys(), Contains("layer4.0.downsample.1.num_batches_tracked"));
  const ResNet large(small_network("resnet50"));
  EXPECT_THAT(large.named_parameters().keys(), Contains("layer3.5.conv3.weight"));
  EXPECT_EQ(large.named_parameters().size(), 161U);
}

TEST(ModelsTest, MakeAScoreForEachClass) {
  for (const std::string& model : model_names()) {
    ResNet network(small_network(model));
    network.eval();
    EXPECT_EQ(network.forward(at::zeros({2, 1, 32, 48})).sizes(), at::IntArrayRef({2, 10}))
        << model;
  }
  ResNetOptions options = small_network("resnet18");
  options.stem = Stem::kCifar;
  ResNet network(options);
  // Three of the four stages halve the sides: one pixel more than 8 makes two.
  EXPECT_EQ(network.forward(at::zeros({2, 1, 9, 9})).sizes(), at::IntArrayRef({2, 10}));
}

TEST(ModelsTest, AClonesScoresAreTheSame) {
  for (const char* model : {"resnet18", "botnet50"}) {
    ResNet network(small_network(model));
    network.forward(at::randn({4, 1, 32, 48}));
    network.eval();
    const auto clone = std::dynamic_pointer_cast<ResNet>(network.clone());
    ASSERT_NE(clone, nullptr);
    const at::Tensor pictures = at::randn({3, 1, 32, 48});
    EXPECT_TRUE(at::equal(clone->forward(pictures), network.forward(pictures)));
    EXPECT_FALSE(clone->parameters()[0].is_same(network.parameters()[0]));
  }
}

TEST(ModelsTest, RefuseWhatTheyAreNotMadeFor) {
  EXPECT_THROW(ResNet(small_network("resnet19")), std::invalid_argument);
  ResNetOptions options = small_network("botnet50");
  ResNet network(options);
  try {
    network.forward(at::zeros({2, 1, 64, 64}));
    ADD_FAILURE();
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("2 x 3, and not of 4 x 4"));
  }
  EXPECT_THROW(SelfAttention(6, {2, 2}), std::invalid_argument);
}

// Against the formula, place by place.
TEST(SelfAttentionTest, AsksAllPlacesByWhatAndWhereTheyAre) {
  torch::manual_seed(3);
  constexpr std::int64_t kHeight = 2;
  constexpr std::int64_t kWidth = 3;
  constexpr std::int64_t kOfHead = 2;
  SelfAttention attention(8, {kHeight, kWidth});
  const at::Tensor input = at::randn({1, 8, kHeight, kWidth});
  const at::NoGradGuard no_grad;
  const at::Tensor seen = attention.forward(input);
  const auto parameters = attention.named_parameters();
  const at::Tensor qk = at::conv2d(input, parameters["to_qk.weight"])[0];
  const at::Tensor values = at::conv2d(input, parameters["to_v.weight"])[0];
  const double scale = std::pow(kOfHead, -0.5);
  const auto of_head = [](const at::Tensor& all, std::int64_t first, std::int64_t y,
                          std::int64_t x) {
    return all.narrow(0, first, kOfHead).select(1, y).select(1, x);
  };
  for (std::int64_t head = 0; head < SelfAttention::kHeads; ++head) {
    for (std::int64_t place = 0; place < kHeight * kWidth; ++place) {
      const std::int64_t y = place / kWidth;
      const std::int64_t x = place % kWidth;
      const at::Tensor query = of_head(qk, head * kOfHead, y, x) * scale;
      std::vector<at::Tensor> logits;
      std::vector<at::Tensor> of_places;
      for (std::int64_t other = 0; other < kHeight * kWidth; ++other) {
        const std::int64_t v = other / kWidth;
        const std::int64_t u = other % kWidth;
        const at::Tensor where = parameters["rel_height"][v - y + kHeight - 1] +
                                 parameters["rel_width"][u - x + kWidth - 1];
        logits.push_back(query.dot(of_head(qk, 8 + head * kOfHead, v, u) + where));
        of_places.push_back(of_head(values, head * kOfHead, v, u));
      }
      const at::Tensor shares = at::stack(logits).softmax(0);
      const at::Tensor expected = at::mv(at::stack(of_places, 1), shares);
      EXPECT_TRUE(at::allclose(of_head(seen[0], head * kOfHead, y, x), expected, 1e-4, 1e-5))
          << head << " " << place;
    }
  }
}

// ---- What changes neither numbers nor names.

struct Seen {
  std::vector<at::Tensor> gradients;
  std::vector<at::Tensor> buffers;
};

Seen pass_through(const ResNetOptions& options) {
  torch::manual_seed(11);
  ResNet network(options);
  network.forward(at::randn({4, 1, 32, 48})).pow(2).sum().backward();
  Seen seen;
  for (const at::Tensor& parameter : network.parameters())
    seen.gradients.push_back(parameter.grad());
  seen.buffers = network.buffers();
  return seen;
}

void expect_same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i], b[i])) << i;
}

TEST(ModelsTest, ComputedAgainIsTheSameToTheBit) {
  for (const char* model : {"resnet18", "resnet50", "botnet50"}) {
    ResNetOptions options = small_network(model);
    const Seen kept = pass_through(options);
    options.activations = Activations::kComputedAgain;
    const Seen again = pass_through(options);
    expect_same(again.gradients, kept.gradients);
    expect_same(again.buffers, kept.buffers);
  }
}

TEST(ModelsTest, NormsOfAllRanksHaveTheSameNames) {
  as_ranks(1, [](const sinew::ProcessGroup& group) {
    ResNetOptions options = small_network("resnet18");
    const ResNet plain(options);
    options.norms_over = group;
    const ResNet together(options);
    EXPECT_EQ(together.named_parameters().keys(), plain.named_parameters().keys());
    EXPECT_EQ(together.named_buffers().keys(), plain.named_buffers().keys());
  });
}

}  // namespace
}  // namespace image_classifier
