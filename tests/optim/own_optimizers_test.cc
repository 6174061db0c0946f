// Optimizers that users write, and options that change at run time.

#include "sinew/tests/optim/own_optimizers.h"

#include <torch/serialize/archive.h>

#include <filesystem>
#include <future>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ATen/ATen.h"
#include "sinew/optim/internal/local_optimizer.h"
#include "sinew/optim/internal/options_model.h"
#include "sinew/optim/internal/torch_optimizer.h"
#include "sinew/tests/optim/training.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/temporary_folder.h"

namespace testslow {

struct SlowOptions {
  double lr = 1;
};
/// Waits in the middle of a step.
class Slow final : public sinew::optim::PerParameterOptimizer<SlowOptions> {
 public:
  using PerParameterOptimizer::PerParameterOptimizer;
  static inline sinew::testing::Gate* gate = nullptr;

 private:
  void update(const SlowOptions&, at::Tensor& parameter, const at::Tensor&,
              sinew::optim::ParameterState&) override {
    parameter[0].sub_(1);
    if (gate != nullptr) gate->pass();
    parameter[1].sub_(1);
  }
};
inline at::Tensor& weight() {
  static at::Tensor tensor;
  return tensor;
}
inline sinew::RRef<at::Tensor> make_weight() {
  weight() = at::zeros({2}).requires_grad_();
  return sinew::make_rref(sinew::current_worker(), weight());
}
inline at::Tensor sum_of_weight() { return weight().sum(); }
inline at::Tensor weight_now() { return weight().detach().clone(); }

}  // namespace testslow

SINEW_STRUCT(testslow::SlowOptions, lr);
SINEW_OPTIMIZER(testslow::Slow, testslow::SlowOptions);
SINEW_METHOD(testslow::make_weight, testslow::sum_of_weight, testslow::weight_now);

namespace {

using sinew::ErrorCode;
using sinew::RpcError;
using sinew::internal::TorchOptimizer;
using sinew::optim::AdamOptions;
using sinew::optim::DistributedOptimizer;
using sinew::optim::Options;
using sinew::optim::ParameterGroup;
using sinew::optim::SgdOptions;
using sinew::testing::error_of;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testoptim::batch;
using testoptim::difference;
using testoptim::ForgetfulOptions;
using testoptim::HeavyBallOptions;
using testoptim::LionOptions;
using testoptim::LocalTraining;
using testoptim::RemoteTraining;
using testoptim::UnservedOptions;

constexpr std::int64_t kOwnSteps = 20;
constexpr double kOwnTolerance = 1e-5;

class OwnOptimizers : public sinew::testing::ClusterTest {
 protected:
  void start_workers() {
    sinew::MethodTable methods;
    testoptim::add_methods(methods);
    testoptim::add_optimizers(methods);
    start(3, methods);
  }
};
SINEW_INSTANTIATE_CLUSTER_TEST(OwnOptimizers);

TEST_P(OwnOptimizers, TrainAsTheyDoInOnePlace) {
  start_workers();
  LionOptions lion;
  lion.lr = 0.01;
  lion.weight_decay = 0.1;
  HeavyBallOptions ball;
  ball.friction = 0.4;
  for (const Options& options : {Options(lion), Options(ball)}) {
    SCOPED_TRACE(options.name());
    LocalTraining local(2, false, options);
    const RemoteTraining training(worker(0), 2, false);
    const std::vector<at::Tensor> before = training.values();
    const DistributedOptimizer optimizer(worker(0), training.parameters(), options);
    for (std::int64_t step = 0; step < kOwnSteps; ++step) {
      if (step == kOwnSteps / 2) {
        local.set_learning_rate(0.003);
        optimizer.set_learning_rate(0.003);
      }
      local.step(batch(step));
      training.step(optimizer, batch(step));
    }
    EXPECT_LT(difference(training.values(), local.values()), kOwnTolerance);
    EXPECT_GT(difference(training.values(), before), 0.05);
  }
}

TEST_P(OwnOptimizers, GoOnFromTheirCheckpoints) {
  start_workers();
  const sinew::testing::TemporaryFolder folder;
  for (int rank = 1; rank < 3; ++rank) {
    sinew::optim::serve_checkpoints(worker(rank), folder.file(""));
  }
  for (const Options& options : {Options(LionOptions()), Options(HeavyBallOptions())}) {
    const std::string name(options.name());
    SCOPED_TRACE(name);
    const RemoteTraining whole(worker(0), 2, false);
    const DistributedOptimizer of_whole(worker(0), whole.parameters(), options);
    for (std::int64_t step = 0; step < 5; ++step) whole.step(of_whole, batch(step));
    of_whole.save(name);
    for (std::int64_t step = 5; step < 10; ++step) whole.step(of_whole, batch(step));
    const RemoteTraining resumed(worker(0), 2, false);
    const DistributedOptimizer of_resumed(worker(0), resumed.parameters(), options);
    of_resumed.load(name);
    for (std::int64_t step = 5; step < 10; ++step) resumed.step(of_resumed, batch(step));
    EXPECT_EQ(difference(whole.values(), resumed.values()), 0);
    // Each kind has its own.
    const DistributedOptimizer other(worker(0), resumed.parameters(), AdamOptions());
    const RpcError error = error_of([&] { other.load(name); });
    EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
    EXPECT_THAT(error.message(), HasSubstr("it is of " + name + ", and this optimizer is Adam"));
  }
}

// A checkpoint has a step whole or not at all.
TEST_P(OwnOptimizers, AreSavedBetweenTheirSteps) {
  using testslow::Slow;
  sinew::MethodTable methods = sinew::serve<Slow>();
  methods.add<&testslow::make_weight, &testslow::sum_of_weight, &testslow::weight_now>();
  sinew::testing::Cluster& cluster =
      start(2, methods, [](int, sinew::WorkerOptions& options) { options.num_threads = 2; });
  const sinew::testing::TemporaryFolder folder;
  sinew::optim::serve_checkpoints(worker(1), folder.file(""));
  const sinew::Peer owner = worker(0).peer("worker1");
  const DistributedOptimizer optimizer(worker(0), {owner.call<&testslow::make_weight>()},
                                       testslow::SlowOptions());
  sinew::testing::Gate gate;
  Slow::gate = &gate;
  {
    const sinew::autograd::Context context(worker(0));
    sinew::autograd::backward(context, {owner.call<&testslow::sum_of_weight>()});
    const auto step = optimizer.step_async(context.id());
    ASSERT_TRUE(gate.wait_for_arrivals(1));
    const sinew::testing::Fault begun = cluster.faults().hold(
        sinew::testing::calls<&sinew::internal::LocalOptimizer::begin_save>().at("worker1"));
    auto saved = std::async(std::launch::async, [&] { return optimizer.save("run"); });
    begun.wait_for_hits(1);
    begun.release();
    // The owner's only other thread has come to the save when it answers this.
    owner.call<&testslow::weight_now>();
    gate.open();
    step.wait();
    saved.get();
  }
  Slow::gate = nullptr;
  optimizer.load("run");
  EXPECT_TRUE(owner.call<&testslow::weight_now>().equal(at::full({2}, -1.0)));
  testslow::weight().reset();
}

TEST_P(OwnOptimizers, WithoutSaveAndLoadTheyHaveNoCheckpoints) {
  start_workers();
  const sinew::testing::TemporaryFolder folder;
  for (int rank = 1; rank < 3; ++rank) {
    sinew::optim::serve_checkpoints(worker(rank), folder.file(""));
  }
  const RemoteTraining training(worker(0), 2, false);
  const DistributedOptimizer optimizer(worker(0), training.parameters(), ForgetfulOptions());
  training.step(optimizer, batch(0));
  const RpcError error = error_of([&] { optimizer.save("run"); });
  EXPECT_EQ(error.code(), ErrorCode::kUnimplemented);
  EXPECT_THAT(error.message(),
              AllOf(HasSubstr("'worker1'"), HasSubstr("'worker2'"),
                    HasSubstr("optimizer testoptim::Forgetful has no save() and load() of its own, "
                              "so a checkpoint would be without what it keeps")));
  EXPECT_TRUE(std::filesystem::is_empty(folder.file("")));
  training.step(optimizer, batch(1));
}

TEST_P(OwnOptimizers, SayWhetherTheyTakeSparseGradients) {
  start_workers();
  const RemoteTraining training(worker(0), 2, true);
  LocalTraining local(2, true, HeavyBallOptions());
  const DistributedOptimizer ball(worker(0), training.parameters(), HeavyBallOptions());
  local.step(batch(0));
  training.step(ball, batch(0));
  EXPECT_LT(difference(training.values(), local.values()), kOwnTolerance);
  const DistributedOptimizer lion(worker(0), training.parameters(), LionOptions());
  const RpcError error = error_of([&] { training.step(lion, batch(1)); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message(),
              HasSubstr("its gradient is sparse, which testoptim::Lion does not take"));
}

TEST_P(OwnOptimizers, MistakesAreNamed) {
  start_workers();
  const RemoteTraining training(worker(0), 2, false);
  const RpcError unserved =
      error_of([&] { DistributedOptimizer(worker(0), training.parameters(), UnservedOptions()); });
  EXPECT_EQ(unserved.code(), ErrorCode::kUnimplemented);
  EXPECT_EQ(unserved.peer(), "worker1");
  EXPECT_THAT(unserved.message(),
              HasSubstr("worker 'worker1' has no optimizer testoptim::Unserved: its program has to "
                        "serve it, sinew::serve<testoptim::Unserved>() in its MethodTable"));
  LionOptions wrong;
  wrong.betas = {0.9, 1.5};
  EXPECT_THAT(
      error_of([&] { DistributedOptimizer(worker(0), training.parameters(), wrong); }).message(),
      HasSubstr("Lion: betas must be less than 1"));
  wrong = {};
  wrong.lr = -1;
  EXPECT_THAT(
      error_of([&] { DistributedOptimizer(worker(0), training.parameters(), wrong); }).message(),
      HasSubstr("optimizer testoptim::Lion: lr is -1, but it must be 0 or more"));
  const RpcError mixed = error_of([&] {
    DistributedOptimizer(worker(0), {ParameterGroup{training.without_biases(), LionOptions()},
                                     ParameterGroup{training.biases(), SgdOptions()}});
  });
  EXPECT_EQ(mixed.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(mixed.message(),
              HasSubstr("the groups of one optimizer are of one kind, but there are "
                        "testoptim::Lion and SGD"));
}

// ---- Options that change.

TEST_P(OwnOptimizers, OptionsOfAGroupChange) {
  start_workers();
  SgdOptions sgd;
  sgd.lr = 0.05;
  LocalTraining local(2, false, sgd, sgd);
  const RemoteTraining training(worker(0), 2, false);
  const DistributedOptimizer optimizer(worker(0), {ParameterGroup{training.without_biases(), sgd},
                                                   ParameterGroup{training.biases(), sgd}});
  const auto run = [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t step = from; step < to; ++step) {
      local.step(batch(step));
      training.step(optimizer, batch(step));
    }
    EXPECT_LT(difference(training.values(), local.values()), kOwnTolerance);
  };
  run(0, 5);
  optimizer.set_learning_rate(1, 0.02);
  auto of_biases = optimizer.options<SgdOptions>(1);
  EXPECT_EQ(of_biases.lr, 0.02);
  EXPECT_EQ(optimizer.options<SgdOptions>(0).lr, 0.05);
  of_biases.momentum = 0.8;
  of_biases.weight_decay = 0.1;
  optimizer.set_options(1, of_biases);
  local.set_options(1, of_biases);
  run(5, 10);
  EXPECT_EQ(optimizer.options<SgdOptions>(1).momentum, 0.8);
  EXPECT_EQ(optimizer.options<SgdOptions>(0).momentum, 0);
  // The rate that others set goes on from there.
  optimizer.set_learning_rate(1, 0.03);
  of_biases.lr = 0.03;
  local.set_options(1, of_biases);
  run(10, 15);
  EXPECT_EQ(optimizer.options<SgdOptions>(1).weight_decay, 0.1);
  EXPECT_EQ(optimizer.initial_learning_rates(), (std::vector<double>{0.05, 0.05}));
}

TEST_P(OwnOptimizers, OptionsThatCannotBeSetAreRefused) {
  start_workers();
  const RemoteTraining training(worker(0), 2, false);
  const DistributedOptimizer adam(worker(0), training.parameters(), AdamOptions());
  const auto refusal = [](const DistributedOptimizer& optimizer, const Options& options,
                          std::size_t group = 0) {
    const RpcError error = error_of([&] { optimizer.set_options(group, options); });
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return std::string(error.message());
  };
  EXPECT_THAT(refusal(adam, AdamOptions(), 1), HasSubstr("there is no group 1"));
  EXPECT_THAT(refusal(adam, SgdOptions()),
              HasSubstr("these are options of SGD, and the optimizer is Adam"));
  AdamOptions changed;
  changed.eps = -1;
  EXPECT_THAT(refusal(adam, changed), HasSubstr("optimizer Adam: eps is -1"));
  changed = {};
  changed.amsgrad = true;
  EXPECT_THAT(refusal(adam, changed), HasSubstr("amsgrad cannot be switched on"));
  EXPECT_THAT(error_of([&] { adam.options<SgdOptions>(0); }).message(),
              HasSubstr("the optimizer is Adam, and has no options of SGD"));
  const DistributedOptimizer rms(worker(0), training.parameters(), sinew::optim::RmsPropOptions());
  sinew::optim::RmsPropOptions centered;
  centered.centered = true;
  EXPECT_THAT(refusal(rms, centered), HasSubstr("centered cannot be switched on"));
  // What was refused has changed nothing, and steps go on.
  training.step(adam, batch(0));
  training.step(rms, batch(1));
  EXPECT_FALSE(adam.options<AdamOptions>(0).amsgrad);
}

TEST(TorchOptimizer, KnowsWhoHasCheckpoints) {
  for (const Options& options : {Options(LionOptions()), Options(HeavyBallOptions()),
                                 Options(AdamOptions()), Options(sinew::optim::AdamaxOptions())}) {
    EXPECT_TRUE(options.model().has_checkpoints()) << options.name();
  }
  TorchOptimizer forgetful({{{at::zeros({3})}, ForgetfulOptions()}});
  torch::serialize::OutputArchive saved;
  EXPECT_EQ(error_of([&] { forgetful.save(saved); }).code(), ErrorCode::kUnimplemented);
  torch::serialize::InputArchive loaded;
  EXPECT_EQ(error_of([&] { forgetful.load(loaded); }).code(), ErrorCode::kUnimplemented);
}

TEST(TorchOptimizer, CountsTheStateOfAnyOptimizer) {
  const auto state_bytes = [](const Options& options) {
    at::Tensor parameter = at::zeros({1000});
    parameter.mutable_grad() = at::ones({1000});
    TorchOptimizer optimizer({{{parameter}, options}});
    optimizer.step();
    return optimizer.state_bytes();
  };
  EXPECT_EQ(state_bytes(SgdOptions()), 0U);
  EXPECT_EQ(state_bytes(LionOptions()), 4000U);
  EXPECT_EQ(state_bytes(AdamOptions()), 8000U);
  // What it saves, which is that and its names.
  EXPECT_GT(state_bytes(HeavyBallOptions()), 4000U);
}

}  // namespace
