#include <stdexcept>

#include "ATen/ATen.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/examples/image_classifier/metrics.h"
#include "sinew/examples/image_classifier/pictures.h"

namespace image_classifier {
namespace {

TEST(MetricsTest, CountsTheHighestScoreAndTheFiveHighest) {
  at::Tensor scores = at::zeros({3, 10});
  // Descending from class 9 to class 0 in all rows.
  scores += at::arange(10, at::kFloat);
  const at::Tensor labels = at::tensor({9, 5, 4}, at::kLong);
  const Metrics metrics = to_metrics(sums_of(scores, labels, at::full({}, 2.0)));
  EXPECT_EQ(metrics.samples, 3);
  EXPECT_EQ(metrics.top1, 1);
  EXPECT_EQ(metrics.top5, 2);
  EXPECT_DOUBLE_EQ(metrics.loss, 6);
  EXPECT_DOUBLE_EQ(metrics.mean_loss(), 2);
  EXPECT_DOUBLE_EQ(metrics.top5_share(), 2.0 / 3);
}

TEST(MetricsTest, TakesWhatThereIsOfLessThanFiveClasses) {
  const at::Tensor scores = at::eye(2).flip({0});
  const Metrics metrics =
      to_metrics(sums_of(scores, at::tensor({0, 0}, at::kLong), at::full({}, 1.0)));
  EXPECT_EQ(metrics.top1, 1);
  EXPECT_EQ(metrics.top5, 2);
}

examples::LabelledImages some_images(std::int64_t channels, std::int64_t side) {
  return {at::arange(4 * channels * side * side)
              .remainder(251)
              .to(at::kByte)
              .view({4, channels, side, side}),
          at::tensor({3, 1, 4, 1}, at::kLong)};
}

TEST(PicturesTest, NormalizesWhatWasChosen) {
  const examples::LabelledImages images = some_images(1, 28);
  const Pictures pictures(images, "MNIST");
  const Batch batch = pictures.batch(at::tensor({2, 0}, at::kLong), Augmentation::kNone, 0);
  EXPECT_TRUE(at::equal(batch.labels, at::tensor({4, 3}, at::kLong)));
  const double pixel = images.pixels[2][0][5][6].item<double>();
  EXPECT_NEAR(batch.pictures[0][0][5][6].item<double>(), (pixel / 255 - 0.1307) / 0.3081, 1e-5);
}

TEST(PicturesTest, AugmentsTheSameOnTheSameSeed) {
  const Pictures pictures(some_images(3, 32), "CIFAR-10");
  const at::Tensor all = at::arange(4, at::kLong);
  const auto with_seed = [&](std::uint64_t seed) {
    return pictures.batch(all, Augmentation::kCropAndFlip, seed).pictures;
  };
  const at::Tensor plain = pictures.batch(all, Augmentation::kNone, 0).pictures;
  EXPECT_TRUE(at::equal(with_seed(5), with_seed(5)));
  EXPECT_FALSE(at::equal(with_seed(5), with_seed(6)));
  EXPECT_EQ(with_seed(5).sizes(), plain.sizes());
  // Of 400 random changes, of 162 kinds, some leave the middle of a picture where it was, some
  // mirror it.
  bool same = false;
  bool mirrored = false;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const at::Tensor changed = with_seed(seed);
    same = same || at::equal(changed[0], plain[0]);
    mirrored = mirrored || at::equal(changed[0], plain[0].flip({2}));
  }
  EXPECT_TRUE(same);
  EXPECT_TRUE(mirrored);
}

}  // namespace
}  // namespace image_classifier
