#include "sinew/optim/lr_scheduler.h"

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ATen/ATen.h"
#include "sinew/optim/internal/local_optimizer.h"
#include "sinew/sinew.h"
#include "sinew/tests/optim/training.h"
#include "sinew/tests/support/cluster.h"

namespace {

using sinew::ErrorCode;
using sinew::optim::cosine_annealing_lr;
using sinew::optim::DistributedOptimizer;
using sinew::optim::exponential_lr;
using sinew::optim::linear_lr;
using sinew::optim::LrSchedule;
using sinew::optim::LrScheduler;
using sinew::optim::multi_step_lr;
using sinew::optim::step_lr;
using sinew::optim::warm_up;
using sinew::testing::error_of;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::Pointwise;

std::vector<double> rates(const LrSchedule& schedule, std::int64_t steps) {
  std::vector<double> result;
  for (std::int64_t step = 0; step < steps; ++step) result.push_back(0.5 * schedule(step));
  return result;
}

void expect_rates(const LrSchedule& schedule, const std::vector<double>& torch) {
  EXPECT_THAT(rates(schedule, static_cast<std::int64_t>(torch.size())),
              Pointwise(DoubleNear(1e-12), torch));
}

// What torch.optim.lr_scheduler of PyTorch 1.13 gives, from a rate of 0.5.
TEST(LrSchedules, AreThoseOfPyTorch) {
  expect_rates(step_lr(3), {0.5, 0.5, 0.5, 0.05, 0.05, 0.05, 0.005, 0.005, 0.005, 0.0005});
  expect_rates(multi_step_lr({2, 5}, 0.5), {0.5, 0.5, 0.25, 0.25, 0.25, 0.125, 0.125, 0.125});
  expect_rates(exponential_lr(0.9), {0.5, 0.45, 0.405, 0.3645});
  expect_rates(cosine_annealing_lr(8, 0.1),
               {0.5, 0.48287289481503953, 0.4340990257669732, 0.36110377228214524, 0.275,
                0.18889622771785486, 0.11590097423302685, 0.0671271051849605, 0.05});
  expect_rates(linear_lr(0.25, 1, 4), {0.125, 0.21875, 0.3125, 0.40625, 0.5, 0.5});
  expect_rates(warm_up(4, cosine_annealing_lr(6), 0.25),
               {0.125, 0.21875, 0.3125, 0.40625, 0.5, 0.4665063509461097, 0.375, 0.25, 0.125,
                0.03349364905389032, 0});
  // They stay where they end.
  EXPECT_EQ(cosine_annealing_lr(8, 0.1)(1000), 0.1);
  EXPECT_EQ(linear_lr(0.25, 0.75, 4)(1000), 0.75);
}

TEST(LrSchedules, RefuseWhatMakesNoSense) {
  for (const auto& make : std::vector<std::function<void()>>{
           [] { step_lr(0); }, [] { step_lr(2, 0); },
           [] {
             multi_step_lr({3, 2});
           },
           [] { exponential_lr(std::numeric_limits<double>::quiet_NaN()); },
           [] { cosine_annealing_lr(0); }, [] { cosine_annealing_lr(5, 2); },
           [] { linear_lr(0, 1, 3); }, [] { linear_lr(1, -1, 3); }, [] { warm_up(0, step_lr(1)); },
           [] { warm_up(3, nullptr); }}) {
    EXPECT_EQ(error_of(make).code(), ErrorCode::kInvalidArgument);
  }
}

class LrSchedulers : public sinew::testing::ClusterTest {};
SINEW_INSTANTIATE_CLUSTER_TEST(LrSchedulers);

TEST_P(LrSchedulers, SetTheRatesOfAllGroupsAtAllOwners) {
  sinew::MethodTable methods;
  testoptim::add_methods(methods);
  start(3, methods);
  const testoptim::RemoteTraining training(worker(0), 2, false);
  sinew::optim::SgdOptions fast;
  fast.lr = 0.5;
  sinew::optim::SgdOptions slow;
  slow.lr = 0.125;
  const std::vector<sinew::optim::ParameterGroup> groups = {{training.without_biases(), fast},
                                                            {training.biases(), slow}};
  const DistributedOptimizer optimizer(worker(0), groups);
  const testoptim::RemoteTraining twin(worker(0), 2, false);
  const DistributedOptimizer of_twin(
      worker(0), std::vector<sinew::optim::ParameterGroup>{{twin.without_biases(), fast},
                                                           {twin.biases(), slow}});
  LrScheduler scheduler(optimizer, step_lr(2, 0.5));
  for (std::int64_t step = 0; step < 5; ++step) {
    const double factor = std::pow(0.5, static_cast<double>(step / 2));
    EXPECT_THAT(scheduler.learning_rates(), ElementsAre(0.5 * factor, 0.125 * factor));
    of_twin.set_learning_rate(0, 0.5 * factor);
    of_twin.set_learning_rate(1, 0.125 * factor);
    training.step(optimizer, testoptim::batch(step));
    twin.step(of_twin, testoptim::batch(step));
    scheduler.step();
  }
  EXPECT_EQ(scheduler.step_count(), 5);
  EXPECT_EQ(testoptim::difference(training.values(), twin.values()), 0);
  // One that goes on later knows the initial rates still.
  const LrScheduler resumed(optimizer, step_lr(2, 0.5), 5);
  EXPECT_EQ(resumed.learning_rates(), scheduler.learning_rates());

  EXPECT_EQ(error_of([&] { LrScheduler(optimizer, nullptr); }).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([&] { LrScheduler(optimizer, step_lr(1), -1); }).code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([&] { LrScheduler(DistributedOptimizer(), step_lr(1)); }).code(),
            ErrorCode::kFailedPrecondition);
}

TEST_P(LrSchedulers, TheFirstRatesHoldBeforeAStepOfTheSchedule) {
  sinew::MethodTable methods;
  testoptim::add_methods(methods);
  start(3, methods);
  const testoptim::RemoteTraining training(worker(0), 2, false);
  sinew::optim::SgdOptions sgd;
  sgd.lr = 0.5;
  const DistributedOptimizer optimizer(worker(0), training.parameters(), sgd);
  const auto rate = [&] { return optimizer.options<sinew::optim::SgdOptions>(0).lr; };
  const LrScheduler first(optimizer, linear_lr(0.25, 1, 4));
  EXPECT_EQ(rate(), 0.125);
  // One that goes on in the middle.
  const LrScheduler resumed(optimizer, linear_lr(0.25, 1, 4), 2);
  EXPECT_EQ(rate(), 0.3125);
}

TEST_P(LrSchedulers, AStepThatFailsIsMadeAgain) {
  sinew::MethodTable methods;
  testoptim::add_methods(methods);
  sinew::testing::Cluster& cluster = start(3, methods);
  const testoptim::RemoteTraining training(worker(0), 2, false);
  sinew::optim::SgdOptions sgd;
  sgd.lr = 0.5;
  const DistributedOptimizer optimizer(worker(0), training.parameters(), sgd);
  const auto next_at_worker2 =
      sinew::testing::calls<&sinew::internal::LocalOptimizer::set_learning_rate>()
          .at("worker2")
          .first(1);
  // Of a schedule that looks at the training.
  const auto factor = std::make_shared<double>(1);
  LrScheduler scheduler(optimizer, [factor](std::int64_t) { return *factor; });
  *factor = 0.25;
  cluster.faults().fail(next_at_worker2);
  EXPECT_EQ(error_of([&] { scheduler.step(); }).code(), ErrorCode::kUnavailable);
  EXPECT_EQ(scheduler.step_count(), 0);
  // The first owner has the new rate already, and gets the old one back.
  *factor = 1;
  scheduler.step();
  EXPECT_EQ(scheduler.step_count(), 1);
  const testoptim::RemoteTraining twin(worker(0), 2, false);
  const DistributedOptimizer of_twin(worker(0), twin.parameters(), sgd);
  training.step(optimizer, testoptim::batch(0));
  twin.step(of_twin, testoptim::batch(0));
  EXPECT_EQ(testoptim::difference(training.values(), twin.values()), 0);
  // Owners are not told what they know.
  cluster.faults().fail(next_at_worker2);
  scheduler.step();
  *factor = 0.5;
  EXPECT_EQ(error_of([&] { scheduler.step(); }).code(), ErrorCode::kUnavailable);
}

}  // namespace
