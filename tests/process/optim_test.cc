// A parameter server is killed, and training goes on from a checkpoint. The test is the trainer,
// with rank 0.

#include <chrono>
#include <csignal>
#include <filesystem>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/tests/optim/own_optimizers.h"
#include "sinew/tests/optim/training.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/processes.h"
#include "sinew/tests/support/temporary_folder.h"

using sinew::optim::DistributedOptimizer;
using sinew::optim::Options;
using sinew::optim::PartialStep;
using sinew::testing::ChildProcess;
using sinew::testing::eventually;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using testoptim::batch;
using testoptim::difference;
using testoptim::RemoteTraining;

namespace {

constexpr int kServers = 2;
constexpr std::int64_t kSaved = 10;
constexpr std::int64_t kKilled = 13;
constexpr std::int64_t kSteps = 30;

class OptimProcesses : public ::testing::Test {
 protected:
  void SetUp() override {
    sinew::WorkerOptions options;
    options.name = "worker0";
    testoptim::add_methods(options.methods);
    options.init_method = "file://" + folder_.file("meet");
    self_ = sinew::init_rpc(options);
    std::filesystem::create_directories(folder_.file("checkpoints"));
    for (int rank = 1; rank <= kServers; ++rank) {
      servers_.emplace_back();
      start_server(rank);
    }
  }
  void TearDown() override {
    if (self_.valid()) self_.shutdown({false, std::chrono::seconds(60), false});
  }
  void start_server(int rank, const std::string& more = "") {
    auto& server = servers_[static_cast<std::size_t>(rank - 1)];
    server = std::make_unique<ChildProcess>(std::vector<std::string>{SINEW_TEST_WORKER});
    ASSERT_THAT(server->ask(absl::StrCat("start name=worker", rank, " rank=", rank, " init=file://",
                                         folder_.file("meet"),
                                         " checkpoints=", folder_.file("checkpoints"), more)),
                StartsWith("ok "));
    const auto expected = static_cast<std::size_t>(rank + 1);
    ASSERT_TRUE(eventually([&] { return self_.workers().size() >= expected; }));
  }

  const sinew::testing::TemporaryFolder folder_;
  std::vector<std::unique_ptr<ChildProcess>> servers_;
  sinew::Worker self_;
};

TEST_F(OptimProcesses, KilledServerGoesOnFromACheckpoint) {
  sinew::optim::AdamOptions adam;
  adam.lr = 0.02;
  std::vector<at::Tensor> uninterrupted;
  {
    const RemoteTraining training(self_, kServers, false);
    const DistributedOptimizer optimizer(self_, training.parameters(), adam);
    for (std::int64_t step = 0; step < kSteps; ++step) training.step(optimizer, batch(step));
    uninterrupted = training.values();
  }
  std::int64_t resume_at = 0;
  {
    const RemoteTraining training(self_, kServers, false);
    const DistributedOptimizer optimizer(self_, training.parameters(), adam);
    for (std::int64_t step = 0; step < kKilled; ++step) {
      training.step(optimizer, batch(step));
      if (step + 1 == kSaved) optimizer.save("run", absl::StrCat(kSaved));
    }
    // Between the backward pass and the step.
    const sinew::autograd::Context context(self_);
    sinew::autograd::backward(context, {training.loss(batch(kKilled))});
    servers_[1]->signal(SIGKILL);
    try {
      optimizer.step(context);
      ADD_FAILURE() << "the step did not fail";
    } catch (const PartialStep& error) {
      EXPECT_EQ(error.code(), sinew::ErrorCode::kUnavailable) << error.what();
      EXPECT_EQ(error.peer(), "worker2");
    }
  }
  start_server(2);
  {
    const RemoteTraining training(self_, kServers, false);
    const DistributedOptimizer optimizer(self_, training.parameters(), adam);
    resume_at = std::stol(optimizer.load("run").note);
    EXPECT_EQ(resume_at, kSaved);
    for (std::int64_t step = resume_at; step < kSteps; ++step) {
      training.step(optimizer, batch(step));
    }
    EXPECT_EQ(difference(training.values(), uninterrupted), 0);
  }
}

// Their options change while they train; a checkpoint has their state and learning rates.
TEST_F(OptimProcesses, OptimizersOfUsersGoOnAtAServerThatCameBack) {
  testoptim::LionOptions lion;
  lion.lr = 0.01;
  testoptim::LionOptions decaying = lion;
  decaying.weight_decay = 0.1;
  testoptim::HeavyBallOptions ball;
  testoptim::HeavyBallOptions slower = ball;
  slower.friction = 0.5;
  for (const auto& [first, later] :
       {std::pair<Options, Options>(lion, decaying), std::pair<Options, Options>(ball, slower)}) {
    const std::string name(first.name());
    SCOPED_TRACE(name);
    testoptim::LocalTraining local(kServers, false, first);
    const auto train = [later = &later](const auto& step, const auto& set_options,
                                        std::int64_t until) {
      for (std::int64_t at = 0; at < until; ++at) {
        if (at == kSaved / 2) set_options(*later);
        step(batch(at));
      }
    };
    train([&](const testoptim::Batch& data) { local.step(data); },
          [&](const Options& options) {
            for (const std::size_t group : {0U, 1U}) local.set_options(group, options);
          },
          kSteps);
    {
      const RemoteTraining training(self_, kServers, false);
      const DistributedOptimizer optimizer(self_, training.parameters(), first);
      train([&](const testoptim::Batch& data) { training.step(optimizer, data); },
            [&](const Options& options) { optimizer.set_options(0, options); }, kSaved);
      optimizer.save(name);
      training.step(optimizer, batch(kSaved));
    }
    servers_[1]->signal(SIGKILL);
    ASSERT_TRUE(eventually([&] { return self_.workers().size() == kServers; }));
    start_server(2);
    const RemoteTraining training(self_, kServers, false);
    const DistributedOptimizer optimizer(self_, training.parameters(), later);
    optimizer.load(name);
    for (std::int64_t at = kSaved; at < kSteps; ++at) training.step(optimizer, batch(at));
    EXPECT_LT(difference(training.values(), local.values()), 1e-4);
  }
}

TEST_F(OptimProcesses, AnOwnerThatDoesNotServeAnOptimizerIsNamed) {
  servers_[1]->signal(SIGKILL);
  ASSERT_TRUE(eventually([&] { return self_.workers().size() == kServers; }));
  start_server(2, " no_optimizers=1");
  const RemoteTraining training(self_, kServers, false);
  const sinew::RpcError error = sinew::testing::error_of(
      [&] { DistributedOptimizer(self_, training.parameters(), testoptim::LionOptions()); });
  EXPECT_EQ(error.code(), sinew::ErrorCode::kUnimplemented);
  EXPECT_EQ(error.peer(), "worker2");
  EXPECT_THAT(error.message(),
              HasSubstr("worker 'worker2' has no optimizer testoptim::Lion: its program has to "
                        "serve it, sinew::serve<testoptim::Lion>() in its MethodTable"));
  EXPECT_EQ(servers_[0]->ask("counter optim.optimizers"), "ok 0");
  EXPECT_EQ(servers_[1]->ask("counter optim.optimizers"), "ok 0");
  // Those that come with Sinew are served by all.
  const DistributedOptimizer optimizer(self_, training.parameters(), sinew::optim::AdamOptions());
  training.step(optimizer, batch(0));
}

// Whenever that happens, there is a checkpoint to go on from: the one that was being saved or the
// one before.
TEST_F(OptimProcesses, ServerIsKilledWhileItSaves) {
  constexpr int kRounds = 4;
  const sinew::optim::SgdOptions sgd;
  // values[n]: after n steps without interruption.
  std::vector<std::vector<at::Tensor>> values;
  {
    const RemoteTraining training(self_, kServers, false);
    const DistributedOptimizer optimizer(self_, training.parameters(), sgd);
    for (std::int64_t step = 0; step <= 2 * kRounds; ++step) {
      values.push_back(training.values());
      training.step(optimizer, batch(step));
    }
  }
  std::mt19937 random(std::random_device{}());
  std::int64_t done = 0;
  for (int round = 0; round < kRounds; ++round) {
    {
      const RemoteTraining training(self_, kServers, false);
      const DistributedOptimizer optimizer(self_, training.parameters(), sgd);
      if (round > 0) {
        const std::int64_t resumed = std::stol(optimizer.load("run").note);
        ASSERT_TRUE(resumed == done || resumed == done - 1) << resumed << " of " << done;
        done = resumed;
      }
      ASSERT_EQ(difference(training.values(), values[static_cast<std::size_t>(done)]), 0);
      training.step(optimizer, batch(done++));
      const auto begun = std::chrono::steady_clock::now();
      optimizer.save("run", absl::StrCat(done));
      const auto took = std::chrono::duration_cast<std::chrono::microseconds>(
          std::chrono::steady_clock::now() - begun);
      training.step(optimizer, batch(done++));
      auto saving = std::async(std::launch::async, [&] {
        try {
          optimizer.save("run", absl::StrCat(done));
        } catch (const sinew::RpcError& error) {
          EXPECT_EQ(error.code(), sinew::ErrorCode::kUnavailable) << error.what();
        }
      });
      // From before its first file to after its last one.
      const auto delay = took * (random() % 1000) / 800;
      SCOPED_TRACE(absl::StrCat("killed after ", delay.count(), " us of some ", took.count()));
      std::this_thread::sleep_for(delay);
      servers_[1]->signal(SIGKILL);
      saving.get();
    }
    start_server(2);
  }
}

}  // namespace
