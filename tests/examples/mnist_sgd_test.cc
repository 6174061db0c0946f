#include "sinew/examples/mnist_sgd/training.h"

#include <sstream>
#include <stdexcept>
#include <string>

#include "ATen/ATen.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "image_files.h"
#include "rank_threads.h"
#include "sinew/tests/support/temporary_folder.h"

namespace mnist_sgd {
namespace {

using examples::testing::as_ranks;
using ::testing::HasSubstr;

TEST(AverageGradientsTest, PutsTheMeanInPlaceOfEachGradient) {
  as_ranks(3, [](const sinew::ProcessGroup& group) {
    at::Tensor with = at::ones({2, 3}, at::requires_grad());
    const at::Tensor without = at::ones({2}, at::requires_grad());
    with.mutable_grad() = at::full({2, 3}, 1.0 + group.rank());
    const at::Tensor gradient = with.grad();
    average_gradients({with, without}, group);
    EXPECT_TRUE(at::equal(with.grad(), at::full({2, 3}, 2.0)));
    EXPECT_TRUE(with.grad().is_same(gradient)) << "the optimizer has it";
    EXPECT_FALSE(without.grad().defined());
  });
}

class MnistSgdTest : public ::testing::Test {
 protected:
  void SetUp() override {
    examples::testing::write_mnist(folder_, 600, 100);
    options_.data = folder_;
    options_.output = folder_ / "out";
    options_.batch = 20;
    options_.lr = 0.05;
  }

  const sinew::testing::TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
  Options options_;
};

TEST_F(MnistSgdTest, LearnsAloneAndIsTheSameOnTheSameSeed) {
  options_.epochs = 6;
  const examples::ImageFolder data = examples::load_images(folder_);
  TrainingResult first;
  TrainingResult second;
  std::ostringstream log;
  as_ranks(1, [&](const sinew::ProcessGroup& group) { first = train(group, data, options_, log); });
  as_ranks(1,
           [&](const sinew::ProcessGroup& group) { second = train(group, data, options_, log); });
  EXPECT_GT(first.test_accuracy, 0.9);
  EXPECT_THAT(log.str(), HasSubstr("Rank  0 , epoch  5 :  "));
  for (std::size_t i = 0; i < first.parameters.size(); ++i) {
    EXPECT_TRUE(at::equal(first.parameters[i], second.parameters[i])) << i;
  }
}

TEST_F(MnistSgdTest, RanksKeepTheSameParameters) {
  options_.epochs = 1;
  options_.max_steps = 4;
  options_.output.clear();
  const examples::ImageFolder data = examples::load_images(folder_);
  as_ranks(2, [&](const sinew::ProcessGroup& group) {
    std::ostringstream log;
    // Otherwise they would begin with the same ones by themselves.
    Options own = options_;
    own.seed += group.rank();
    const TrainingResult result = train(group, data, own, log);
    for (const at::Tensor& parameter : result.parameters) {
      const at::Tensor other = parameter.clone();
      group.broadcast(other, 0);
      EXPECT_TRUE(at::equal(parameter, other));
    }
  });
}

TEST_F(MnistSgdTest, RefusesWhatDoesNotFit) {
  examples::ImageFolder data = examples::load_images(folder_);
  // All ranks say the same, and none of them leaves the others waiting.
  const auto error = [&] {
    std::string texts[2];
    as_ranks(2, [&](const sinew::ProcessGroup& group) {
      std::ostringstream log;
      try {
        train(group, data, options_, log);
      } catch (const std::invalid_argument& failure) {
        texts[group.rank()] = failure.what();
      }
    });
    EXPECT_EQ(texts[0], texts[1]);
    return texts[0];
  };
  options_.batch = 1;
  EXPECT_THAT(error(), HasSubstr("--batch 1"));
  options_.batch = 20;
  data.name = "CIFAR-10";
  data.train.pixels = at::zeros({600, 3, 32, 32}, at::kByte);
  EXPECT_THAT(error(), HasSubstr("CIFAR-10"));
}

}  // namespace
}  // namespace mnist_sgd
