#include "sinew/optim/grad_scaler.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ATen/ATen.h"
#include "sinew/optim/clip_grad.h"
#include "sinew/sinew.h"
#include "sinew/tests/optim/training.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/temporary_folder.h"

namespace {

using sinew::ErrorCode;
using sinew::RpcError;
using sinew::autograd::Context;
using sinew::optim::Checkpoint;
using sinew::optim::DistributedOptimizer;
using sinew::optim::GradScaler;
using sinew::optim::GradScalerOptions;
using sinew::optim::SgdOptions;
using sinew::testing::error_of;
using ::testing::HasSubstr;
using testoptim::batch;
using testoptim::difference;
using testoptim::RemoteTraining;

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kScaledTolerance = 1e-5;

class Scaling : public sinew::testing::ClusterTest {
 protected:
  void start_workers() {
    sinew::MethodTable methods;
    testoptim::add_methods(methods);
    start(3, methods);
  }
  static bool scaled_step(GradScaler& scaler, const DistributedOptimizer& optimizer,
                          const Context& context, const at::Tensor& loss) {
    sinew::autograd::backward(context, {scaler.scale(loss)});
    const bool stepped = scaler.step(optimizer, context).has_value();
    scaler.update();
    return stepped;
  }
};
SINEW_INSTANTIATE_CLUSTER_TEST(Scaling);

TEST_P(Scaling, TrainsAsWithoutItAndClipsWhatIsUnscaled) {
  start_workers();
  for (const bool sparse : {false, true}) {
    const RemoteTraining plain(worker(0), 2, sparse);
    const RemoteTraining scaled(worker(0), 2, sparse);
    const DistributedOptimizer of_plain(worker(0), plain.parameters(), SgdOptions());
    const DistributedOptimizer of_scaled(worker(0), scaled.parameters(), SgdOptions());
    GradScaler scaler;
    for (std::int64_t step = 0; step < 10; ++step) {
      double norm = 0;
      {
        const Context context(worker(0));
        sinew::autograd::backward(context, {plain.loss(batch(step))});
        norm = sinew::optim::clip_grad_norm_(context, plain.parameters(), 0.5);
        of_plain.step(context);
      }
      const Context context(worker(0));
      sinew::autograd::backward(context, {scaler.scale(scaled.loss(batch(step)))});
      scaler.unscale_(of_scaled, context);
      EXPECT_NEAR(sinew::optim::clip_grad_norm_(context, scaled.parameters(), 0.5), norm,
                  norm * 1e-4);
      const auto report = scaler.step(of_scaled, context);
      ASSERT_TRUE(report.has_value());
      EXPECT_EQ(report->owners.size(), 2U);
      scaler.update();
    }
    EXPECT_LT(difference(plain.values(), scaled.values()), kScaledTolerance);
  }
}

TEST_P(Scaling, AnInfinityAnywhereLeavesTheStepOutEverywhere) {
  start_workers();
  const RemoteTraining training(worker(0), 2, false);
  const at::Tensor mine = at::ones({2}).requires_grad_();
  std::vector<sinew::RRef<at::Tensor>> parameters = training.parameters();
  parameters.push_back(sinew::make_rref(worker(0), mine));
  const DistributedOptimizer optimizer(worker(0), parameters, SgdOptions());
  GradScaler scaler;
  for (const double factor : {kInfinite, std::nan(""), 1.0}) {
    SCOPED_TRACE(factor);
    const std::vector<at::Tensor> before = training.values();
    const double scale = scaler.get_scale();
    const Context context(worker(0));
    // Only at this worker are gradients no numbers.
    const bool stepped =
        scaled_step(scaler, optimizer, context, training.loss(batch(0)) + (mine * factor).sum());
    EXPECT_EQ(stepped, factor == 1);
    EXPECT_EQ(difference(training.values(), before) > 0, factor == 1);
    EXPECT_EQ(mine.equal(at::ones({2})), factor != 1);
    EXPECT_EQ(scaler.get_scale(), factor == 1 ? scale : scale / 2);
  }
}

TEST_P(Scaling, GrowsAndBacksOffAndGoesOnFromACheckpoint) {
  start_workers();
  const sinew::testing::TemporaryFolder folder;
  for (int rank = 1; rank < 3; ++rank) {
    sinew::optim::serve_checkpoints(worker(rank), folder.file(""));
  }
  const RemoteTraining training(worker(0), 2, false);
  const DistributedOptimizer optimizer(worker(0), training.parameters(), SgdOptions());
  GradScalerOptions options;
  options.init_scale = 8;
  options.growth_interval = 3;
  GradScaler scaler(options);
  const auto step = [&](GradScaler& with, double factor) {
    const Context context(worker(0));
    scaled_step(with, optimizer, context, training.loss(batch(0)) * factor);
    return with.get_scale();
  };
  std::vector<double> scales;
  for (const double factor : {1.0, 1.0, 1.0, 1.0, 1.0}) scales.push_back(step(scaler, factor));
  EXPECT_EQ(scales, (std::vector<double>{8, 8, 16, 16, 16}));
  sinew::optim::SaveOptions how;
  how.grad_scaler = scaler.state();
  optimizer.save("run", how);
  EXPECT_EQ(step(scaler, 1.0), 32);
  EXPECT_EQ(step(scaler, kInfinite), 16);

  const Checkpoint loaded = optimizer.load("run");
  ASSERT_TRUE(loaded.grad_scaler.has_value());
  GradScaler resumed(options);
  resumed.load_state(*loaded.grad_scaler);
  EXPECT_EQ(resumed.get_scale(), 16);
  EXPECT_EQ(step(resumed, 1.0), 32);
  // One that was saved without.
  optimizer.save("run");
  EXPECT_FALSE(optimizer.load("run").grad_scaler.has_value());
}

// An infinity begins the count anew, and the scale stays a number that losses can be scaled by.
TEST_P(Scaling, ItsScaleKeepsWithinItsLimits) {
  start_workers();
  const at::Tensor mine = at::ones({2}).requires_grad_();
  const DistributedOptimizer optimizer(worker(0), {sinew::make_rref(worker(0), mine)},
                                       SgdOptions());
  const auto scale_after = [&](GradScaler& scaler, double factor) {
    const Context context(worker(0));
    scaled_step(scaler, optimizer, context, (mine * factor).sum());
    return scaler.get_scale();
  };
  GradScalerOptions options;
  options.init_scale = 8;
  options.growth_interval = 3;
  GradScaler counting(options);
  std::vector<double> scales;
  for (const double factor : {1.0, 1.0, kInfinite, 1.0, 1.0, 1.0}) {
    scales.push_back(scale_after(counting, factor));
  }
  EXPECT_EQ(scales, (std::vector<double>{8, 8, 4, 4, 4, 8}));
  options.init_scale = std::numeric_limits<double>::denorm_min();
  GradScaler smallest(options);
  EXPECT_EQ(scale_after(smallest, kInfinite), options.init_scale);
  options.init_scale = std::numeric_limits<float>::max();
  options.growth_interval = 1;
  GradScaler largest(options);
  EXPECT_EQ(scale_after(largest, 0), options.init_scale);
  // What is under way is over with another state.
  const Context context(worker(0));
  sinew::autograd::backward(context, {counting.scale(mine.sum())});
  counting.unscale_(optimizer, context);
  counting.load_state({16, 0});
  EXPECT_EQ(error_of([&] { counting.update(); }).code(), ErrorCode::kFailedPrecondition);
}

TEST_P(Scaling, SeveralOptimizersHaveOneScale) {
  start_workers();
  const RemoteTraining training(worker(0), 2, false);
  const DistributedOptimizer first(worker(0), training.without_biases(), SgdOptions());
  const at::Tensor mine = at::ones({2}).requires_grad_();
  const DistributedOptimizer second(worker(0), {sinew::make_rref(worker(0), mine)}, SgdOptions());
  GradScaler scaler;
  const Context context(worker(0));
  const at::Tensor loss = training.loss(batch(0)) + (mine * kInfinite).sum();
  sinew::autograd::backward(context, {scaler.scale(loss)});
  // As in PyTorch: each optimizer by itself.
  EXPECT_TRUE(scaler.step(first, context).has_value());
  EXPECT_FALSE(scaler.step(second, context).has_value());
  scaler.update();
  EXPECT_EQ(scaler.get_scale(), 32768);
}

TEST_P(Scaling, MistakesAreNamed) {
  start_workers();
  const RemoteTraining training(worker(0), 2, false);
  const DistributedOptimizer optimizer(worker(0), training.parameters(), SgdOptions());
  GradScaler scaler;
  const auto refusal = [](const auto& work) {
    const RpcError error = error_of(work);
    EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
    return std::string(error.message());
  };
  EXPECT_THAT(refusal([&] { scaler.update(); }), HasSubstr("neither a step() nor an unscale_()"));
  {
    const Context context(worker(0));
    sinew::autograd::backward(context, {scaler.scale(training.loss(batch(0)))});
    scaler.unscale_(optimizer, context);
    EXPECT_THAT(refusal([&] { scaler.unscale_(optimizer, context); }),
                HasSubstr("were unscaled since the last update()"));
  }
  {
    const Context context(worker(0));
    EXPECT_THAT(refusal([&] { scaler.step(optimizer, context); }),
                HasSubstr("were unscaled in another context"));
    scaler.update();
    sinew::autograd::backward(context, {scaler.scale(training.loss(batch(0)))});
    scaler.step(optimizer, context);
    EXPECT_THAT(refusal([&] { scaler.step(optimizer, context); }),
                HasSubstr("there was a step of this optimizer since the last update()"));
    scaler.update();
  }
  EXPECT_THAT(refusal([&] {
                const Context context(worker(0));
                scaler.step(DistributedOptimizer(), context);
              }),
              HasSubstr("this DistributedOptimizer is empty"));
  const auto set = [](auto GradScalerOptions::*field, auto value) {
    GradScalerOptions options;
    options.*field = value;
    return std::string(error_of([&] { GradScaler made(options); }).message());
  };
  EXPECT_THAT(set(&GradScalerOptions::init_scale, 0.0), HasSubstr("init_scale is 0"));
  EXPECT_THAT(set(&GradScalerOptions::growth_factor, 1.0), HasSubstr("growth_factor is 1"));
  EXPECT_THAT(set(&GradScalerOptions::backoff_factor, std::nan("")),
              HasSubstr("backoff_factor is nan"));
  EXPECT_THAT(set(&GradScalerOptions::growth_interval, std::int64_t{0}),
              HasSubstr("growth_interval is 0"));
  EXPECT_EQ(error_of([&] {
              scaler.load_state({kInfinite, 0});
            }).code(),
            ErrorCode::kInvalidArgument);
}

TEST_P(Scaling, DisabledItChangesNothing) {
  start_workers();
  const RemoteTraining training(worker(0), 2, false);
  const DistributedOptimizer optimizer(worker(0), training.parameters(), SgdOptions());
  GradScalerOptions options;
  options.enabled = false;
  GradScaler scaler(options);
  const Context context(worker(0));
  const at::Tensor loss = training.loss(batch(0));
  EXPECT_TRUE(scaler.scale(loss).is_same(loss));
  sinew::autograd::backward(context, {loss});
  scaler.unscale_(optimizer, context);
  EXPECT_TRUE(scaler.step(optimizer, context).has_value());
  scaler.update();
  EXPECT_EQ(scaler.get_scale(), 1);
}

}  // namespace
