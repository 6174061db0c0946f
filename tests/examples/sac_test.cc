#include "sinew/examples/actor_learner/learner/sac.h"

#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/examples/actor_learner/learner/evaluation.h"
#include "sinew/examples/actor_learner/shared/pendulum.h"
#include "sinew/examples/common/archives.h"
#include "torch/utils.h"

namespace actor_learner {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kRows = 16;

Transitions some_transitions(std::uint64_t seed) {
  at::Generator random = make_random(seed);
  const auto normal = [&random](at::IntArrayRef sizes) {
    return at::empty(sizes).normal_(0, 1, random);
  };
  return {normal({kRows, kObservationSize}), normal({kRows, kActionSize}).tanh(),
          -normal({kRows}).abs(), normal({kRows, kObservationSize}), at::zeros({kRows})};
}

std::vector<at::Tensor> copies(const torch::nn::Module& module) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& parameter : module.parameters())
    result.push_back(parameter.detach().clone());
  return result;
}

bool equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!a[i].equal(b[i])) return false;
  }
  return true;
}

TEST(Policy, ActionsAndLogProbabilitiesHaveARowForEachObservation) {
  Policy policy;
  at::Generator random = make_random(1);
  const Policy::Sample sample = policy.sample(at::randn({5, kObservationSize}), random);
  EXPECT_EQ(sample.actions.sizes(), (at::IntArrayRef{5, kActionSize}));
  EXPECT_EQ(sample.log_probabilities.sizes(), (at::IntArrayRef{5}));
  EXPECT_LE(sample.actions.abs().max().item<double>(), 1);
  EXPECT_EQ(policy.mean_actions(at::randn({5, kObservationSize})).sizes(),
            (at::IntArrayRef{5, kActionSize}));
}

// The density integrates to one over -1 to 1: counted into bins, as many samples are there as their
// own log probabilities say.
TEST(Policy, LogProbabilitiesAreThoseOfTheActions) {
  torch::manual_seed(3);
  const at::NoGradGuard no_grad;
  Policy policy;
  at::Generator random = make_random(3);
  const at::Tensor observation =
      at::tensor({0.3F, -0.9F, 2.0F}).expand({200'000, kObservationSize});
  const Policy::Sample sample = policy.sample(observation, random);
  constexpr double kWidth = 0.1;
  for (const double low : {-0.6, -0.2, 0.0, 0.3, 0.7}) {
    const at::Tensor inside =
        sample.actions.squeeze(1).ge(low).logical_and(sample.actions.squeeze(1).lt(low + kWidth));
    const double share = inside.to(at::kDouble).mean().item<double>();
    const double density =
        sample.log_probabilities.masked_select(inside).to(at::kDouble).exp().mean().item<double>();
    EXPECT_GT(share, 0.01) << low;
    EXPECT_NEAR(share / kWidth / density, 1, 0.05) << low;
  }
}

TEST(Policy, LogProbabilitiesAreFiniteAtTheEdges) {
  Policy policy;
  {
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : policy.parameters()) parameter.mul_(100);
  }
  at::Generator random = make_random(1);
  const Policy::Sample sample = policy.sample(100 * at::randn({100, kObservationSize}), random);
  EXPECT_EQ(sample.actions.abs().max().item<double>(), 1) << "the test reaches the edge";
  EXPECT_TRUE(sample.log_probabilities.isfinite().all().item<bool>());
}

TEST(Policy, TakesParametersThatFitAndNoOthers) {
  Policy from;
  Policy to;
  EXPECT_FALSE(equal(copies(from), copies(to)));
  sinew::optim::StateDict state;
  for (const auto& each : from.named_parameters()) state[each.key()] = each.value();
  set_parameters(to, state);
  EXPECT_TRUE(equal(copies(from), copies(to)));

  for (const at::Tensor& wrong : {at::zeros({7}), at::Tensor(), at::zeros({64, 64}, at::kDouble)}) {
    state["second.weight"] = wrong;
    EXPECT_THAT([&] { set_parameters(to, state); },
                testing::ThrowsMessage<std::invalid_argument>(HasSubstr("'second.weight'")));
  }
  state.erase("second.weight");
  EXPECT_THROW(set_parameters(to, state), std::invalid_argument);
  EXPECT_TRUE(equal(copies(from), copies(to))) << "nothing was changed";
}

TEST(Critics, TwoOfThemSayDifferentThings) {
  Critics critics;
  const at::Tensor observations = at::randn({5, kObservationSize});
  const at::Tensor actions = at::randn({5, kActionSize}).tanh();
  const auto [first, second] = critics.forward(observations, actions);
  EXPECT_EQ(first.sizes(), (at::IntArrayRef{5}));
  EXPECT_EQ(second.sizes(), (at::IntArrayRef{5}));
  EXPECT_FALSE(first.equal(second));
  EXPECT_TRUE(critics.lower(observations, actions).equal(at::minimum(first, second)));
}

TEST(Critics, TargetsFollowByTau) {
  Critics critics;
  Critics targets;
  const std::vector<at::Tensor> before = copies(targets);
  follow(targets, critics, 0.25);
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_TRUE(
        at::allclose(targets.parameters()[i], 0.75 * before[i] + 0.25 * critics.parameters()[i]));
  }
  follow(targets, critics, 0);
  EXPECT_FALSE(equal(copies(targets), copies(critics)));
  follow(targets, critics, 1);
  EXPECT_TRUE(equal(copies(targets), copies(critics)));
}

TEST(Sac, TargetsBeginAsTheCriticsAndFollowThemSlowly) {
  SacSettings settings;
  settings.tau = 0.1;
  Sac sac(settings, 1);
  EXPECT_TRUE(equal(copies(sac.critics()), copies(sac.targets())));
  const std::vector<at::Tensor> before = copies(sac.targets());
  sac.update(some_transitions(1));
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_TRUE(at::allclose(copies(sac.targets())[i],
                             0.9 * before[i] + 0.1 * copies(sac.critics())[i], 1e-5, 1e-7));
  }
}

TEST(Sac, AnUpdateChangesAllParts) {
  Sac sac(SacSettings(), 1);
  const auto policy = copies(sac.policy());
  const auto critics = copies(sac.critics());
  const double temperature = sac.temperature();
  const Sac::Losses losses = sac.update(some_transitions(1));
  EXPECT_FALSE(equal(policy, copies(sac.policy())));
  EXPECT_FALSE(equal(critics, copies(sac.critics())));
  EXPECT_NE(temperature, sac.temperature());
  EXPECT_TRUE(std::isfinite(losses.critics + losses.policy + losses.temperature));
}

TEST(Sac, TheTemperatureRisesWhereThePolicyHasLessEntropyThanIsWanted) {
  SacSettings settings;
  settings.target_entropy = 5;  // no policy within -1 to 1 has more than log(2)
  Sac wants_more(settings, 1);
  settings.target_entropy = -50;
  Sac wants_less(settings, 1);
  for (int i = 0; i < 10; ++i) {
    wants_more.update(some_transitions(1));
    wants_less.update(some_transitions(1));
  }
  EXPECT_GT(wants_more.temperature(), 1.005);
  EXPECT_LT(wants_less.temperature(), 0.995);
}

// The reward alone counts where the task has ended: critics learn it from any number of updates.
TEST(Sac, CriticsLearnTheRewardOfTheLastStep) {
  SacSettings settings;
  settings.learning_rate = 3e-3;
  settings.reward_scale = 0.5;
  Sac sac(settings, 1);
  Transitions batch = some_transitions(2);
  batch.terminals.fill_(1);
  for (int i = 0; i < 1500; ++i) sac.update(batch);
  EXPECT_TRUE(at::allclose(sac.critics().lower(batch.observations, batch.actions),
                           0.5 * batch.rewards, 0.1, 0.1));
}

// Where it has not, what follows counts too: r + gamma r + ... = r / (1 - gamma), but for entropy.
TEST(Sac, CriticsCountWhatFollows) {
  SacSettings settings;
  settings.learning_rate = 3e-3;
  settings.reward_scale = 1;
  settings.gamma = 0.5;
  settings.tau = 0.1;
  settings.target_entropy = -50;  // the temperature goes to nothing
  Sac sac(settings, 1);
  Transitions batch = some_transitions(2);
  batch.rewards.fill_(-3);
  batch.next_observations = batch.observations;
  for (int i = 0; i < 2500; ++i) sac.update(batch);
  const double value = sac.critics().lower(batch.observations, batch.actions).mean().item<double>();
  EXPECT_NEAR(value, -6, 0.5);
}

// Rewards are the squares of the actions: the policy comes to like the edges or the middle.
TEST(Sac, ThePolicyGoesWhereTheRewardsAre) {
  for (const double sign : {1.0, -1.0}) {
    SacSettings settings;
    settings.learning_rate = 3e-3;
    settings.reward_scale = 10;
    Sac sac(settings, 1);
    Transitions batch = some_transitions(3);
    batch.terminals.fill_(1);
    batch.actions = at::linspace(-1, 1, kRows).unsqueeze(1);
    batch.rewards = sign * batch.actions.squeeze(1).square();
    for (int i = 0; i < 400; ++i) sac.update(batch);
    const double size = sac.policy().mean_actions(batch.observations).abs().mean().item<double>();
    if (sign > 0) {
      EXPECT_GT(size, 0.8);
    } else {
      EXPECT_LT(size, 0.3);
    }
  }
}

TEST(Sac, GoesOnFromAnArchiveAsIfNothingHadHappened) {
  Sac whole(SacSettings(), 1);
  for (int i = 0; i < 5; ++i) whole.update(some_transitions(i));
  torch::serialize::OutputArchive out;
  examples::save_part(out, "sac", whole);
  const std::string bytes = examples::to_bytes(out);

  Sac resumed(SacSettings(), 99);
  torch::serialize::InputArchive in;
  in.load_from(bytes.data(), bytes.size());
  examples::load_part(in, "sac", resumed);
  for (int i = 5; i < 10; ++i) {
    whole.update(some_transitions(i));
    resumed.update(some_transitions(i));
  }
  EXPECT_TRUE(equal(copies(whole.policy()), copies(resumed.policy())));
  EXPECT_TRUE(equal(copies(whole.critics()), copies(resumed.critics())));
  EXPECT_TRUE(equal(copies(whole.targets()), copies(resumed.targets())));
  EXPECT_EQ(whole.temperature(), resumed.temperature());
}

TEST(Evaluation, TheSeedDecidesAndNoReturnIsWorseThanTheWorst) {
  torch::manual_seed(1);
  Policy policy;
  const std::vector<double> returns = evaluate(policy, 8, 5);
  ASSERT_EQ(returns.size(), 8U);
  EXPECT_EQ(returns, evaluate(policy, 8, 5));
  EXPECT_NE(returns, evaluate(policy, 8, 6));
  EXPECT_NE(returns[0], returns[1]);
  for (const double one : returns) {
    EXPECT_LT(one, 0);
    EXPECT_GT(one, Pendulum::kLeastReturn);
  }
}

}  // namespace
}  // namespace actor_learner
