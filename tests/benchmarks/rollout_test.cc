#include <memory>
#include <stdexcept>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/benchmarks/rollout/agent.h"
#include "sinew/tests/support/cluster.h"

namespace sinew::bench::rollout {
namespace {

using ::sinew::testing::error_of;
using ::testing::HasSubstr;

class RolloutTest : public ::sinew::testing::ClusterTest {
 protected:
  void make(int observers, const AgentSettings& settings) {
    start(1 + observers,
          serve<Observer>()
              .add<&Agent::select_action, &Agent::select_action_batched, &Agent::report_reward>());
    agent_ = std::make_shared<Agent>(worker(0), settings);
    self_ = share_rref(worker(0), agent_);
  }
  void TearDown() override {
    self_ = {};
    agent_.reset();
    finish();
  }

  std::shared_ptr<Agent> agent_;
  RRef<Agent> self_;
};

TEST_P(RolloutTest, PlaysAndLearns) {
  for (const ActionCalls calls : {ActionCalls::kSingle, ActionCalls::kBatched}) {
    AgentSettings settings;
    settings.action_calls = calls;
    make(3, settings);
    for (int episode = 0; episode < 5; ++episode) {
      const std::int64_t steps = agent_->run_episode(self_);
      agent_->finish_episode();
      EXPECT_GE(steps, 3 * 8) << "nobody drops the pole sooner";
      EXPECT_LE(steps, 3 * 166);
    }
    TearDown();
  }
}

TEST_P(RolloutTest, BatchesAreReproducible) {
  std::vector<std::vector<std::int64_t>> steps(2);
  for (std::vector<std::int64_t>& run : steps) {
    AgentSettings settings;
    settings.action_calls = ActionCalls::kBatched;
    make(3, settings);
    for (int episode = 0; episode < 6; ++episode) {
      run.push_back(agent_->run_episode(self_));
      agent_->finish_episode();
    }
    TearDown();
  }
  EXPECT_EQ(steps[0], steps[1]);
}

TEST_P(RolloutTest, NamesAnObserverThatItDoesNotHave) {
  make(1, {});
  for (const RpcError& error :
       {error_of([&] { self_.call<&Agent::select_action>(7, ::rl::State{}); }),
        error_of([&] { self_.call<&Agent::select_action_batched>(7, ::rl::State{}); }),
        error_of([&] { self_.call<&Agent::report_reward>(7, 1.0); })}) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.remote_message(), HasSubstr("no observer 7"));
  }
}

TEST_P(RolloutTest, LearningNeedsARewardForEachAction) {
  make(1, {});
  agent_->select_action(1, ::rl::State{});
  EXPECT_THROW(agent_->finish_episode(), std::logic_error);
}

SINEW_INSTANTIATE_CLUSTER_TEST(RolloutTest);

}  // namespace
}  // namespace sinew::bench::rollout
