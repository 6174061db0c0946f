#include "sinew/examples/rl/agent.h"
#include "sinew/examples/rl/policy.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <future>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/testing/eventually.h"
#include "sinew/testing/faults.h"
#include "sinew/tests/examples/rl_team.h"
#include "torch/optim/adam.h"

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

TEST_P(AgentTest, PlaysAndLearnsInEitherMode) {
  for (const bool batch : {false, true}) {
    SCOPED_TRACE(batch);
    Options options;
    options.batch = batch;
    make(3, options);
    EXPECT_EQ(players_->observers(), 3U);
    double average = 0;
    for (int episode = 0; episode < 5; ++episode) {
      const std::int64_t steps = players_->run_episode();
      const EpisodeResult result = players_->finish_episode();
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
  EXPECT_EQ(players_->run_episode(), 8);
  EXPECT_EQ(players_->finish_episode().last_reward, 4);
  EXPECT_DOUBLE_EQ(players_->goal(), 475.0 * 4 / 500);
}

TEST_P(AgentTest, GoalIsThatOfAWholeEpisodeAtMost) {
  Options options;
  options.max_steps = 3 * CartPole::kMaxSteps;
  make(2, options);
  EXPECT_DOUBLE_EQ(players_->goal(), 475.0);
}

/// What an episode was like: the steps of all observers, and the least of their rewards.
using Played = std::pair<std::int64_t, double>;

/// One observer, played here.
struct Player {
  CartPole environment;
  State state{};
  std::vector<at::Tensor> probabilities;
  bool done = false;
};

/// The loss of REINFORCE with the normalized returns as its weights, term by term.
at::Tensor loss_by_hand(const std::map<std::int64_t, Player>& players, double gamma) {
  std::vector<double> returns;
  for (const auto& [id, player] : players) {
    const std::size_t steps = player.probabilities.size();
    for (std::size_t i = 0; i < steps; ++i) {
      double sum = 0;
      for (std::size_t k = 0; i + k < steps; ++k) sum += std::pow(gamma, k);
      returns.push_back(sum);
    }
  }
  const double count = static_cast<double>(returns.size());
  const double mean = std::accumulate(returns.begin(), returns.end(), 0.0) / count;
  double squares = 0;
  for (const double each : returns) squares += (each - mean) * (each - mean);
  const double deviation = std::sqrt(squares / (count - 1));
  at::Tensor loss = torch::zeros({});
  auto weight = returns.begin();
  for (const auto& [id, player] : players) {
    for (const at::Tensor& probability : player.probabilities) {
      loss = loss - probability.log() * ((*weight++ - mean) / deviation);
    }
  }
  return loss;
}

/// One episode of all, step by step together.
Played play_by_hand(Policy& policy, std::map<std::int64_t, Player>& players, std::size_t share) {
  for (auto& [id, player] : players) {
    player.state = player.environment.reset();
    player.probabilities.clear();
    player.done = false;
  }
  while (true) {
    std::vector<Player*> asking;
    std::vector<at::Tensor> states;
    for (auto& [id, player] : players) {
      if (player.done) continue;
      asking.push_back(&player);
      const std::vector<double> state(player.state.begin(), player.state.end());
      states.push_back(torch::tensor(state, torch::kFloat));
    }
    if (asking.empty()) break;
    const at::Tensor probabilities = policy->forward(torch::stack(states));
    const at::Tensor actions = probabilities.multinomial(1);
    for (std::size_t i = 0; i < asking.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i);
      const auto action = actions[row].item<std::int64_t>();
      Player& player = *asking[i];
      player.probabilities.push_back(probabilities[row][action]);
      const CartPole::StepResult result = player.environment.step(static_cast<Push>(action));
      player.state = result.state;
      player.done = result.done || player.probabilities.size() == share;
    }
  }
  Played played{0, std::numeric_limits<double>::infinity()};
  for (const auto& [id, player] : players) {
    // Each step earns 1.
    const std::size_t steps = player.probabilities.size();
    played.first += static_cast<std::int64_t>(steps);
    played.second = std::min(played.second, static_cast<double>(steps));
  }
  return played;
}

/// What the agent and its observers should play: without workers, calls and batches.
std::vector<Played> played_by_hand(const Options& options, int observers, int episodes) {
  torch::manual_seed(options.seed);
  Policy policy;
  torch::optim::Adam optimizer(policy->parameters(), torch::optim::AdamOptions(1e-2));
  std::map<std::int64_t, Player> players;
  for (std::int64_t id = 1; id <= observers; ++id) {
    const std::uint64_t seed = options.seed + static_cast<std::uint64_t>(id) * 1'000'003;
    players.emplace(id, Player{CartPole(seed), {}, {}, false});
  }
  std::vector<Played> played;
  for (int episode = 0; episode < episodes; ++episode) {
    played.push_back(
        play_by_hand(policy, players, static_cast<std::size_t>(options.max_steps / observers)));
    optimizer.zero_grad();
    loss_by_hand(players, options.gamma).backward();
    optimizer.step();
  }
  return played;
}

// Whoever gets another action, weight or start than by hand plays other episodes soon.
TEST_P(AgentTest, PlaysAndLearnsAsByHand) {
  constexpr int kEpisodes = 12;
  for (const int observers : {1, 3}) {
    SCOPED_TRACE(observers);
    Options options;
    options.gamma = 0.8;
    options.seed = 11;
    options.max_steps = 60 * observers;
    options.batch = observers > 1;
    options.max_wait_ms = kForEver_ms;
    make(observers, options);
    std::vector<Played> played;
    for (int episode = 0; episode < kEpisodes; ++episode) {
      const std::int64_t steps = players_->run_episode();
      played.emplace_back(steps, players_->finish_episode().last_reward);
    }
    TearDown();
    EXPECT_EQ(played, played_by_hand(options, observers, kEpisodes));
  }
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
  for (int step = 0; step < 3; ++step) self_.async<&Agent::select_action>(1, State{}).wait();
}

TEST_P(AgentTest, RequestWaitsForTheOthers) {
  Options options;
  options.batch = true;
  options.max_wait_ms = kForEver_ms;
  make(2, options);
  self_.call<&Agent::expect>(2);
  const sinew::Future<Push> alone = self_.async<&Agent::select_action>(1, State{});
  EXPECT_EQ(error_of([&] { alone.wait_for(std::chrono::milliseconds(20)); }).code(),
            ErrorCode::kDeadlineExceeded);
  self_.call<&Agent::select_action>(2, State{});
  alone.wait();
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
    EXPECT_EQ(players_->run_episode(), 8);
    players_->finish_episode();

    kill(1);
    EXPECT_EQ(players_->run_episode(), 4);
    EXPECT_EQ(players_->finish_episode().last_reward, 4);
    EXPECT_EQ(players_->observers(), 1U);
    EXPECT_THAT(told_, ElementsAre("worker1 is lost; the others go on"));

    start_again(1);
    // It joins when the agent has heard of it.
    EXPECT_TRUE(eventually([&] {
      const std::int64_t steps = players_->run_episode();
      players_->finish_episode();
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
    EXPECT_TRUE(eventually([&] { return players_->observers() == 0; }));
    start_again(1);
  });
  EXPECT_EQ(players_->run_episode(), 4);
  again.get();
  EXPECT_EQ(players_->finish_episode().last_reward, 4);
  EXPECT_THAT(told_, ElementsAre("worker1 is lost; the others go on", "worker1 joins the team"));
}

// The agent forgets what they have played: nothing would be left to learn from.
TEST_P(AgentTest, PlaysAgainWhenAllAreLostWhoHavePlayed) {
  Options options;
  options.max_steps = 8;
  make(2, options);
  const sinew::testing::Fault held =
      faults_->hold(sinew::testing::replies<&Observer::run_episode>().at("worker2"));
  auto second = std::async(std::launch::async, [&] {
    held.wait_for_hits(1);
    kill(2);
  });
  on_told_ = [this,
              first = worker(0).peer(
                  "worker1")] {  // that the second is lost, while the first has come to its end
    kill(1);
    EXPECT_TRUE(eventually([&] { return !first.alive(); }));
    start_again(1);
    EXPECT_TRUE(eventually([this] { return players_->observers() == 1; }));
  };
  EXPECT_EQ(players_->run_episode(), 4);
  second.get();
  EXPECT_EQ(players_->finish_episode().last_reward, 4);
  EXPECT_THAT(told_, ElementsAre("worker2 is lost; the others go on",
                                 "worker1 is lost; the others go on", "worker1 joins the team"));
  self_ = {};
  players_.reset();
  abandon();
}

// Its worker lives, so a team that shrinks would hide what has failed.
TEST_P(AgentTest, ObserverThatFailsIsNotLost) {
  make(2);
  faults_->fail(sinew::testing::replies<&Observer::run_episode>().first(1));
  const sinew::RpcError error = error_of([&] { players_->run_episode(); });
  EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
  EXPECT_EQ(error.origin(), sinew::ErrorOrigin::kCallee);
  EXPECT_EQ(players_->observers(), 2U);
  EXPECT_THAT(told_, IsEmpty());
}

// Otherwise the agent would learn from fewer rewards than there were.
TEST_P(AgentTest, RewardThatIsNotTakenFailsTheEpisode) {
  for (const int before : {0, 1}) {
    SCOPED_TRACE(before);
    Options options;
    options.max_steps = 2;
    make(1, options);
    faults_->fail(sinew::testing::calls<&Agent::report_reward>().after(before).first(1));
    const sinew::RpcError error = error_of([&] { players_->run_episode(); });
    EXPECT_EQ(error.origin(), sinew::ErrorOrigin::kNestedCall);
    EXPECT_EQ(players_->observers(), 1U);
    TearDown();
  }
}

TEST_P(AgentTest, WaitsForNobodyForEver) {
  Options options;
  options.patience_s = 0.01;
  make(1, options);
  kill(1);
  const auto begin = std::chrono::steady_clock::now();
  try {
    players_->run_episode();
    ADD_FAILURE() << "an episode without an observer";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("all observers are lost, and none has come within 0.01 s"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(50));  // 60 is the usual
  self_ = {};
  players_.reset();
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
    players_->run_episode();
    EXPECT_GE(players_->finish_episode().last_reward, 1);
    TearDown();
  }
}

TEST_P(AgentTest, LearningNeedsARewardForEachAction) {
  make(1);
  self_.async<&Agent::select_action>(1, State{}).wait();
  EXPECT_EQ(error_of([&] { players_->finish_episode(); }).type_name(), "std::logic_error");
}

TEST_P(AgentTest, RewardIsThatOfWhoGotLeast) {
  make(2);
  for (const std::int64_t observer : {1, 2, 2}) {
    self_.async<&Agent::select_action>(observer, State{}).wait();
    self_.call<&Agent::report_reward>(observer, 3);
  }
  const EpisodeResult result = players_->finish_episode();
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
          self_.async<&Agent::select_action>(1, State{0.1, -0.2, 0.05, 0.3}).wait() == Push::kRight;
      self_.call<&Agent::report_reward>(1, 0);
      self_.async<&Agent::select_action>(1, State{-1, 2, -1, 0}).wait();
      self_.call<&Agent::report_reward>(1, right ? 1 : 0);
      rights += right ? 1 : 0;
    }
    return static_cast<double>(rights) / rounds;
  };
  for (int episode = 0; episode < 40; ++episode) {
    const double share = share_of_rights(32);
    if (episode == 0) {
      EXPECT_THAT(share, ::testing::AllOf(::testing::Gt(0.1), ::testing::Lt(0.9)));
    }
    players_->finish_episode();
  }
  EXPECT_GT(share_of_rights(200), 0.9);
}

TEST_P(AgentTest, EpisodeTakesAsLongAsItTakes) {
  make(2);
  worker(0).set_default_timeout(std::chrono::milliseconds(1));
  EXPECT_GE(players_->run_episode(), 2 * 8);
}

SINEW_INSTANTIATE_CLUSTER_TEST(AgentTest);

}  // namespace
}  // namespace rl
