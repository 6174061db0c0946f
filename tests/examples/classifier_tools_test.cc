#include <stdexcept>

#include "ATen/ATen.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/examples/image_classifier/metrics.h"
#include "sinew/examples/image_classifier/time_left.h"

namespace image_classifier {
namespace {

TEST(MetricsTest, CountsTheHighestScoreAndTheFiveHighest) {
  at::Tensor scores = at::zeros({3, 10});
  // Descending from class 9 to class 0 in all rows.
  scores += at::arange(10, at::kFloat);
  const at::Tensor labels = at::tensor({9, 5, 4}, at::kLong);
  Metrics metrics = to_metrics(sums_of(scores, labels, at::full({}, 2.0), {1, 5}));
  EXPECT_EQ(metrics.samples, 3);
  EXPECT_EQ(metrics.top, std::vector<double>({1, 2}));
  EXPECT_DOUBLE_EQ(metrics.loss, 6);
  EXPECT_DOUBLE_EQ(metrics.mean_loss(), 2);
  EXPECT_DOUBLE_EQ(metrics.top_share(1), 2.0 / 3);
  EXPECT_EQ(shares_text(metrics, {1, 5}), "loss 2.0000, top-1 0.3333, top-5 0.6667");
  metrics += to_metrics(to_tensor(metrics));
  EXPECT_EQ(metrics.top, std::vector<double>({2, 4}));
  Metrics none = to_metrics(no_sums({1, 5}, at::kCPU));
  none += metrics;
  EXPECT_EQ(none.top, metrics.top);
}

TEST(MetricsTest, TakesOtherNumbersThanOneAndFive) {
  const at::Tensor scores = at::arange(10, at::kFloat).expand({3, 10});
  const at::Tensor labels = at::tensor({9, 7, 4}, at::kLong);
  const Metrics metrics = to_metrics(sums_of(scores, labels, at::full({}, 1.0), {3}));
  EXPECT_EQ(metrics.top, std::vector<double>({2}));
}

TEST(MetricsTest, TakesWhatThereIsOfLessThanFiveClasses) {
  const at::Tensor scores = at::eye(2).flip({0});
  const Metrics metrics =
      to_metrics(sums_of(scores, at::tensor({0, 0}, at::kLong), at::full({}, 1.0), {1, 5}));
  EXPECT_EQ(metrics.top, std::vector<double>({1, 2}));
}

TEST(TimeTextTest, IsAsExactAsAnEstimate) {
  EXPECT_EQ(time_text(0), "0 s");
  EXPECT_EQ(time_text(1.2), "2 s");
  EXPECT_EQ(time_text(119), "2 min");
  EXPECT_EQ(time_text(12'000), "3 h 20 min");
  EXPECT_EQ(time_text(86'400 * 2 + 3 * 3600 + 59), "2 d 3 h");
}

}  // namespace
}  // namespace image_classifier
