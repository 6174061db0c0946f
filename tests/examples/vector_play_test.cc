#include "sinew/examples/rl/vector_play.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/examples/rl/cart_poles.h"
#include "sinew/examples/rl/decision.h"
#include "sinew/examples/rl/earnings.h"
#include "sinew/examples/rl/policy.h"
#include "sinew/testing/eventually.h"
#include "sinew/tests/examples/rl_team.h"
#include "torch/optim/adam.h"

namespace rl {
namespace {

using sinew::ErrorCode;
using sinew::testing::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t kSeed = 5;

std::uint64_t seed_of(std::int64_t environment) {
  return kSeed + static_cast<std::uint64_t>(environment) * kSeedStep;
}

at::Tensor row_of(const State& state) {
  return torch::tensor(std::vector<double>(state.begin(), state.end()), torch::kFloat);
}

/// A CartPole that is played by itself.
struct Single {
  explicit Single(std::int64_t number) : environment(seed_of(number)) {}
  CartPole environment;
  State state{};
  std::int64_t steps = 0;
  bool done = false;
};

std::vector<Single> singles(std::int64_t first, std::int64_t count) {
  std::vector<Single> all;
  for (std::int64_t i = first; i < first + count; ++i) all.emplace_back(i);
  return all;
}

void begin(std::vector<Single>& players) {
  for (Single& player : players) {
    player.state = player.environment.reset();
    player.steps = 0;
    player.done = false;
  }
}

/// Those that still play.
std::vector<Single*> asking(std::vector<Single>& players) {
  std::vector<Single*> found;
  for (Single& player : players) {
    if (!player.done) found.push_back(&player);
  }
  return found;
}

at::Tensor states_of(const std::vector<Single*>& players) {
  std::vector<at::Tensor> rows;
  for (const Single* player : players) rows.push_back(row_of(player->state));
  return torch::stack(rows);
}

void push(const std::vector<Single*>& players, const at::Tensor& actions, std::int64_t max_steps) {
  for (std::size_t i = 0; i < players.size(); ++i) {
    Single& player = *players[i];
    const auto action = static_cast<Push>(actions[static_cast<std::int64_t>(i)].item<int64_t>());
    const CartPole::StepResult result = player.environment.step(action);
    player.state = result.state;
    player.done = result.done || ++player.steps == max_steps;
  }
}

TEST(CartPoles, AreAsOneByOneStepByStep) {
  constexpr std::int64_t kMaxSteps = 25;
  std::mt19937 random(1);
  CartPoles together(2, 7, kSeed);
  std::vector<Single> alone = singles(2, 7);
  bool has_fallen = false;
  for (int episode = 0; episode < 4; ++episode) {
    SCOPED_TRACE(episode);
    together.reset(kMaxSteps);
    begin(alone);
    std::int64_t steps = 0;
    for (std::vector<Single*> playing = asking(alone); !playing.empty(); playing = asking(alone)) {
      ASSERT_FALSE(together.is_over());
      EXPECT_TRUE(torch::equal(together.states(), states_of(playing)));
      const auto count = static_cast<std::int64_t>(playing.size());
      const at::Tensor actions = torch::empty({count}, torch::kLong);
      for (std::int64_t i = 0; i < count; ++i) actions[i] = static_cast<std::int64_t>(random() % 2);
      std::vector<std::int32_t> numbers;
      for (const Single* player : playing) {
        numbers.push_back(2 + static_cast<std::int32_t>(player - alone.data()));
      }
      push(playing, actions, kMaxSteps);
      const Earnings earned = together.step(actions);
      EXPECT_EQ(earned.environments, numbers);
      EXPECT_EQ(earned.rewards, std::vector<double>(playing.size(), 1.0));
      has_fallen |= asking(alone).size() < playing.size() && ++steps < kMaxSteps;
    }
    EXPECT_TRUE(together.is_over());
  }
  EXPECT_TRUE(has_fallen);
}

TEST(CartPoles, WantAnActionForEach) {
  CartPoles poles(0, 3, kSeed);
  poles.reset(10);
  for (const at::Tensor& actions :
       {torch::zeros({2}, torch::kLong), torch::zeros({3, 1}, torch::kLong), torch::zeros({3})}) {
    EXPECT_THROW(poles.step(actions), std::invalid_argument);
  }
  EXPECT_EQ(poles.step(torch::ones({3}, torch::kLong)).rewards.size(), 3U);
}

TEST(Earnings, OfOneEnvironmentDoNotRunIntoThoseOfAnother) {
  const Earnings earnings{{0, 1, 2, 0, 2, 2}, {1, 2, 4, 8, 16, 32}};
  EXPECT_THAT(discounted_returns(earnings, 0.5), ElementsAre(5, 2, 20, 8, 32, 32));
  EXPECT_EQ(least_total(earnings), 2);
  EXPECT_THAT(discounted_returns({}, 0.5), IsEmpty());
  EXPECT_EQ(least_total({}), 0);
}

/// The gradient of REINFORCE's loss with some weights.
std::vector<at::Tensor> gradients(Policy& policy, const at::Tensor& probabilities) {
  policy->zero_grad();
  const at::Tensor weights =
      torch::linspace(-1.5, 2, probabilities.size(0), probabilities.options());
  (-(probabilities.log() * weights).sum()).backward();
  std::vector<at::Tensor> all;
  for (const at::Tensor& parameter : policy->parameters()) all.push_back(parameter.grad().clone());
  return all;
}

// Once with a graph for each call, as in the plain form, and once by one pass behind all calls. The
// sums have another order, so floats differ by their rounding; doubles show that nothing else does.
TEST(Decision, GivesTheGradientsOfTheSingleGraphs) {
  for (const auto& [type, tolerance] : {std::pair(torch::kFloat, 5e-6), {torch::kDouble, 1e-13}}) {
    torch::manual_seed(kSeed);
    Policy policy;
    policy->to(type);
    std::vector<at::Tensor> states;
    for (int i = 0; i < 40; ++i) states.push_back(torch::randn({1 + i % 7, 4}, type));

    torch::manual_seed(kSeed);
    std::vector<at::Tensor> actions;
    std::vector<at::Tensor> kept;
    for (const at::Tensor& some : states) {
      const at::Tensor probabilities = policy->forward(some);
      actions.push_back(probabilities.multinomial(1));
      kept.push_back(probabilities.gather(1, actions.back()).squeeze(1));
    }
    const std::vector<at::Tensor> expected = gradients(policy, torch::cat(kept));

    torch::manual_seed(kSeed);
    std::vector<Decision> decisions;
    for (const at::Tensor& some : states) {
      const at::Tensor dropout = policy->dropout(torch::ones({some.size(0), 128}, type));
      const at::Tensor drawn = policy->forward(some, dropout).multinomial(1).squeeze(1);
      EXPECT_TRUE(torch::equal(drawn, actions[decisions.size()].squeeze(1)));
      decisions.push_back({some, dropout, drawn});
    }
    const at::Tensor again = probabilities_of(*policy, decisions);
    EXPECT_LE((again - torch::cat(kept)).abs().max().item<double>(), tolerance);
    const std::vector<at::Tensor> found = gradients(policy, again);
    ASSERT_EQ(found.size(), 4U);
    for (std::size_t i = 0; i < found.size(); ++i) {
      const double scale = expected[i].abs().max().item<double>();
      EXPECT_GT(scale, 0.01);
      EXPECT_LE((found[i] - expected[i]).abs().max().item<double>() / scale, tolerance);
    }
  }
}

TEST(Decision, KeepsWhatTellsItAgain) {
  torch::manual_seed(kSeed);
  Policy policy;
  const Decision decision = decide(*policy, torch::randn({6, 4}));
  EXPECT_EQ(decision.actions.sizes(), at::IntArrayRef({6}));
  EXPECT_FALSE(decision.dropout.requires_grad());
  const at::Tensor both = policy->forward(decision.states, decision.dropout);
  const at::Tensor chosen = both.gather(1, decision.actions.unsqueeze(1)).squeeze(1);
  EXPECT_TRUE(torch::equal(probabilities_of(*policy, {decision}), chosen));
}

// A unit stays with probability 0.4, which makes up for those that do not.
TEST(Decision, DropoutIsThatOfTheLayer) {
  torch::manual_seed(kSeed);
  Policy policy;
  const at::Tensor drawn = policy->draw_dropout(1000);
  EXPECT_TRUE(((drawn == 0) | (drawn == 2.5)).all().item<bool>());
  EXPECT_NEAR((drawn != 0).to(torch::kFloat).mean().item<double>(), 0.4, 0.007);  // five deviations
  const at::Tensor states = torch::randn({6, 4});
  torch::manual_seed(kSeed);
  const at::Tensor expected = policy->forward(states);
  torch::manual_seed(kSeed);
  const at::Tensor given = policy->dropout(torch::ones({6, 128}));
  EXPECT_TRUE(torch::equal(policy->forward(states, given), expected));
}

class VectorPlayTest : public AgentTest {
 protected:
  static Options with(std::int32_t envs) {
    Options options;
    options.envs = envs;
    options.seed = kSeed;
    return options;
  }
};

/// What a round was like: the steps of all environments, and those of the one that made least.
using Round = std::pair<std::int64_t, double>;

/// Plays and learns as so many observers with one environment each, in two groups that ask in turn.
/// Keeps the graph of each pass.
std::vector<Round> rounds_by_hand(std::int64_t environments, std::int64_t max_steps, double gamma,
                                  int rounds) {
  torch::manual_seed(kSeed);
  Policy policy;
  torch::optim::Adam optimizer(policy->parameters(), torch::optim::AdamOptions(1e-2));
  std::vector<Single> groups[] = {singles(1, environments / 2),
                                  singles(1 + environments / 2, environments - environments / 2)};
  std::vector<Round> played;
  for (int round = 0; round < rounds; ++round) {
    std::map<const Single*, std::vector<at::Tensor>> probabilities;
    for (std::vector<Single>& group : groups) begin(group);
    while (!asking(groups[0]).empty() || !asking(groups[1]).empty()) {
      for (std::vector<Single>& group : groups) {
        const std::vector<Single*> players = asking(group);
        if (players.empty()) continue;
        const auto count = static_cast<std::int64_t>(players.size());
        const at::Tensor all = policy->forward(states_of(players), policy->draw_dropout(count));
        const at::Tensor actions = all.multinomial(1);
        const at::Tensor chosen = all.gather(1, actions);
        for (std::size_t i = 0; i < players.size(); ++i) {
          probabilities[players[i]].push_back(chosen[static_cast<std::int64_t>(i)]);
        }
        push(players, actions, max_steps);
      }
    }
    std::vector<at::Tensor> terms;
    std::vector<double> returns;
    Round result{0, std::numeric_limits<double>::infinity()};
    for (const auto& [player, own] : probabilities) {
      // Each step earns 1.
      std::vector<double> later;
      for (std::size_t i = 0; i < own.size(); ++i) {
        later.push_back(1 + gamma * (later.empty() ? 0 : later.back()));
      }
      returns.insert(returns.end(), later.rbegin(), later.rend());
      terms.insert(terms.end(), own.begin(), own.end());
      result.first += static_cast<std::int64_t>(own.size());
      result.second = std::min(result.second, static_cast<double>(own.size()));
    }
    played.push_back(result);
    at::Tensor weights = torch::tensor(returns, torch::kFloat);
    weights = (weights - weights.mean()) / weights.std();
    optimizer.zero_grad();
    (-(torch::cat(terms).log() * weights).sum()).backward();
    optimizer.step();
  }
  return played;
}

// So the curve is that of as many observers with one environment each.
TEST_P(VectorPlayTest, PlaysAndLearnsAsByHand) {
  constexpr int kRounds = 8;
  for (const std::int32_t envs : {2, 7}) {
    SCOPED_TRACE(envs);
    Options options = with(envs);
    options.gamma = 0.8;
    options.max_steps = 60;
    make(1, options);
    std::vector<Round> played;
    for (int round = 0; round < kRounds; ++round) {
      const std::int64_t steps = players_->run_episode();
      played.emplace_back(steps, players_->finish_episode().last_reward);
    }
    TearDown();
    EXPECT_EQ(played, rounds_by_hand(envs, 60, 0.8, kRounds));
  }
}

TEST_P(VectorPlayTest, AllEnvironmentsOfAllObserversPlay) {
  Options options = with(5);
  options.max_steps = 12;
  make(3, options);
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(players_->run_episode(), 3 * 5 * 4);  // nobody drops the pole sooner
    EXPECT_EQ(players_->finish_episode().last_reward, 4);
  }
  EXPECT_DOUBLE_EQ(players_->goal(), 475.0 * 4 / 500);
}

// Six steps of two groups.
TEST_P(VectorPlayTest, AsksForAllActionsOfAGroupInOneCall) {
  for (const int calls : {11, 12}) {
    Options options = with(40);
    options.max_steps = 6;
    make(1, options);
    faults_->fail(sinew::testing::calls<&Agent::select_actions>().after(calls));
    if (calls == 12) {
      EXPECT_EQ(players_->run_episode(), 40 * 6);
    } else {
      EXPECT_EQ(error_of([&] { players_->run_episode(); }).origin(),
                sinew::ErrorOrigin::kNestedCall);
    }
    TearDown();
  }
}

TEST_P(VectorPlayTest, LosesAnObserverAndTakesItInAgain) {
  Options options = with(6);
  options.max_steps = 8;
  make(2, options);
  EXPECT_EQ(players_->run_episode(), 2 * 6 * 4);
  players_->finish_episode();
  kill(1);
  EXPECT_EQ(players_->run_episode(), 6 * 4);
  EXPECT_EQ(players_->finish_episode().last_reward, 4);
  EXPECT_THAT(told_, ElementsAre("worker1 is lost; the others go on"));
  start_again(1);
  EXPECT_TRUE(sinew::testing::eventually([&] {
    const std::int64_t steps = players_->run_episode();
    players_->finish_episode();
    return steps == 2 * 6 * 4;
  }));
}

TEST_P(VectorPlayTest, RewardsThatAreNotTakenFailTheEpisode) {
  make(1, with(4));
  faults_->fail(sinew::testing::calls<&Agent::report_rewards>().first(1));
  const sinew::RpcError error = error_of([&] { players_->run_episode(); });
  EXPECT_EQ(error.origin(), sinew::ErrorOrigin::kNestedCall);
  EXPECT_EQ(error_of([&] { players_->finish_episode(); }).type_name(), "std::logic_error");
}

TEST_P(VectorPlayTest, RefusesWhatMakesNoSense) {
  make(1, with(4));
  const auto refused = [&](const auto& call, const std::string& why) {
    const sinew::RpcError error = error_of(call);
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.remote_message(), HasSubstr(why));
  };
  for (const at::Tensor& states : {torch::zeros({4}), torch::zeros({2, 3}), torch::zeros({0, 4}),
                                   torch::zeros({2, 4}, torch::kDouble)}) {
    refused([&] { self_.call<&Agent::select_actions>(1, states); }, "states are float");
  }
  refused([&] { self_.call<&Agent::select_actions>(7, torch::zeros({2, 4})); }, "no observer 7");
  refused([&] { self_.call<&Agent::report_rewards>(7, Earnings{}); }, "no observer 7");
  for (const Earnings& earnings :
       {Earnings{{4}, {1}}, Earnings{{-1}, {1}}, Earnings{{0, 1}, {1}}}) {
    refused([&] { self_.call<&Agent::report_rewards>(1, earnings); }, "one of 4 environments");
  }
  EXPECT_GE(players_->run_episode(), 4 * 8);
  EXPECT_GE(players_->finish_episode().last_reward, 8);
}

SINEW_INSTANTIATE_CLUSTER_TEST(VectorPlayTest);

}  // namespace
}  // namespace rl
