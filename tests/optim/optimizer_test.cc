// Optimizers over workers, against LibTorch's in one place.

#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/nn/module.h>

#include "ATen/ATen.h"
#include "sinew/tests/optim/training.h"
#include "sinew/tests/support/cluster.h"

using sinew::ErrorCode;
using sinew::RpcError;
using sinew::autograd::Context;
using sinew::optim::DistributedOptimizer;
using sinew::optim::Options;
using sinew::optim::OwnerStep;
using sinew::optim::ParameterGroup;
using sinew::optim::StepReport;
using sinew::testing::error_of;
using sinew::testing::eventually;
using ::testing::HasSubstr;
using testoptim::batch;
using testoptim::difference;
using testoptim::LocalTraining;
using testoptim::RemoteTraining;
using testoptim::Shard;

namespace {

constexpr std::int64_t kShards = 2;
constexpr std::int64_t kSteps = 40;
constexpr double kTolerance = 1e-5;

struct Case {
  std::string name;
  Options options;
  bool takes_sparse = false;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  sinew::optim::SgdOptions sgd;
  sgd.lr = 0.05;
  all.push_back({"SGD", sgd, true});
  sgd.momentum = 0.9;
  sgd.dampening = 0.1;
  all.push_back({"SGD with momentum", sgd, true});
  sgd.dampening = 0;
  sgd.weight_decay = 0.01;
  sgd.nesterov = true;
  all.push_back({"SGD with nesterov and decay", sgd, false});
  sinew::optim::AdamOptions adam;
  adam.lr = 0.02;
  all.push_back({"Adam", adam, false});
  adam.amsgrad = true;
  adam.weight_decay = 0.01;
  all.push_back({"Adam with amsgrad and decay", adam, false});
  sinew::optim::AdamWOptions adamw;
  adamw.lr = 0.02;
  all.push_back({"AdamW", adamw, false});
  adamw.amsgrad = true;
  all.push_back({"AdamW with amsgrad", adamw, false});
  sinew::optim::AdagradOptions adagrad;
  adagrad.lr = 0.05;
  adagrad.lr_decay = 0.01;
  adagrad.initial_accumulator_value = 0.1;
  all.push_back({"Adagrad", adagrad, true});
  sinew::optim::RmsPropOptions rms;
  all.push_back({"RMSprop", rms, false});
  rms.momentum = 0.9;
  rms.centered = true;
  rms.weight_decay = 0.01;
  all.push_back({"RMSprop, centered, with momentum and decay", rms, false});
  return all;
}

class Optimizer : public sinew::testing::ClusterTest {
 protected:
  void start_workers(int size = static_cast<int>(kShards) + 1) {
    sinew::MethodTable methods;
    testoptim::add_methods(methods);
    start(size, methods);
  }
};

TEST_P(Optimizer, DenseTrainingEqualsLocalTraining) {
  start_workers();
  for (const Case& one : cases()) {
    SCOPED_TRACE(one.name);
    LocalTraining local(kShards, false, one.options);
    const RemoteTraining training(worker(0), kShards, false);
    const std::vector<at::Tensor> before = training.values();
    const DistributedOptimizer optimizer(worker(0), training.parameters(), one.options);
    for (std::int64_t step = 0; step < kSteps; ++step) {
      if (step == kSteps / 2) {
        local.set_learning_rate(0.01);
        optimizer.set_learning_rate(0.01);
      }
      local.step(batch(step));
      const StepReport report = training.step(optimizer, batch(step));
      ASSERT_EQ(report.owners.size(), static_cast<std::size_t>(kShards));
      // The bias is not always there.
      EXPECT_EQ(report.owners[0].updated, batch(step).bias ? 3U : 2U);
    }
    EXPECT_LT(difference(training.values(), local.values()), kTolerance);
    EXPECT_GT(difference(training.values(), before), 0.05);
  }
}

TEST_P(Optimizer, SparseTrainingEqualsLocalTraining) {
  start_workers();
  for (const Case& one : cases()) {
    if (!one.takes_sparse) continue;
    SCOPED_TRACE(one.name);
    LocalTraining local(kShards, true, one.options);
    const RemoteTraining training(worker(0), kShards, true);
    const DistributedOptimizer optimizer(worker(0), training.parameters(), one.options);
    for (std::int64_t step = 0; step < kSteps; ++step) {
      local.step(batch(step));
      training.step(optimizer, batch(step));
    }
    EXPECT_LT(difference(training.values(), local.values()), kTolerance);
  }
}

TEST_P(Optimizer, RefusesSparseGradientsBeforeAnythingChanges) {
  start_workers();
  for (const Case& one : cases()) {
    if (one.takes_sparse) continue;
    SCOPED_TRACE(one.name);
    const RemoteTraining training(worker(0), kShards, true);
    const std::vector<at::Tensor> before = training.values();
    const DistributedOptimizer optimizer(worker(0), training.parameters(), one.options);
    try {
      training.step(optimizer, batch(0));
      ADD_FAILURE() << "did not throw";
    } catch (const sinew::optim::PartialStep& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.message(), HasSubstr("parameter 0 of group 0 at worker 'worker1': its "
                                             "gradient is sparse, which "));
      EXPECT_EQ(error.not_applied(), (std::vector<std::string>{"worker1", "worker2"}));
      EXPECT_TRUE(error.applied().empty());
      EXPECT_TRUE(error.unknown().empty());
    }
    EXPECT_EQ(difference(training.values(), before), 0);
  }
}

TEST_P(Optimizer, GroupsHaveTheirOptionsAndRates) {
  start_workers();
  sinew::optim::SgdOptions sgd;
  sgd.lr = 0.05;
  sgd.momentum = 0.5;
  sinew::optim::SgdOptions of_biases;
  of_biases.lr = 0.002;
  LocalTraining local(kShards, false, sgd, of_biases);
  const RemoteTraining training(worker(0), kShards, false);
  const DistributedOptimizer optimizer(worker(0), {ParameterGroup{training.without_biases(), sgd},
                                                   ParameterGroup{training.biases(), of_biases}});
  EXPECT_EQ(optimizer.group_count(), 2U);
  for (std::int64_t step = 0; step < kSteps; ++step) {
    local.step(batch(step));
    training.step(optimizer, batch(step));
  }
  EXPECT_LT(difference(training.values(), local.values()), kTolerance);
  // One group stands still.
  const std::vector<at::Tensor> before = training.values();
  optimizer.set_learning_rate(0, 0);
  training.step(optimizer, batch(0));
  const std::vector<at::Tensor> after = training.values();
  EXPECT_TRUE(after[0].equal(before[0]));
  EXPECT_TRUE(after[1].equal(before[1]));
  EXPECT_FALSE(after[2].equal(before[2]));
}

TEST_P(Optimizer, LeavesGradsAndTheContextsGradientsAlone) {
  start_workers();
  for (const Case& one : cases()) {
    SCOPED_TRACE(one.name);
    const RemoteTraining training(worker(0), 1, false);
    const sinew::RRef<Shard>& shard = training.shards()[0];
    shard.call<&Shard::set_grads>(7.0);
    const double sum = shard.call<&Shard::sum_of_grads>();
    const DistributedOptimizer optimizer(worker(0), training.parameters(), one.options);
    const Context context(worker(0));
    sinew::autograd::backward(context, {training.loss(batch(0))});
    const auto copy = [&] { return shard.call<&Shard::gradients>(context.id()); };
    const std::vector<at::Tensor> gradients = copy();
    ASSERT_EQ(gradients.size(), 3U);
    optimizer.step(context);
    optimizer.step(context);
    EXPECT_EQ(difference(gradients, copy()), 0);
    EXPECT_EQ(shard.call<&Shard::sum_of_grads>(), sum);
  }
}

TEST_P(Optimizer, OwnParametersToo) {
  start_workers(1);
  at::Tensor weight = at::ones({3}).set_requires_grad(true);
  at::Tensor other = at::ones({3}).set_requires_grad(true);
  sinew::optim::SgdOptions sgd;
  sgd.lr = 0.5;
  const DistributedOptimizer optimizer(
      worker(0), {sinew::make_rref(worker(0), weight), sinew::make_rref(worker(0), other)}, sgd);
  const Context context(worker(0));
  sinew::autograd::backward(context, {weight.sum()});
  optimizer.step(context);
  EXPECT_TRUE(weight.equal(at::full({3}, 0.5)));
  // It has no gradient in this context.
  EXPECT_TRUE(other.equal(at::ones({3})));
  // The program has put the elements elsewhere, as loading a module from a file does.
  weight.set_data(at::full({3}, 2.0));
  optimizer.step(context);
  EXPECT_TRUE(weight.equal(at::full({3}, 1.5)));
}

TEST_P(Optimizer, MistakesAreNamed) {
  start_workers(2);
  const RemoteTraining training(worker(0), 1, false);
  const auto parameters = training.parameters();
  const auto making = [&](std::vector<sinew::RRef<at::Tensor>> some, const Options& options) {
    return error_of([&] { DistributedOptimizer(worker(0), std::move(some), options); });
  };
  sinew::optim::SgdOptions sgd;
  sgd.lr = -1;
  RpcError error = making(parameters, sgd);
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message(), HasSubstr("optimizer SGD: lr is -1, but it must be 0 or more"));
  sinew::optim::AdamOptions adam;
  adam.betas = {0.9, 1.0};
  EXPECT_THAT(making(parameters, adam).message(), HasSubstr("optimizer Adam: betas is 1"));
  sgd = {};
  sgd.nesterov = true;
  EXPECT_THAT(making(parameters, sgd).message(), HasSubstr("momentum is 0, but it must be"));
  sgd = {};
  EXPECT_THAT(making({}, sgd).message(), HasSubstr("at least one parameter"));
  EXPECT_THAT(making({parameters[0], {}}, sgd).message(),
              HasSubstr("parameter 1 of group 0 is an empty reference"));
  // These are seen by the owner.
  error = making({parameters[0], parameters[1], parameters[0]}, sgd);
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(error.peer(), "worker1");
  EXPECT_THAT(error.message(),
              HasSubstr("parameter 2 of group 0 at worker 'worker1' is in the optimizer twice: a "
                        "weight that modules share is given once"));
  const at::Tensor leaf = at::ones({1}).set_requires_grad(true);
  EXPECT_THAT(making({sinew::make_rref(worker(0), leaf * 2)}, sgd).message(),
              HasSubstr("parameter 0 of group 0 at worker 'worker0' is no leaf"));
  EXPECT_THAT(making({sinew::make_rref(worker(0), at::ones({1}, at::kLong))}, sgd).message(),
              HasSubstr("no floating-point elements"));
  error = error_of([&] {
    DistributedOptimizer(worker(0), {ParameterGroup{{parameters[0]}, sgd},
                                     ParameterGroup{{parameters[1]}, sinew::optim::AdamOptions()}});
  });
  EXPECT_THAT(error.message(), HasSubstr("of one kind, but there are SGD and Adam"));

  const DistributedOptimizer optimizer(worker(0), parameters, sgd);
  EXPECT_THAT(error_of([&] { optimizer.set_learning_rate(1, 0.1); }).message(),
              HasSubstr("there is no group 1: the optimizer has 1"));
  EXPECT_EQ(error_of([&] { optimizer.set_learning_rate(-0.1); }).code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([&] {
              optimizer.step(sinew::autograd::ContextId{{1}, 1});
            }).code(),
            ErrorCode::kNotFound);
  EXPECT_EQ(error_of([&] { DistributedOptimizer().set_learning_rate(1); }).code(),
            ErrorCode::kFailedPrecondition);
}

/// One weight under two names, which LibTorch lists twice.
struct Tied : torch::nn::Module {
  Tied() {
    weight = register_parameter("first", at::ones({2}));
    register_parameter("second", weight);
  }
  at::Tensor weight;
};

TEST_P(Optimizer, WeightsThatAreTiedAreSteppedOnce) {
  start_workers(1);
  Tied module;
  ASSERT_EQ(module.parameters().size(), 2U);
  const auto parameters = sinew::parameter_rrefs(worker(0), module);
  ASSERT_EQ(parameters.size(), 1U);
  sinew::optim::SgdOptions sgd;
  sgd.lr = 0.25;
  const DistributedOptimizer optimizer(worker(0), parameters, sgd);
  const Context context(worker(0));
  sinew::autograd::backward(context, {(module.weight * 3 + module.weight).sum()});
  EXPECT_EQ(optimizer.step(context).owners[0].updated, 1U);
  EXPECT_TRUE(module.weight.equal(at::zeros({2})));
}

// The result that a call outside of the context has brought is a leaf, and its owner knows nothing
// of the pass.
TEST_P(Optimizer, AnOwnerThatIsInNoPassIsNamedOnce) {
  start_workers(2);
  const RemoteTraining training(worker(0), 1, false);
  const at::Tensor mine = at::ones({1}).set_requires_grad(true);
  auto parameters = training.parameters();
  parameters.push_back(sinew::make_rref(worker(0), mine));
  const DistributedOptimizer optimizer(worker(0), parameters, sinew::optim::SgdOptions());
  const auto before = training.values();
  const auto said = [&](const auto& loss) {
    const at::Tensor early =
        training.shards()[0].call<&Shard::forward>(batch(0).rows, batch(0).input, true);
    const Context context(worker(0));
    sinew::autograd::backward(context, {loss(early)});
    ::testing::internal::CaptureStderr();
    optimizer.step(context);
    return ::testing::internal::GetCapturedStderr();
  };
  const auto right = [&](const at::Tensor&) { return training.loss(batch(0)) + mine.sum(); };
  const auto late = [&](const at::Tensor& early) { return early.sum() + mine.sum(); };
  EXPECT_EQ(said(right), "");
  EXPECT_GT(difference(training.values(), before), 0);
  const auto stepped = training.values();
  const std::string warning = said(late);
  EXPECT_EQ(difference(training.values(), stepped), 0);
  EXPECT_THAT(warning, HasSubstr("nothing of owner 'worker1' is in the pass"));
  EXPECT_THAT(warning, HasSubstr("make the autograd::Context before the calls"));
  EXPECT_EQ(said(late), "") << "once";
}

TEST_P(Optimizer, OwnersForgetWhatNobodyHolds) {
  start_workers(2);
  const RemoteTraining training(worker(0), 1, false);
  {
    const DistributedOptimizer optimizer(worker(0), training.parameters(),
                                         sinew::optim::AdamOptions());
    EXPECT_EQ(worker(1).counters()["optim.optimizers"], 1);
  }
  EXPECT_TRUE(eventually([&] { return worker(1).counters()["optim.optimizers"] == 0; }));
}

SINEW_INSTANTIATE_CLUSTER_TEST(Optimizer);

}  // namespace
