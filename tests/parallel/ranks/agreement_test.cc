// What the ranks of a data-parallel module agree on behind a pass: each trainer has a gradient of
// its own at a server, and all have the mean of a dense part's. They clip by one norm, leave out
// the same steps, and have one scale.

#include <torch/nn.h>

#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "sinew/optim/clip_grad.h"
#include "sinew/optim/grad_scaler.h"
#include "sinew/parallel/distributed_data_parallel.h"
#include "sinew/sinew.h"
#include "sinew/tests/parallel/ranks/served_test.h"

using sinew::ErrorCode;
using sinew::RpcError;
using sinew::RRef;
using sinew::autograd::Context;
using sinew::optim::clip_grad_norm_;
using sinew::optim::ClipGradOptions;
using sinew::optim::DistributedOptimizer;
using sinew::optim::GradScaler;
using sinew::optim::GradScalerOptions;
using sinew::parallel::DistributedDataParallel;
using ::testing::HasSubstr;
using testranks::error_of;

namespace testagreement {

/// A row for each trainer, at the server.
class Rows {
 public:
  Rows() : weight_(at::ones({8, 1}, at::kDouble).requires_grad_()) {}
  at::Tensor look_up(int row) const { return weight_.select(0, row); }
  RRef<at::Tensor> weight() const { return sinew::make_rref(weight_); }
  double value(int row) const { return weight_.detach().select(0, row).item<double>(); }

 private:
  const at::Tensor weight_;
};

}  // namespace testagreement

SINEW_SERVICE(testagreement::Rows, (), look_up, weight, value);

namespace {

using testagreement::Rows;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kRate = 0.5;

class Agreement : public testranks::ServedTest {
 protected:
  void SetUp() override {
    RankTest::SetUp();
    start_workers(sinew::serve<Rows>());
    rows_ = sinew::remote<Rows>(worker_.peer("server"));
    embedding_ = rows_.call<&Rows::weight>();
    net_->to(at::kDouble);
    net_->weight.variable_data().fill_(1);
    ddp_.emplace(net_, group());
    dense_ = sinew::make_rref(worker_, at::Tensor(net_->weight));
  }
  void TearDown() override {
    dense_ = {};
    embedding_ = {};
    rows_ = {};
    end_workers();
  }

  /// Its gradients: `of_row` for this rank's row, and the mean of the ranks' `of_net`.
  at::Tensor loss(double of_row, double of_net) {
    const at::Tensor row = rows_.call<&Rows::look_up>(rank());
    const at::Tensor out = ddp_->forward(at::full({1, 1}, of_net, at::kDouble));
    return row.sum() * of_row + out.sum();
  }
  double dense() const { return net_->weight.item<double>(); }
  DistributedOptimizer optimizer(const std::vector<RRef<at::Tensor>>& parameters) const {
    sinew::optim::SgdOptions sgd;
    sgd.lr = kRate;
    return DistributedOptimizer(worker_, parameters, sgd);
  }
  /// Whether all ranks have this number.
  bool is_everywhere(double number) const {
    const at::Tensor both = at::tensor({number, -number}, at::kDouble);
    group().all_reduce(both, sinew::ReduceOp::kMax);
    return both[0].item<double>() == -both[1].item<double>();
  }

  RRef<Rows> rows_;
  RRef<at::Tensor> embedding_;
  torch::nn::Linear net_{torch::nn::LinearOptions(1, 1).bias(false)};
  std::optional<DistributedDataParallel<torch::nn::LinearImpl>> ddp_;
  RRef<at::Tensor> dense_;
};

TEST_F(Agreement, AllRanksClipByTheLargestOfTheirNorms) {
  const DistributedOptimizer sgd = optimizer({embedding_, dense_});
  double expected = 1;
  for (const double type : {1.0, 2.0, kInfinity}) {
    SCOPED_TRACE(type);
    const Context context(worker_);
    sinew::autograd::backward(context, {loss(rank() == 0 ? 100 : 0.1, 2)});
    ClipGradOptions how;
    how.norm_type = type;
    const double norm = std::isinf(type) ? 100 : type == 1 ? 102 : std::hypot(100, 2);
    EXPECT_NEAR(clip_grad_norm_(context, {embedding_, dense_}, 1, how), norm, 1e-9);
    sgd.step(context);
    expected -= kRate * 2 / (norm + 1e-6);
    EXPECT_NEAR(dense(), expected, 1e-12);
    EXPECT_TRUE(is_everywhere(dense()));
  }
  // The others' rows were scaled by the same factor.
  const double factors = 1 / 100.000001 + 1 / 102.000001 + 1 / (std::hypot(100, 2) + 1e-6);
  EXPECT_NEAR(rows_.call<&Rows::value>(rank()), 1 - kRate * (rank() == 0 ? 100 : 0.1) * factors,
              1e-12);
}

TEST_F(Agreement, WhatIsNoNumberOnOneRankCountsOnAll) {
  for (const double type : {2.0, kInfinity}) {
    for (const double fault : {kInfinity, std::nan("")}) {
      const Context context(worker_);
      sinew::autograd::backward(context, {loss(rank() == 1 ? fault : 0.1, 2)});
      ClipGradOptions how;
      how.norm_type = type;
      how.error_if_nonfinite = true;
      const RpcError error = error_of([&] {
        clip_grad_norm_(context, {embedding_, dense_}, 1, how);
      });
      EXPECT_EQ(error.code(), ErrorCode::kOutOfRange) << error.message();
      EXPECT_THAT(error.message(), HasSubstr("cannot be clipped on any rank"));
      EXPECT_EQ(sinew::autograd::gradient_of(context, net_->weight).item<double>(), 2);
      how.error_if_nonfinite = false;
      const double norm = clip_grad_norm_(context, {embedding_, dense_}, 1, how);
      EXPECT_EQ(std::isnan(norm), std::isnan(fault));
      EXPECT_FALSE(std::isfinite(norm));
      // As in one process: by 0, or by what is no number.
      const double clipped = sinew::autograd::gradient_of(context, net_->weight).item<double>();
      EXPECT_TRUE(std::isnan(fault) ? std::isnan(clipped) : clipped == 0) << clipped;
    }
  }
}

// What has nothing to do with the module is each trainer's own: nobody waits for others.
TEST_F(Agreement, OthersGradientsAreNobodyElses) {
  const Context context(worker_);
  sinew::autograd::backward(context, {loss(rank() == 0 ? 100 : 0.1, 2)});
  if (rank() == 0) {
    EXPECT_NEAR(clip_grad_norm_(context, {embedding_}, 1), 100, 1e-9);
  }
  EXPECT_EQ(sinew::autograd::gradient_of(context, net_->weight).item<double>(), 2);
}

TEST_F(Agreement, AnInfinityOnOneRankLeavesTheStepOutOnAll) {
  const DistributedOptimizer sgd = optimizer({embedding_, dense_});
  GradScalerOptions options;
  options.init_scale = 8;
  options.growth_interval = 2;
  GradScaler scaler(options);
  std::vector<double> scales;
  for (const bool fails : {false, true, false, false, false}) {
    const double before = dense();
    const Context context(worker_);
    const at::Tensor one = loss(fails && rank() == 1 ? kInfinity : 1, 2);
    sinew::autograd::backward(context, {scaler.scale(one)});
    EXPECT_EQ(scaler.step(sgd, context).has_value(), !fails);
    scaler.update();
    EXPECT_EQ(dense(), fails ? before : before - kRate * 2);
    scales.push_back(scaler.get_scale());
  }
  EXPECT_EQ(scales, (std::vector<double>{8, 4, 4, 8, 8}));
  EXPECT_EQ(rows_.call<&Rows::value>(rank()), 1 - 4 * kRate);
}

// An optimizer of the embedding alone decides by itself, as each optimizer does; the scale is one.
TEST_F(Agreement, OptimizersByThemselvesHaveOneScale) {
  const DistributedOptimizer of_rows = optimizer({embedding_});
  const DistributedOptimizer of_net = optimizer({dense_});
  GradScaler scaler;
  const Context context(worker_);
  sinew::autograd::backward(context, {scaler.scale(loss(rank() == 1 ? kInfinity : 1, 2))});
  EXPECT_EQ(scaler.step(of_rows, context).has_value(), rank() != 1);
  EXPECT_TRUE(scaler.step(of_net, context).has_value());
  scaler.update();
  EXPECT_EQ(scaler.get_scale(), 32768);
  EXPECT_EQ(dense(), 1 - kRate * 2);
}

TEST_F(Agreement, ScalesThatDifferAreMadeOne) {
  const DistributedOptimizer sgd = optimizer({embedding_, dense_});
  GradScalerOptions options;
  options.init_scale = rank() == 0 ? 16 : 4;
  GradScaler scaler(options);
  for (const bool applied : {false, true}) {
    const Context context(worker_);
    sinew::autograd::backward(context, {scaler.scale(loss(1, 2))});
    EXPECT_EQ(scaler.step(sgd, context).has_value(), applied);
    scaler.update();
    EXPECT_EQ(scaler.get_scale(), 4);
  }
  EXPECT_EQ(dense(), 1 - kRate * 2);
}

TEST_F(Agreement, RanksWithoutInputsAgreeToo) {
  const DistributedOptimizer sgd = optimizer({embedding_, dense_});
  GradScalerOptions options;
  options.init_scale = 8;
  GradScaler scaler(options);
  const auto train = [&](double of_row) {
    const Context context(worker_);
    sinew::autograd::backward(context, {scaler.scale(loss(of_row, 2))});
    scaler.unscale_(sgd, context);
    clip_grad_norm_(context, {embedding_, dense_}, 1);
    const bool applied = scaler.step(sgd, context).has_value();
    scaler.update();
    return applied;
  };
  const int steps = rank() == 1 ? 1 : 3;
  sinew::parallel::join({&*ddp_}, {}, [&] {
    for (int step = 0; step < steps; ++step) {
      // Of those that have inputs left, one has an infinity.
      const bool fails = step == 1 && rank() == 0;
      EXPECT_EQ(train(fails ? kInfinity : 100), step != 1);
    }
  });
  EXPECT_TRUE(is_everywhere(dense()));
  EXPECT_EQ(scaler.get_scale(), rank() == 1 ? 8 : 4);
  // The one that has missed it costs a step; from then on there is one scale.
  EXPECT_FALSE(train(100));
  EXPECT_EQ(scaler.get_scale(), 4);
  const double before = dense();
  EXPECT_TRUE(train(100));
  EXPECT_LT(dense(), before);
  EXPECT_TRUE(is_everywhere(dense()));
  EXPECT_EQ(scaler.get_scale(), 4);
}

TEST_F(Agreement, DifferentThingsAreNotTakenForOne) {
  const DistributedOptimizer sgd = optimizer({embedding_, dense_});
  GradScaler scaler;
  const Context context(worker_);
  sinew::autograd::backward(context, {scaler.scale(loss(1, 2))});
  const RpcError error = error_of([&] {
    if (rank() == 0) {
      clip_grad_norm_(context, {embedding_, dense_}, 1);
    } else {
      scaler.unscale_(sgd, context);
    }
  });
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition) << error.message();
  EXPECT_THAT(error.message(), HasSubstr("all ranks clip and unscale in the same order"));
}

}  // namespace
