#include "sinew/examples/rl/agent.h"

#include <array>
#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/testing/eventually.h"
#include "sinew/testing/faults.h"
#include "sinew/tests/support/cluster.h"

namespace rl {
namespace {

using sinew::ErrorCode;
using sinew::testing::error_of;
using sinew::testing::eventually;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Longer than any test takes.
constexpr double kForEver_ms = 3.6e6;

/// An agent on worker0, and observers on the others.
class AgentTest : public sinew::testing::ClusterTest {
 protected:
  void make(int observers, const Options& options = {}) {
    sinew::MethodTable methods = sinew::serve<Observer>();
    methods.add<&Agent::select_action, &Agent::report_reward>();
    faults_ = &start(1 + observers, methods, [this](int rank, sinew::WorkerOptions& worker) {
                 worker_options_[static_cast<std::size_t>(rank)] = worker;
               }).faults();
    agent_ = std::make_shared<Agent>(worker(0), options,
                                     [this](const std::string& line) { told_.push_back(line); });
    self_ = sinew::share_rref(worker(0), agent_);
  }
  void TearDown() override {
    self_ = {};
    agent_.reset();
    HasFailure() ? abandon() : finish();
  }

  /// As if its process were killed.
  void kill(int rank) {
    sinew::ShutdownOptions at_once;
    at_once.graceful = false;
    worker(rank).shutdown(at_once);
  }
  void start_again(int rank) {
    replace(rank, sinew::init_rpc(worker_options_[static_cast<std::size_t>(rank)]));
  }
  std::vector<double> rewards_of(int episodes) {
    std::vector<double> rewards;
    for (int i = 0; i < episodes; ++i) {
      agent_->run_episode(self_);
      rewards.push_back(agent_->finish_episode().last_reward);
    }
    return rewards;
  }

  sinew::testing::Faults* faults_ = nullptr;
  std::shared_ptr<Agent> agent_;
  sinew::RRef<Agent> self_;
  std::vector<std::string> told_;

 private:
  std::array<sinew::WorkerOptions, 4> worker_options_;
};

TEST_P(AgentTest, PlaysAndLearnsInEitherMode) {
  for (const bool batch : {false, true}) {
    SCOPED_TRACE(batch);
    Options options;
    options.batch = batch;
    make(3, options);
    EXPECT_EQ(agent_->observers(), 3U);
    double average = 0;
    for (int episode = 0; episode < 5; ++episode) {
      const std::int64_t steps = agent_->run_episode(self_);
      const EpisodeResult result = agent_->finish_episode();
      EXPECT_GE(result.last_reward, 1);
      EXPECT_LE(3 * result.last_reward, static_cast<double>(steps));
      EXPECT_LE(steps, 3 * 166);
      average = 0.05 * result.last_reward + 0.95 * average;
      EXPECT_DOUBLE_EQ(result.average_reward, average);
    }
    TearDown();
  }
  EXPECT_THAT(told_, IsEmpty());
}

TEST_P(AgentTest, EpisodesEndAfterTheShareOfSteps) {
  Options options;
  options.max_steps = 8;
  make(2, options);
  EXPECT_EQ(agent_->run_episode(self_), 8);
  EXPECT_EQ(agent_->finish_episode().last_reward, 4);
  EXPECT_DOUBLE_EQ(agent_->goal(), 475.0 * 4 / 500);
}

TEST_P(AgentTest, SeedGivesTheRun) {
  std::vector<std::vector<double>> rewards;
  for (const std::uint64_t seed : {3, 3, 4}) {
    Options options;
    options.seed = seed;
    make(1, options);
    rewards.push_back(rewards_of(8));
    TearDown();
  }
  EXPECT_EQ(rewards[0], rewards[1]);
  EXPECT_NE(rewards[0], rewards[2]);
}

// Observers end their episodes at different times: the others are answered without them at once.
TEST_P(AgentTest, BatchesOfAllWhoPlayAreReproducible) {
  std::vector<std::vector<double>> rewards(2);
  for (std::vector<double>& run : rewards) {
    Options options;
    options.batch = true;
    options.max_wait_ms = kForEver_ms;
    make(3, options);
    run = rewards_of(6);
    TearDown();
  }
  EXPECT_EQ(rewards[0], rewards[1]);
}

TEST_P(AgentTest, SlowObserverDoesNotHoldUpTheOthers) {
  Options options;
  options.batch = true;
  options.max_wait_ms = 1;
  make(2, options);
  // The other one never asks.
  for (int step = 0; step < 3; ++step) agent_->select_action(1, State{}).wait();
}

TEST_P(AgentTest, RequestWaitsForTheOthers) {
  Options options;
  options.batch = true;
  options.max_wait_ms = kForEver_ms;
  make(2, options);
  const sinew::Future<Push> alone = agent_->select_action(1, State{});
  EXPECT_EQ(error_of([&] { alone.wait_for(std::chrono::milliseconds(20)); }).code(),
            ErrorCode::kDeadlineExceeded);
}

TEST_P(AgentTest, LosesAnObserverAndTakesItInAgain) {
  for (const bool batch : {false, true}) {
    SCOPED_TRACE(batch);
    told_.clear();
    Options options;
    options.max_steps = 8;
    options.batch = batch;
    options.max_wait_ms = kForEver_ms;
    make(2, options);
    EXPECT_EQ(agent_->run_episode(self_), 8);
    agent_->finish_episode();

    kill(1);
    EXPECT_EQ(agent_->run_episode(self_), 4);
    EXPECT_EQ(agent_->finish_episode().last_reward, 4);
    EXPECT_EQ(agent_->observers(), 1U);
    EXPECT_THAT(told_, ElementsAre("worker1 is lost; the others go on"));

    start_again(1);
    // It joins when the agent has heard of it.
    EXPECT_TRUE(eventually([&] {
      const std::int64_t steps = agent_->run_episode(self_);
      agent_->finish_episode();
      return steps == 8;
    }));
    EXPECT_THAT(told_, ElementsAre("worker1 is lost; the others go on", "worker1 joins the team"));
    TearDown();
  }
}

TEST_P(AgentTest, WaitsForAnObserverWhenThereIsNone) {
  Options options;
  options.max_steps = 4;
  make(1, options);
  kill(1);
  auto again = std::async(std::launch::async, [this] {
    EXPECT_TRUE(eventually([&] { return agent_->observers() == 0; }));
    start_again(1);
  });
  EXPECT_EQ(agent_->run_episode(self_), 4);
  again.get();
  EXPECT_EQ(agent_->finish_episode().last_reward, 4);
  EXPECT_THAT(told_, ElementsAre("worker1 is lost; the others go on", "worker1 joins the team"));
}

// Its worker lives, so a team that shrinks would hide what has failed.
TEST_P(AgentTest, ObserverThatFailsIsNotLost) {
  make(2);
  faults_->fail(sinew::testing::replies<&Observer::run_episode>().first(1));
  const sinew::RpcError error = error_of([&] { agent_->run_episode(self_); });
  EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
  EXPECT_EQ(error.origin(), sinew::ErrorOrigin::kCallee);
  EXPECT_EQ(agent_->observers(), 2U);
  EXPECT_THAT(told_, IsEmpty());
}

TEST_P(AgentTest, WaitsForNobodyForEver) {
  Options options;
  options.patience_s = 0.01;
  make(1, options);
  kill(1);
  const auto begin = std::chrono::steady_clock::now();
  try {
    agent_->run_episode(self_);
    ADD_FAILURE() << "an episode without an observer";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("all observers are lost, and none has come within 0.01 s"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(50));  // 60 is the usual
  self_ = {};
  agent_.reset();
  abandon();  // Whoever is killed leaves something behind.
}

TEST_P(AgentTest, NamesAnObserverThatItDoesNotHave) {
  for (const bool batch : {false, true}) {
    Options options;
    options.batch = batch;
    make(1, options);
    for (const sinew::RpcError& error :
         {error_of([&] { self_.call<&Agent::select_action>(7, State{}); }),
          error_of([&] { self_.call<&Agent::report_reward>(7, 1.0); })}) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_EQ(error.type_name(), "std::invalid_argument");
      EXPECT_THAT(error.remote_message(), HasSubstr("no observer 7"));
    }
    agent_->run_episode(self_);
    EXPECT_GE(agent_->finish_episode().last_reward, 1);
    TearDown();
  }
}

TEST_P(AgentTest, LearningNeedsARewardForEachAction) {
  make(1);
  agent_->select_action(1, State{}).wait();
  EXPECT_THROW(agent_->finish_episode(), std::logic_error);
}

TEST_P(AgentTest, RewardIsThatOfWhoGotLeast) {
  make(2);
  for (const std::int64_t observer : {1, 2, 2}) {
    agent_->select_action(observer, State{}).wait();
    agent_->report_reward(observer, 3);
  }
  const EpisodeResult result = agent_->finish_episode();
  EXPECT_EQ(result.last_reward, 3);
  EXPECT_DOUBLE_EQ(result.average_reward, 0.15);
}

// Pushing right pays with the next push, whichever that is: so rewards must reach back.
TEST_P(AgentTest, LearnsWhatPaysOffLater) {
  Options options;
  options.gamma = 0.5;
  make(1, options);
  const auto share_of_rights = [&](int rounds) {
    int rights = 0;
    for (int i = 0; i < rounds; ++i) {
      const bool right =
          agent_->select_action(1, State{0.1, -0.2, 0.05, 0.3}).wait() == Push::kRight;
      agent_->report_reward(1, 0);
      agent_->select_action(1, State{-1, 2, -1, 0}).wait();
      agent_->report_reward(1, right ? 1 : 0);
      rights += right ? 1 : 0;
    }
    return static_cast<double>(rights) / rounds;
  };
  for (int episode = 0; episode < 40; ++episode) {
    const double share = share_of_rights(32);
    if (episode == 0) {
      EXPECT_THAT(share, ::testing::AllOf(::testing::Gt(0.1), ::testing::Lt(0.9)));
    }
    agent_->finish_episode();
  }
  EXPECT_GT(share_of_rights(200), 0.9);
}

TEST_P(AgentTest, EpisodeTakesAsLongAsItTakes) {
  make(2);
  worker(0).set_default_timeout(std::chrono::milliseconds(1));
  EXPECT_GE(agent_->run_episode(self_), 2 * 8);
}

SINEW_INSTANTIATE_CLUSTER_TEST(AgentTest);

}  // namespace
}  // namespace rl
