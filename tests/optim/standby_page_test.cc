// What docs/optim.md says of standbys: its program, and which tensors they do not have.

#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ATen/ATen.h"
#include "sinew/optim/internal/local_optimizer.h"
#include "sinew/optim/standby.h"
#include "sinew/sinew.h"
#include "sinew/testing/cluster.h"
#include "sinew/tests/support/cluster.h"
#include "torch/nn/modules/batchnorm.h"
#include "torch/nn/modules/linear.h"
#include "torch/optim/adam.h"

namespace app {

/// As large as it is told, and always with the same parameters at first.
class Net : public torch::nn::Module {
 public:
  explicit Net(std::int64_t width) {
    linear_ = register_module("linear", torch::nn::Linear(2, width));
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : linear_->parameters()) {
      parameter.copy_(at::linspace(-1, 1, parameter.numel()).view(parameter.sizes()));
    }
  }
  at::Tensor forward(const at::Tensor& input) { return linear_->forward(input); }

 private:
  torch::nn::Linear linear_{nullptr};
};

/// Has buffers, which its forward() changes.
class Normed : public torch::nn::Module {
 public:
  explicit Normed(std::int64_t width) {
    norm_ = register_module("norm", torch::nn::BatchNorm1d(width));
  }
  at::Tensor forward(const at::Tensor& input) { return norm_->forward(input); }
  /// The mean of what it has seen.
  at::Tensor mean() { return norm_->running_mean.clone(); }

 private:
  torch::nn::BatchNorm1d norm_{nullptr};
};

}  // namespace app

SINEW_MODULE(app::Net, (std::int64_t));
SINEW_MODULE(app::Normed, (std::int64_t), mean);

// The block of the page.
#include "sinew/tests/support/temporary_folder.h"
#include "standby_page.inc"

SINEW_SERVICE(app::Training, (), step);

namespace {

using sinew::ErrorCode;
using sinew::RemoteModule;
using sinew::autograd::Context;
using sinew::internal::LocalOptimizer;
using sinew::optim::DistributedOptimizer;
using sinew::optim::Standby;
using sinew::testing::error_of;
using sinew::testing::eventually;
using sinew::testing::replies;
using ::testing::HasSubstr;

std::string source_of(const std::string& file) {
  std::ostringstream text;
  text << std::ifstream(std::string(SINEW_SOURCE_DIR) + "/" + file).rdbuf();
  return text.str();
}

TEST(StandbyPage, ShowsThisProgram) {
  EXPECT_THAT(source_of("docs/optim.md"),
              HasSubstr("```cpp\n" + source_of("tests/optim/standby_page.inc") + "```\n"));
}

class StandbyPageTest : public sinew::testing::ClusterTest {
 protected:
  void SetUp() override {
    sinew::testing::ClusterOptions options;
    options.names = {"test", "trainer", "server0", "server1"};
    options.methods = sinew::serve<app::Net, app::Normed, app::Training>();
    cluster_ = &start(std::move(options));
  }

  sinew::testing::Cluster* cluster_ = nullptr;
};
SINEW_INSTANTIATE_CLUSTER_TEST(StandbyPageTest);

TEST_P(StandbyPageTest, ItsProgramOutlivesTheOwner) {
  const auto training = worker(0).peer("trainer").remote<app::Training>();
  const at::Tensor input = at::arange(6, at::kFloat).view({3, 2});
  const at::Tensor target = at::ones({3, 64});
  app::Net local(64);
  torch::optim::Adam adam(local.parameters(), sinew::optim::AdamOptions().lr);
  const auto local_step = [&] {
    adam.zero_grad();
    const at::Tensor loss = at::mse_loss(local.forward(input), target);
    loss.backward();
    adam.step();
    return loss.item<double>();
  };
  const auto step = [&] { return training.call<&app::Training::step>(input, target); };
  const auto steps_there = [&] { return cluster_->worker("server1").counters()["optim.steps"]; };
  for (int i = 0; i < 2; ++i) EXPECT_DOUBLE_EQ(step(), local_step());
  // The owner dies after it has applied a step, and before it has said so.
  const auto lost =
      cluster_->faults().drop(replies<&LocalOptimizer::step>().at("server0").first(1));
  const auto third = training.async<&app::Training::step>(input, target);
  ASSERT_TRUE(eventually([&] { return steps_there() == 3; }));
  lost.wait_for_hits(1);
  cluster_->kill("server0");
  // Both passes were made again, with the step that is there already.
  local_step();
  const double after = at::mse_loss(local.forward(input), target).item<double>();
  EXPECT_DOUBLE_EQ(third.wait(), after);
  EXPECT_EQ(steps_there(), 3);
  for (int i = 0; i < 2; ++i) EXPECT_DOUBLE_EQ(step(), local_step());
  EXPECT_EQ(steps_there(), 5);
  cluster_->start("server0");
}

// Forward passes change them, of which a standby hears nothing.
TEST_P(StandbyPageTest, BuffersAreThoseOfTheStandbyItself) {
  const sinew::testing::TemporaryFolder folder;
  for (const char* name : {"server0", "server1"}) {
    sinew::optim::serve_checkpoints(cluster_->worker(name), folder.file(""));
  }
  const sinew::Worker& trainer = worker(1);
  const RemoteModule<app::Normed> net(trainer, "server0", 3);
  const RemoteModule<app::Normed> spare(trainer, "server1", 3);
  const auto mean_of = [](const RemoteModule<app::Normed>& module) {
    return module.module_rref().call<&app::Normed::mean>();
  };
  const sinew::optim::SgdOptions sgd;
  DistributedOptimizer optimizer(trainer, net.remote_parameters(), sgd);
  optimizer.keep(net.remote_buffers());
  net.forward(at::ones({4, 3}));
  // What the standby is given it has.
  spare.load_state_dict(net.state_dict());
  const at::Tensor given = mean_of(net);
  const Standby standby(optimizer, "server0", spare.remote_parameters(), sgd);
  EXPECT_EQ(error_of([&] { optimizer.keep(spare.remote_buffers()); }).code(),
            ErrorCode::kInvalidArgument)
      << "it is no owner yet";
  net.forward(at::ones({4, 3}) * 5);
  const at::Tensor saved = mean_of(net);
  EXPECT_FALSE(saved.equal(given));
  optimizer.save("run", "with them");
  cluster_->kill("server0");
  optimizer = take_over(optimizer, {standby});
  EXPECT_TRUE(mean_of(spare).equal(given));

  // Until they are named the new owner's checkpoints are without them, and others do not fit.
  const sinew::RpcError error = error_of([&] { optimizer.load("run"); });
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(error.message(), HasSubstr("and this optimizer has [] here"));
  optimizer.save("run", "without them");
  optimizer.keep(spare.remote_buffers());
  EXPECT_EQ(error_of([&] { optimizer.load("run", 2); }).code(), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(optimizer.load("run", 1).note, "with them");
  EXPECT_TRUE(mean_of(spare).equal(saved));
  spare.forward(at::ones({4, 3}) * 9);
  const at::Tensor later = mean_of(spare);
  optimizer.save("run", "with the standby's");
  spare.forward(at::ones({4, 3}));
  EXPECT_EQ(optimizer.load("run").note, "with the standby's");
  EXPECT_TRUE(mean_of(spare).equal(later));
  cluster_->start("server0");
}

}  // namespace
