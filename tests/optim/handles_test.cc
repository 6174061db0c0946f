// Many handles on one optimizer, one after the other: nobody keeps anything of those that are gone.

#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ATen/ATen.h"
#include "sinew/optim/internal/step_answers.h"
#include "sinew/optim/internal/step_numbers.h"
#include "sinew/sinew.h"
#include "sinew/tests/optim/training.h"
#include "sinew/tests/support/cluster.h"

using sinew::optim::DistributedOptimizer;

namespace testhandles {

/// Each call brings a handle of its own.
void step(const DistributedOptimizer& optimizer, const sinew::autograd::ContextId& context) {
  optimizer.step(context);
}
void take(const std::vector<DistributedOptimizer>&) {}

}  // namespace testhandles

SINEW_METHOD(testhandles::step, testhandles::take);

namespace {

using sinew::Incarnation;
using sinew::autograd::Context;
using sinew::internal::StepAnswer;
using sinew::internal::StepAnswers;
using sinew::internal::StepMode;
using sinew::internal::StepNumbers;
using sinew::internal::StepNumbersTable;
using sinew::internal::StepOutcome;
using sinew::internal::StepRequest;
using sinew::testing::eventually;
using ::testing::HasSubstr;
using testoptim::RemoteTraining;

constexpr int kHandleSteps = 500;
constexpr int kHandles = 20'000;
constexpr int kAtOnce = 500;

class Handles : public sinew::testing::ClusterTest {};
SINEW_INSTANTIATE_CLUSTER_TEST(Handles);

TEST_P(Handles, LeaveNothingBehind) {
  sinew::MethodTable methods;
  testoptim::add_methods(methods);
  methods.add<&testhandles::step, &testhandles::take>();
  start(3, methods);
  const RemoteTraining training(worker(0), 1, false);
  const DistributedOptimizer optimizer(worker(0), training.parameters(),
                                       sinew::optim::SgdOptions());
  const Context context(worker(0));
  sinew::autograd::backward(context, {training.loss(testoptim::batch(0))});
  // Worker 1 has the parameters, worker 2 is a trainer, that takes part in the context.
  const auto answers = [&] { return worker(1).counters().at("optim.answers"); };
  for (int i = 0; i < kHandleSteps; ++i) {
    worker(0).peer(2).call<&testhandles::step>(optimizer, context.id());
    ASSERT_LE(answers(), 2);
  }
  EXPECT_EQ(worker(1).counters().at("optim.steps"), kHandleSteps);
  const std::vector<DistributedOptimizer> many(kAtOnce, optimizer);
  for (int i = 0; i < kHandles / kAtOnce; ++i) {
    worker(0).peer(2).call<&testhandles::take>(many);
  }
  EXPECT_TRUE(eventually([&] { return worker(2).counters().at("rref.users") == 0; }));
  EXPECT_LE(answers(), 2);
  EXPECT_EQ(worker(1).counters().at("optim.optimizers"), 1);
}

StepRequest request(std::uint64_t trainer, std::uint64_t number, std::uint64_t live_from,
                    StepMode mode = StepMode::kApply) {
  StepRequest made;
  made.id = {trainer, number};
  made.live_from = live_from;
  made.mode = mode;
  return made;
}

TEST(StepAnswers, RemembersWhatMayComeAgain) {
  StepAnswers answers([](Incarnation) { return false; });
  StepAnswer applied;
  applied.outcome = StepOutcome::kApplied;
  for (std::uint64_t number = 1; number <= 3; ++number) {
    EXPECT_FALSE(answers.find(request(7, number, 1)).has_value());
    applied.order = number;
    answers.add({7, number}, applied);
  }
  EXPECT_EQ(answers.find(request(7, 2, 1))->order, 2U);
  EXPECT_EQ(answers.size(), 3U);
  // The trainer goes on.
  EXPECT_EQ(answers.find(request(7, 3, 3))->order, 3U);
  EXPECT_EQ(answers.size(), 1U);
  EXPECT_THAT(answers.find(request(7, 2, 1))->error, HasSubstr("step 2 comes too late"));
  // What is asked for is given up.
  EXPECT_THAT(answers.find(request(7, 4, 3, StepMode::kAsk))->error, HasSubstr("is given up"));
  EXPECT_THAT(answers.find(request(7, 4, 3))->error, HasSubstr("is given up"));
  // Others have numbers of their own.
  EXPECT_FALSE(answers.find(request(8, 2, 1)).has_value());
}

TEST(StepAnswers, AsksWhoIsLostOnlyNowAndThen) {
  constexpr std::uint64_t kTrainers = 1000;
  std::uint64_t asked = 0;
  StepAnswers answers([&](Incarnation trainer) {
    ++asked;
    return trainer.value <= kTrainers / 2;
  });
  for (std::uint64_t trainer = 1; trainer <= kTrainers; ++trainer) {
    for (std::uint64_t number = 1; number <= 10; ++number) {
      EXPECT_FALSE(answers.find(request(trainer, number, number)).has_value());
      answers.add({trainer, number}, StepAnswer());
    }
  }
  // Of 10,000 steps.
  EXPECT_LT(asked, 4 * kTrainers);
  // One for each that may live, and for such of the lost as were not looked for again.
  EXPECT_LT(answers.size(), kTrainers);
}

TEST(StepNumbers, AreNeverGivenTwice) {
  StepNumbersTable table;
  const auto first = table.of(1);
  EXPECT_EQ(first, table.of(1));
  EXPECT_EQ(first->begin(), 1U);
  const std::uint64_t kept = first->begin();
  first->end(1);
  EXPECT_EQ(first->live_from(), kept);
  // Those of another optimizer hold nothing back.
  const auto other = table.of(2);
  const std::uint64_t of_other = other->begin();
  EXPECT_EQ(of_other, 3U);
  EXPECT_EQ(first->live_from(), kept);
  EXPECT_EQ(other->live_from(), of_other);
  other->end(of_other);
  EXPECT_EQ(other->live_from(), 4U);
  // Forgotten, and made again.
  for (std::uint64_t optimizer = 3; optimizer < 1000; ++optimizer) {
    const std::uint64_t number = table.of(optimizer)->begin();
    EXPECT_GT(number, of_other);
  }
  EXPECT_EQ(table.of(3)->begin(), 1001U);
}

}  // namespace
