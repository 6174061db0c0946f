#include "sinew/benchmarks/rollout/policy.h"

#include <algorithm>

#include "ATen/ATen.h"
#include "gtest/gtest.h"

namespace sinew::bench::rollout {
namespace {

using ::rl::Push;
using ::rl::State;

constexpr State kState{0.1, -0.2, 0.05, 0.3};

double share_of_rights(Policy& policy, int draws) {
  int rights = 0;
  for (int i = 0; i < draws; ++i) rights += policy.decide({kState}).actions[0] == Push::kRight;
  return static_cast<double>(rights) / draws;
}

TEST(Policy, TakesBothActionsAtFirst) {
  Policy policy(1);
  const double share = share_of_rights(policy, 1000);
  EXPECT_GT(share, 0.2);
  EXPECT_LT(share, 0.8);
}

TEST(Policy, IsReproducibleForASeed) {
  Policy one(5);
  Policy same(5);
  for (int i = 0; i < 200; ++i) {
    const auto a = one.decide({kState});
    const auto b = same.decide({kState});
    ASSERT_EQ(a.actions, b.actions);
    ASSERT_TRUE(at::equal(a.masks, b.masks));
  }
}

TEST(Policy, DropsSixtyPercentOfTheHiddenUnitsAndScalesTheRest) {
  Policy policy(2);
  double kept = 0;
  constexpr int kDraws = 500;
  for (int i = 0; i < kDraws; ++i) {
    const at::Tensor masks = policy.decide({kState}).masks;
    ASSERT_EQ(masks.sizes(), at::IntArrayRef({1, 128}));
    kept += masks.ne(0).sum().item<double>();
    ASSERT_TRUE(masks.eq(0).logical_or(masks.eq(2.5)).all().item<bool>());
  }
  EXPECT_NEAR(kept / (kDraws * 128), 0.4, 0.012);  // six standard errors
}

TEST(Policy, DecidesForEachStateOfABatch) {
  Policy policy(3);
  const Decision decision = policy.decide({kState, State{1, 2, 3, 4}, kState});
  EXPECT_EQ(decision.actions.size(), 3U);
  ASSERT_EQ(decision.inputs.sizes(), at::IntArrayRef({3, 4}));
  EXPECT_EQ(decision.inputs[1][3].item<float>(), 4.0F);
  // Each state has units of its own dropped.
  EXPECT_FALSE(at::equal(decision.masks[0], decision.masks[2]));
}

TEST(Policy, LearnsWhatPaysOff) {
  for (const Push wanted : {Push::kLeft, Push::kRight}) {
    Policy policy(4);
    for (int round = 0; round < 20; ++round) {
      std::vector<Decision> decisions;
      std::vector<Experience> experiences;
      for (int i = 0; i < 32; ++i) {
        decisions.push_back(policy.decide({kState}));
        const Push action = decisions.back().actions[0];
        experiences.push_back({i, action, action == wanted ? 1.0 : -1.0});
      }
      policy.learn(decisions, experiences);
    }
    const double rights = share_of_rights(policy, 500);
    EXPECT_GT(wanted == Push::kRight ? rights : 1 - rights, 0.95);
  }
}

TEST(Policy, LearnsTheSameFromABatchAsFromItsStatesOneByOne) {
  // The same decisions, once in one batch and once split: what is learned must agree.
  Policy whole(6);
  Policy split(6);
  const Decision batch = whole.decide({kState, State{0, 0, 0.1, 0}});
  const Decision same = split.decide({kState, State{0, 0, 0.1, 0}});
  std::vector<Decision> parts(2);
  for (std::int64_t i = 0; i < 2; ++i) {
    parts[static_cast<std::size_t>(i)].inputs = same.inputs.narrow(0, i, 1);
    parts[static_cast<std::size_t>(i)].masks = same.masks.narrow(0, i, 1);
  }
  const std::vector<Experience> experiences = {{0, batch.actions[0], 0.7},
                                               {1, batch.actions[1], -1.3}};
  whole.learn({batch}, experiences);
  split.learn(parts, experiences);
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(whole.decide({kState}).actions, split.decide({kState}).actions);
  }
}

TEST(Policy, DoesNotMindAnEpisodeWithoutSteps) {
  Policy policy(7);
  policy.learn({}, {});
  EXPECT_EQ(policy.decide({kState}).actions.size(), 1U);
}

}  // namespace
}  // namespace sinew::bench::rollout
