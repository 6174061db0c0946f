// scaled_all_reduce and SyncBatchNorm against one process.

#include <torch/nn.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "ATen/ATen.h"
#include "sinew/parallel/scaled_all_reduce.h"
#include "sinew/parallel/sync_batch_norm.h"
#include "sinew/tests/parallel/ranks/rank_test.h"

using sinew::ErrorCode;
using sinew::parallel::scaled_all_reduce;
using sinew::parallel::sync_batch_norm;
using sinew::parallel::SyncBatchNorm;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testranks::error_of;

namespace {

class Metrics : public testranks::RankTest {};

TEST_F(Metrics, Means) {
  const at::Tensor loss = at::full({}, rank() + 1.0);
  const at::Tensor correct = at::full({2, 3}, 10.0 * rank(), at::kDouble).t();
  const at::Tensor half = at::full({1}, rank(), at::kFloat);
  scaled_all_reduce(group(), {loss, correct, half});
  EXPECT_NEAR(loss.item<double>(), (size() + 1) / 2.0, 1e-6);
  EXPECT_TRUE(correct.allclose(at::full({3, 2}, 5.0 * (size() - 1), at::kDouble)));
  EXPECT_NEAR(half.item<double>(), (size() - 1) / 2.0, 1e-6);
  EXPECT_THAT(scaled_all_reduce(group(), std::vector<double>{1.0 * rank(), 4}, 1.0),
              ElementsAre(DoubleNear(size() * (size() - 1) / 2.0, 1e-12), 4.0 * size()));
  scaled_all_reduce(group(), std::vector<at::Tensor>());
  EXPECT_TRUE(scaled_all_reduce(group(), std::vector<double>()).empty());
}

TEST_F(Metrics, MistakesAreNamed) {
  EXPECT_THAT(error_of([&] {
                scaled_all_reduce(group(), {at::ones({1}), at::ones({1}, at::kLong)});
              }).message(),
              HasSubstr("tensor 1 of scaled_all_reduce is Long"));
  EXPECT_THAT(error_of([&] { scaled_all_reduce(group(), {at::Tensor()}); }).message(),
              HasSubstr("tensor 0 of scaled_all_reduce is undefined"));
}

class BatchNorm : public testranks::RankTest {
 protected:
  /// Rows of the whole batch that belong to a rank: of different numbers, none for the last one of
  /// four.
  std::pair<std::int64_t, std::int64_t> rows(int of) const {
    std::int64_t begin = 0;
    for (int other = 0; other < of; ++other) begin += count(other);
    return {begin, begin + count(of)};
  }
  std::int64_t count(int of) const { return of == 3 ? 0 : 2 + 3 * of; }
  std::int64_t all_rows() const { return rows(size()).first; }
  at::Tensor own(const at::Tensor& whole) const {
    const auto [begin, end] = rows(rank());
    return whole.slice(0, begin, end).clone();
  }

  at::Tensor values(std::vector<std::int64_t> shape, double offset) const {
    std::int64_t elements = 1;
    for (const std::int64_t one : shape) elements *= one;
    return at::arange(elements, at::kDouble)
        .mul(1.3)
        .add(offset)
        .sin()
        .mul(3)
        .add(offset)
        .view(shape);
  }

  template <class Plain>
  void compare(const torch::nn::BatchNormOptions& options, const std::vector<std::int64_t>& rest) {
    Plain plain(options);
    plain->to(at::kDouble);
    {
      const at::AutoGradMode no_grad(false);
      if (plain->weight.defined()) plain->weight.copy_(values({options.num_features()}, 0.3));
      if (plain->bias.defined()) plain->bias.copy_(values({options.num_features()}, 0.6));
    }
    SyncBatchNorm sync = sync_batch_norm(plain, group());
    std::vector<std::int64_t> shape = {all_rows()};
    shape.insert(shape.end(), rest.begin(), rest.end());
    for (int step = 0; step < 3; ++step) {
      const at::Tensor whole = values(shape, 0.1 + step).requires_grad_();
      const at::Tensor part = own(whole.detach()).requires_grad_();
      const at::Tensor weights = values(shape, 7 - step);
      const at::Tensor expected = plain->forward(whole);
      const at::Tensor output = sync->forward(part);
      EXPECT_TRUE(output.allclose(own(expected), 1e-9, 1e-9));
      for (auto* module : {static_cast<torch::nn::Module*>(plain.get()),
                           static_cast<torch::nn::Module*>(sync.get())}) {
        for (at::Tensor& parameter : module->parameters()) parameter.mutable_grad().reset();
      }
      (expected * weights).sum().backward();
      (output * own(weights)).sum().backward();
      EXPECT_TRUE(part.grad().allclose(own(whole.grad()), 1e-8, 1e-9));
      if (plain->weight.defined()) {
        for (const auto& [mine, all] :
             {std::pair(sync->weight, plain->weight), std::pair(sync->bias, plain->bias)}) {
          const at::Tensor sum = mine.grad().clone();
          group().all_reduce(sum);
          EXPECT_TRUE(sum.allclose(all.grad(), 1e-9, 1e-9));
        }
      }
      if (!options.track_running_stats()) continue;
      EXPECT_TRUE(sync->running_mean.allclose(plain->running_mean, 1e-9, 1e-12));
      EXPECT_TRUE(sync->running_var.allclose(plain->running_var, 1e-9, 1e-12));
      EXPECT_TRUE(sync->num_batches_tracked.equal(plain->num_batches_tracked));
    }
    // Evaluation is each rank's own affair.
    plain->eval();
    sync->eval();
    if (rank() != 0) return;
    const at::Tensor input = values(shape, 4);
    EXPECT_TRUE(sync->forward(input).allclose(plain->forward(input), 1e-12, 1e-12));
  }
};

TEST_F(BatchNorm, IsThatOfOneProcess) {
  using torch::nn::BatchNormOptions;
  const BatchNormOptions plain(3);
  compare<torch::nn::BatchNorm1d>(plain, {3});
  compare<torch::nn::BatchNorm1d>(plain, {3, 5});
  compare<torch::nn::BatchNorm2d>(plain, {3, 2, 4});
  compare<torch::nn::BatchNorm3d>(plain, {3, 2, 1, 3});
}

TEST_F(BatchNorm, WithAllOptions) {
  using torch::nn::BatchNormOptions;
  compare<torch::nn::BatchNorm2d>(BatchNormOptions(2).momentum(c10::nullopt).eps(1e-3), {2, 2, 2});
  compare<torch::nn::BatchNorm2d>(BatchNormOptions(2).momentum(0.4).affine(false), {2, 2, 2});
  compare<torch::nn::BatchNorm2d>(BatchNormOptions(2).track_running_stats(false), {2, 2, 2});
}

TEST_F(BatchNorm, NoRowsOnAnyRank) {
  torch::nn::BatchNorm1d plain(torch::nn::BatchNormOptions(3));
  SyncBatchNorm sync = sync_batch_norm(plain, group());
  for (int call = 0; call < 2; ++call) {
    const at::Tensor input = at::ones({0, 3}).requires_grad_();
    EXPECT_EQ(plain->forward(input).sizes(), sync->forward(input).sizes());
    sync->forward(input).sum().backward();
    EXPECT_EQ(sync->weight.grad().abs().max().item<double>(), 0);
    EXPECT_TRUE(sync->running_mean.equal(plain->running_mean));
    EXPECT_TRUE(sync->running_var.equal(plain->running_var));
  }
}

TEST_F(BatchNorm, MistakesAreNamed) {
  SyncBatchNorm norm(torch::nn::BatchNormOptions(3), group());
  EXPECT_THAT(error_of([&] {
                norm->forward(at::ones({2, 4}));
              }).message(),
              HasSubstr("sizes [2, 4], but it takes [N, 3]"));
  EXPECT_EQ(error_of([&] { norm->forward(at::ones({3})); }).code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error_of([&] {
                norm->forward(at::ones({rank() == 0 ? 1 : 0, 3}));
              }).message(),
              HasSubstr("more than one value per channel"));
  EXPECT_EQ(error_of([&] {
              SyncBatchNorm(torch::nn::BatchNormOptions(3), sinew::ProcessGroup());
            }).code(),
            ErrorCode::kInvalidArgument);
}

}  // namespace
