#include "sinew/examples/rl/agent.h"

#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/examples/rl/training.h"
#include "sinew/tests/support/cluster.h"

namespace rl {
namespace {

using sinew::ErrorCode;
using sinew::testing::error_of;
using ::testing::HasSubstr;

sinew::MethodTable all_methods() {
  sinew::MethodTable methods;
  methods.add<&Agent::select_action>()
      .add<&Agent::select_action_batched>()
      .add<&Agent::report_reward>()
      .add<&Observer::run_episode>()
      .serve<Observer>();
  return methods;
}

struct Mode {
  const char* name;
  ActionCalls action_calls;
  RewardCalls reward_calls;
};

std::vector<Mode> all_modes() {
  return {{"single, overlapped", ActionCalls::kSingle, RewardCalls::kOverlapped},
          {"single, one by one", ActionCalls::kSingle, RewardCalls::kOneByOne},
          {"batched, overlapped", ActionCalls::kBatched, RewardCalls::kOverlapped},
          {"batched, one by one", ActionCalls::kBatched, RewardCalls::kOneByOne}};
}

class AgentTest : public sinew::testing::ClusterTest {
 protected:
  void make(int observers, AgentSettings settings = {}) {
    start(1 + observers, all_methods());
    agent_ = std::make_shared<Agent>(worker(0), settings);
    self_ = sinew::share_rref(worker(0), agent_);
  }
  void TearDown() override {
    self_ = {};
    agent_.reset();
    finish();
  }

  std::shared_ptr<Agent> agent_;
  sinew::RRef<Agent> self_;
};

TEST_P(AgentTest, PlaysAndLearnsInEveryMode) {
  for (const Mode& mode : all_modes()) {
    SCOPED_TRACE(mode.name);
    AgentSettings settings;
    settings.action_calls = mode.action_calls;
    settings.reward_calls = mode.reward_calls;
    make(3, settings);
    EXPECT_EQ(agent_->observers(), 3U);
    EXPECT_EQ(agent_->steps_per_observer(), 166);
    double average = 0;
    for (int episode = 0; episode < 5; ++episode) {
      const Rollout rollout = agent_->run_episode(self_);
      const EpisodeResult result = agent_->finish_episode();
      EXPECT_GE(result.last_reward, 1);
      EXPECT_LE(3 * result.last_reward, static_cast<double>(rollout.steps));
      EXPECT_LE(rollout.steps, 3 * 166);
      EXPECT_GT(rollout.duration.count(), 0);
      average = 0.05 * result.last_reward + 0.95 * average;
      EXPECT_DOUBLE_EQ(result.average_reward, average);
    }
    TearDown();
  }
}

TEST_P(AgentTest, EpisodesEndAfterTheShareOfSteps) {
  AgentSettings settings;
  settings.max_steps = 8;
  settings.action_calls = ActionCalls::kBatched;
  make(2, settings);
  EXPECT_EQ(agent_->run_episode(self_).steps, 8);
  EXPECT_EQ(agent_->finish_episode().last_reward, 4);
}

TEST_P(AgentTest, BatchesAreReproducible) {
  std::vector<std::vector<double>> rewards(2);
  for (std::vector<double>& run : rewards) {
    AgentSettings settings;
    settings.action_calls = ActionCalls::kBatched;
    make(3, settings);
    for (int episode = 0; episode < 6; ++episode) {
      agent_->run_episode(self_);
      run.push_back(agent_->finish_episode().last_reward);
    }
    TearDown();
  }
  EXPECT_EQ(rewards[0], rewards[1]);
}

TEST_P(AgentTest, NamesAnObserverThatItDoesNotHave) {
  make(1);
  for (const sinew::RpcError& error :
       {error_of([&] { sinew::rpc_sync<&Agent::select_action>(self_, 7, State{}); }),
        error_of([&] { sinew::rpc_sync<&Agent::select_action_batched>(self_, 7, State{}); }),
        error_of([&] { sinew::rpc_sync<&Agent::report_reward>(self_, 7, 1.0); })}) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(error.type_name(), "std::invalid_argument");
    EXPECT_THAT(error.remote_message(), HasSubstr("no observer 7"));
  }
  agent_->run_episode(self_);
  EXPECT_GE(agent_->finish_episode().last_reward, 1);
}

TEST_P(AgentTest, LearningNeedsARewardForEachAction) {
  make(1);
  agent_->select_action(1, State{});
  EXPECT_THROW(agent_->finish_episode(), std::logic_error);
}

SINEW_INSTANTIATE_CLUSTER_TEST(AgentTest);

TEST(RewardGoal, IsSharedOutLikeTheSteps) {
  EXPECT_DOUBLE_EQ(reward_goal(500), 475);
  EXPECT_DOUBLE_EQ(reward_goal(125), 475.0 / 4);
  EXPECT_DOUBLE_EQ(reward_goal(1000), 475);  // no episode is longer
}

TEST(LogLine, IsAsUsersKnowIt) {
  EXPECT_EQ(log_line(10, {35, 14.126}), "Episode 10  Last reward: 35.00  Average reward: 14.13");
}

}  // namespace
}  // namespace rl
