// What an actor is made of.

#include <chrono>
#include <cmath>
#include <future>
#include <stdexcept>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/examples/actor_learner/actor/options.h"
#include "sinew/examples/actor_learner/actor/player.h"
#include "sinew/examples/actor_learner/actor/transition_queue.h"
#include "sinew/examples/actor_learner/learner/replay_buffer.h"
#include "torch/utils.h"

namespace actor_learner {
namespace {

using testing::ElementsAre;

using testing::IsEmpty;

Step numbered(int number) {
  Step step;
  step.reward = static_cast<float>(number);
  return step;
}

std::vector<float> numbers(const std::vector<Step>& steps) {
  std::vector<float> found;
  for (const Step& step : steps) found.push_back(step.reward);
  return found;
}

TEST(TransitionQueue, HandsStepsOnInTheirOrder) {
  TransitionQueue queue(10, Overflow::kDropOldest);
  for (int i = 0; i < 5; ++i) queue.push(numbered(i));
  EXPECT_THAT(numbers(queue.take(1, 3)), ElementsAre(0, 1, 2));
  EXPECT_THAT(numbers(queue.take(1, 3)), ElementsAre(3, 4));
  EXPECT_EQ(queue.dropped(), 0);
}

TEST(TransitionQueue, TakeWaitsForAsManyAsAreWanted) {
  TransitionQueue queue(10, Overflow::kDropOldest);
  queue.push(numbered(1));
  auto taken = std::async(std::launch::async, [&] { return queue.take(2, 10); });
  EXPECT_EQ(taken.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  queue.push(numbered(2));
  EXPECT_THAT(numbers(taken.get()), ElementsAre(1, 2));
}

TEST(TransitionQueue, DropsTheOldestOnesWhenItIsFull) {
  TransitionQueue queue(3, Overflow::kDropOldest);
  for (int i = 0; i < 5; ++i) queue.push(numbered(i));
  EXPECT_EQ(queue.dropped(), 2);
  // Fewer than it ever has are not waited for.
  EXPECT_THAT(numbers(queue.take(100, 100)), ElementsAre(2, 3, 4));
}

TEST(TransitionQueue, BlocksWhenItIsFullIfItIsTo) {
  TransitionQueue queue(2, Overflow::kBlock);
  queue.push(numbered(0));
  queue.push(numbered(1));
  auto pushed = std::async(std::launch::async, [&] { queue.push(numbered(2)); });
  EXPECT_EQ(pushed.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  EXPECT_THAT(numbers(queue.take(1, 1)), ElementsAre(0));
  pushed.get();
  EXPECT_THAT(numbers(queue.take(2, 2)), ElementsAre(1, 2));
  EXPECT_EQ(queue.dropped(), 0);
}

TEST(TransitionQueue, CloseEndsAllThatWait) {
  TransitionQueue queue(2, Overflow::kBlock);
  queue.push(numbered(0));
  queue.push(numbered(1));
  auto pushed = std::async(std::launch::async, [&] { queue.push(numbered(2)); });
  queue.close();
  pushed.get();
  queue.push(numbered(3));
  EXPECT_EQ(queue.dropped(), 2);
  EXPECT_THAT(numbers(queue.take(20, 1)), ElementsAre(0)) << "what is left";
  EXPECT_THAT(numbers(queue.take(20, 9)), ElementsAre(1));
  EXPECT_THAT(queue.take(20, 9), IsEmpty());

  TransitionQueue empty(2, Overflow::kDropOldest);
  auto taken = std::async(std::launch::async, [&] { return empty.take(1, 1); });
  empty.close();
  EXPECT_THAT(taken.get(), IsEmpty());
}

TEST(Player, StepsFollowEachOtherAndEpisodesEnd) {
  Player player(4);
  double episode_return = 0;
  Step before = player.step();
  for (int i = 1; i < 2 * Pendulum::kSteps; ++i) {
    episode_return += before.reward;
    const Step step = player.step();
    ASSERT_EQ(before.episode_return.has_value(), i == Pendulum::kSteps) << i;
    if (before.episode_return) {
      EXPECT_NEAR(*before.episode_return, episode_return, 0.01);
      EXPECT_NE(before.next_observation, step.observation) << "another episode";
    } else {
      EXPECT_EQ(before.next_observation, step.observation);
    }
    EXPECT_LE(std::abs(step.action), 1);
    before = step;
  }
}

TEST(Player, TheSeedDecides) {
  torch::manual_seed(1);
  Player one(4);
  torch::manual_seed(1);
  Player same(4);
  Player other(5);
  EXPECT_EQ(one.step().observation, same.step().observation);
  EXPECT_EQ(one.step().action, same.step().action);
  EXPECT_NE(one.step().observation, other.step().observation);
}

TEST(Player, PlaysByTheWeightsThatItIsGiven) {
  Policy policy;
  sinew::optim::Weights weights;
  weights.version = 7;
  // Full torque whatever it sees.
  for (const auto& each : policy.named_parameters()) {
    weights.tensors[each.key()] = at::zeros_like(each.value());
  }
  weights.tensors["mean.bias"].fill_(50);
  Player player(4);
  EXPECT_EQ(player.version(), 0U);
  player.use(weights);
  EXPECT_EQ(player.version(), 7U);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(player.step().action, 1);
  weights.version = 8;
  weights.tensors["mean.bias"] = at::zeros({2});
  EXPECT_THROW(player.use(weights), std::invalid_argument);
  EXPECT_EQ(player.version(), 7U);
}

TEST(ToPlayed, IsWhatTheLearnerTakes) {
  Player player(4);
  std::vector<Step> steps;
  for (int i = 0; i < Pendulum::kSteps + 5; ++i) steps.push_back(player.step());
  const Played played = to_played(steps);
  check(played.transitions);
  EXPECT_EQ(played.transitions.steps(), Pendulum::kSteps + 5);
  EXPECT_THAT(played.returns, ElementsAre(*steps[Pendulum::kSteps - 1].episode_return));
  const Step& step = steps[42];
  EXPECT_EQ(played.transitions.rewards[42].item<float>(), step.reward);
  EXPECT_EQ(played.transitions.actions[42][0].item<float>(), step.action);
  EXPECT_EQ(played.transitions.observations[42][1].item<float>(), step.observation[1]);
  EXPECT_EQ(played.transitions.next_observations[42][2].item<float>(), step.next_observation[2]);
  EXPECT_EQ(played.transitions.terminals.sum().item<float>(), 0);
}

}  // namespace
}  // namespace actor_learner
