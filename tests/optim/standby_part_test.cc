// What a standby's part of an optimizer does when it is told what no owner would say, or less than
// it should be; and what of an owner's state it has.

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ATen/ATen.h"
#include "sinew/optim/internal/distributed_optimizer_impl.h"
#include "sinew/optim/internal/local_optimizer.h"
#include "sinew/optim/internal/optimizer_parts.h"
#include "sinew/optim/standby.h"
#include "sinew/sinew.h"
#include "sinew/testing/cluster.h"
#include "sinew/tests/optim/own_optimizers.h"
#include "sinew/tests/optim/table.h"
#include "sinew/tests/optim/training.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/temporary_folder.h"

using sinew::ErrorCode;
using sinew::RRef;
using sinew::autograd::Context;
using sinew::internal::Binding;
using sinew::internal::ChangeId;
using sinew::internal::CheckpointPlace;
using sinew::internal::LocalOptimizer;
using sinew::internal::MirroredStep;
using sinew::internal::StepAnswer;
using sinew::internal::StepMode;
using sinew::internal::StepOutcome;
using sinew::optim::DistributedOptimizer;
using sinew::optim::ParameterGroup;
using sinew::optim::PartialStep;
using sinew::optim::Standby;
using sinew::testing::calls;
using sinew::testing::error_of;
using sinew::testing::eventually;
using sinew::testing::replies;
using ::testing::HasSubstr;
using testoptim::rate_of_one;
using testoptim::Table;
using namespace std::chrono_literals;

namespace testoptim {

/// Whether a part is done, when the call returns, with what it is told at its own worker.
bool sets_rate_at_once(const RRef<LocalOptimizer>& owner, double lr) {
  return owner.local_value().set_learning_rate(0, lr).done();
}
bool loads_at_once(const RRef<LocalOptimizer>& owner, std::uint64_t load) {
  return owner.local_value().apply_load(load).done();
}

}  // namespace testoptim

SINEW_METHOD(testoptim::sets_rate_at_once, testoptim::loads_at_once);

namespace {

constexpr std::int64_t kPartSize = 8;

/// worker0 trains, worker1 owns a table, and worker2 has what will stand by.
class StandbyPart : public sinew::testing::ClusterTest {
 protected:
  void SetUp() override {
    sinew::testing::ClusterOptions options;
    options.names = sinew::testing::worker_names(3);
    testoptim::add_methods(options.methods);
    testoptim::add_optimizers(options.methods);
    options.methods.add<&testoptim::sets_rate_at_once>().add<&testoptim::loads_at_once>();
    cluster_ = &start(std::move(options));
  }

  RRef<Table> make_table(int rank) const { return worker(0).peer(rank).remote<Table>(kPartSize); }
  static ParameterGroup group_of(const RRef<Table>& table,
                                 const sinew::optim::Options& options = rate_of_one()) {
    return {{table.call<&Table::parameter>()}, options};
  }
  RRef<LocalOptimizer> make_part(const RRef<Table>& table) const {
    return sinew::internal::make_parts(worker(0), {group_of(table)}, {}).front().optimizer;
  }
  /// Has `spare` stand by for `owner`, of which it gets what that has. Returns the stream.
  static std::uint64_t catch_up(const RRef<LocalOptimizer>& owner,
                                const RRef<LocalOptimizer>& spare) {
    const std::uint64_t stream = spare.call<&LocalOptimizer::stand_by>();
    owner.call<&LocalOptimizer::add_standby>(spare, stream);
    return stream;
  }
  static std::uint64_t step(const DistributedOptimizer& optimizer, const RRef<Table>& table,
                            std::int64_t index) {
    const Context context(optimizer.impl()->worker);
    testoptim::pick_from({table}, index, context);
    return optimizer.step(context).owners.front().version;
  }

  sinew::testing::Cluster* cluster_ = nullptr;
};
SINEW_INSTANTIATE_CLUSTER_TEST(StandbyPart);

MirroredStep some_step(std::vector<std::uint64_t> positions, std::vector<at::Tensor> gradients) {
  MirroredStep step;
  step.id = {5, 1};
  step.answer.outcome = StepOutcome::kApplied;
  step.answer.order = step.answer.version = 1;
  step.positions = std::move(positions);
  step.gradients = std::move(gradients);
  return step;
}

template <class Step>
std::optional<PartialStep> failure_of(const Step& step) {
  try {
    step();
  } catch (const PartialStep& error) {
    return error;
  }
  ADD_FAILURE() << "the step did not fail";
  return std::nullopt;
}

TEST_P(StandbyPart, TakesNoStepsBeforeItHasTakenOver) {
  const RRef<Table> table = make_table(2);
  const RRef<LocalOptimizer> owner = make_part(make_table(1));
  const RRef<LocalOptimizer> spare = make_part(table);
  catch_up(owner, spare);
  const Context context(worker(0));
  testoptim::pick_from({table}, 0, context);
  const std::uint64_t trainer = worker(0).info().incarnation.value;
  const auto ask = [&](std::uint64_t number, const Binding& binding) {
    return spare.call<&LocalOptimizer::step>(sinew::internal::StepRequest{
        context.id(), {trainer, number}, number, StepMode::kApply, binding});
  };
  const StepAnswer refused = ask(1, {});
  EXPECT_EQ(refused.outcome, StepOutcome::kRefused);
  EXPECT_EQ(refused.code, static_cast<std::int32_t>(ErrorCode::kFailedPrecondition));
  EXPECT_THAT(refused.error, HasSubstr("a standby that has not taken over"));
  EXPECT_TRUE(table.call<&Table::value>().equal(at::zeros({kPartSize})));
  spare.call<&LocalOptimizer::take_over>(Binding{1, 7}, 0);
  EXPECT_EQ(ask(2, {1, 7}).outcome, StepOutcome::kApplied);
}

TEST_P(StandbyPart, DoesNotTakeOverWithoutAStepThatWasAcknowledged) {
  const RRef<LocalOptimizer> owner = make_part(make_table(1));
  const RRef<LocalOptimizer> spare = make_part(make_table(2));
  const std::uint64_t stream = catch_up(owner, spare);
  spare.call<&LocalOptimizer::follow_step>(ChangeId{stream, 1},
                                           some_step({0}, {at::ones({kPartSize})}));
  const sinew::RpcError error = error_of([&] {
    spare.call<&LocalOptimizer::take_over>(Binding{1, 7}, 2);
  });
  EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
  EXPECT_THAT(error.message(), HasSubstr("up to number 1, and number 2 was acknowledged"));
  EXPECT_NO_THROW(spare.call<&LocalOptimizer::take_over>(Binding{1, 7}, 1));
}

TEST_P(StandbyPart, OneThatWasToldWhatDoesNotFitTakesNothingMore) {
  const RRef<Table> table = make_table(2);
  const RRef<LocalOptimizer> owner = make_part(make_table(1));
  const RRef<LocalOptimizer> spare = make_part(table);
  for (const MirroredStep& wrong :
       {some_step({0}, {at::ones({kPartSize + 1})}), some_step({0}, {at::Tensor()}),
        some_step({1}, {at::ones({kPartSize})}), some_step({0, 0}, {at::ones({kPartSize})})}) {
    const std::uint64_t stream = catch_up(owner, spare);
    const auto follow = [&](std::uint64_t number, const MirroredStep& step) {
      return error_of([&] {
        spare.call<&LocalOptimizer::follow_step>(ChangeId{stream, number}, step);
      });
    };
    EXPECT_EQ(follow(1, wrong).code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(follow(2, some_step({0}, {at::ones({kPartSize})})).code(), ErrorCode::kAborted);
    const sinew::RpcError error = error_of([&] {
      spare.call<&LocalOptimizer::take_over>(Binding{1, 7}, 0);
    });
    EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
    EXPECT_THAT(error.message(), HasSubstr("it could not make a step of the owner's"));
    EXPECT_TRUE(table.call<&Table::value>().equal(at::zeros({kPartSize})));
    spare.call<&LocalOptimizer::dismiss>(stream);
  }
}

TEST_P(StandbyPart, WhatWaitsForAChangeThatWillNotComeFails) {
  const RRef<LocalOptimizer> owner = make_part(make_table(1));
  const RRef<LocalOptimizer> spare = make_part(make_table(2));
  const std::uint64_t stream = catch_up(owner, spare);
  const auto waiting = spare.async<&LocalOptimizer::follow_step>(
      ChangeId{stream, 2}, some_step({0}, {at::ones({kPartSize})}));
  // Behind it, on the same link.
  spare.call<&LocalOptimizer::dismiss>(stream);
  EXPECT_EQ(error_of([&] { waiting.wait(); }).code(), ErrorCode::kAborted);
}

TEST_P(StandbyPart, HasTheVersionsOfAnOwnerThatMakesNoMoreSteps) {
  const RRef<Table> table = make_table(1);
  const RRef<Table> spare = make_table(2);
  DistributedOptimizer optimizer(worker(0), {group_of(table)});
  for (std::int64_t index = 0; index < 3; ++index) step(optimizer, table, index);
  EXPECT_EQ(optimizer.impl()->numbers->acknowledged(optimizer.owners().front().incarnation), 3U)
      << "what take_over() asks for";
  const Standby standby(optimizer, "worker1", {group_of(spare)});
  cluster_->kill("worker1");
  optimizer = take_over(optimizer, {standby});
  EXPECT_EQ(step(optimizer, spare, 3), 4U);
  cluster_->start("worker1");
}

TEST_P(StandbyPart, HasTheOptionsOfEachGroup) {
  const std::vector<RRef<Table>> tables = {make_table(1), make_table(1)};
  const std::vector<RRef<Table>> spares = {make_table(2), make_table(2)};
  DistributedOptimizer optimizer(worker(0), {group_of(tables[0]), group_of(tables[1])});
  sinew::optim::SgdOptions decayed = rate_of_one();
  decayed.weight_decay = 0.5;
  optimizer.set_options(0, decayed);
  const Standby standby(optimizer, "worker1", {group_of(spares[0]), group_of(spares[1])});
  optimizer.set_learning_rate(1, 3);
  optimizer = take_over(optimizer, {standby});
  EXPECT_EQ(optimizer.options<sinew::optim::SgdOptions>(0).weight_decay, 0.5);
  EXPECT_EQ(optimizer.options<sinew::optim::SgdOptions>(1).weight_decay, 0);
  const Context context(worker(0));
  testoptim::pick_from(spares, 0, context);
  optimizer.step(context);
  EXPECT_EQ(spares[0].call<&Table::value>()[0].item<float>(), -1);
  EXPECT_EQ(spares[1].call<&Table::value>()[0].item<float>(), -3);
}

// The owner has answered, and the trainer has not heard it.
TEST_P(StandbyPart, KnowsStepsThatTheOwnerHadMadeBeforeItStoodBy) {
  const RRef<Table> table = make_table(1);
  const RRef<Table> spare = make_table(2);
  DistributedOptimizer optimizer(worker(0), {group_of(table)});
  const auto lost =
      cluster_->faults().drop(replies<&LocalOptimizer::step>().at("worker1").first(1));
  auto context = std::make_unique<Context>(worker(0));
  testoptim::pick_from({table}, 0, *context);
  const auto step = optimizer.step_async(context->id());
  ASSERT_TRUE(eventually([&] { return worker(1).counters()["optim.steps"] == 1; }));
  lost.wait_for_hits(1);
  const Standby standby(optimizer, "worker1", {group_of(spare)});
  cluster_->kill("worker1");
  const std::optional<PartialStep> failed = failure_of([&] { step.wait(); });
  ASSERT_TRUE(failed);
  optimizer = take_over(optimizer, {standby});
  context = nullptr;
  context = std::make_unique<Context>(worker(0));
  testoptim::pick_from({spare}, 0, *context);
  EXPECT_EQ(repeat(optimizer, *failed, *context).owners.front().version, 1U);
  EXPECT_EQ(spare.call<&Table::value>()[0].item<float>(), -1);
  cluster_->start("worker1");
}

TEST_P(StandbyPart, HasCaughtUpWhenItHasWhatWasAcknowledgedMeanwhile) {
  const RRef<Table> table = make_table(1);
  const RRef<Table> spare = make_table(2);
  const DistributedOptimizer optimizer(worker(0), {group_of(table)});
  step(optimizer, table, 0);
  const auto snapshot =
      cluster_->faults().hold(calls<&LocalOptimizer::follow_snapshot>().at("worker2").first(1));
  const auto change =
      cluster_->faults().hold(calls<&LocalOptimizer::follow_step>().at("worker2").first(1));
  auto adding = std::async(std::launch::async,
                           [&] { return Standby(optimizer, "worker1", {group_of(spare)}); });
  snapshot.wait_for_hits(1);
  EXPECT_EQ(step(optimizer, table, 1), 2U);
  change.wait_for_hits(1);
  snapshot.release();
  ASSERT_TRUE(eventually([&] { return spare.call<&Table::value>()[0].item<float>() == -1; }));
  // Longer than it takes to say so.
  for (int i = 0; i < 20; ++i) table.call<&Table::value>();
  EXPECT_NE(adding.wait_for(0s), std::future_status::ready);
  change.release();
  adding.get();
  EXPECT_TRUE(spare.call<&Table::value>().equal(table.call<&Table::value>()));
}

// Their ends say so, and a step that comes behind them does not.
TEST_P(StandbyPart, HasLoadsAndOptionsBeforeTheyAreDone) {
  const sinew::testing::TemporaryFolder folder;
  sinew::optim::serve_checkpoints(worker(1), folder.file(""));
  const RRef<Table> table = make_table(1);
  const DistributedOptimizer optimizer(worker(0), {group_of(table)});
  const Standby standby(optimizer, "worker1", {group_of(make_table(2))});
  optimizer.save("run");
  const RRef<LocalOptimizer>& part = optimizer.impl()->parts.front().optimizer;
  const CheckpointPlace place{"run", part.call<&LocalOptimizer::checkpoints>("run").whole.front()};
  part.call<&LocalOptimizer::prepare_load>(place, 7);
  auto& faults = cluster_->faults();
  const auto snapshot =
      faults.hold(calls<&LocalOptimizer::follow_snapshot>().at("worker2").first(1));
  EXPECT_FALSE(part.peer().call<&testoptim::loads_at_once>(part, 7));
  snapshot.wait_for_hits(1);
  const auto options = faults.hold(calls<&LocalOptimizer::follow_options>().at("worker2").first(1));
  EXPECT_FALSE(part.peer().call<&testoptim::sets_rate_at_once>(part, 2));
  options.wait_for_hits(1);
  options.release();
  snapshot.release();
  optimizer.load("run");
  optimizer.set_learning_rate(2);
}

// Those of steps of which the trainer has heard are needed no more.
TEST_P(StandbyPart, ForgetsAnswersAsItsOwnerDoes) {
  const RRef<Table> table = make_table(1);
  const DistributedOptimizer optimizer(worker(0), {group_of(table)});
  const Standby standby(optimizer, "worker1", {group_of(make_table(2))});
  for (std::int64_t index = 0; index < kPartSize; ++index) step(optimizer, table, index);
  EXPECT_EQ(worker(2).counters()["optim.answers"], worker(1).counters()["optim.answers"]);
  EXPECT_LE(worker(2).counters()["optim.answers"], 2);
}

// A context may get more gradients while those of a step are on their way.
TEST_P(StandbyPart, GetsTheGradientsThatTheOwnerHasStepped) {
  const RRef<Table> table = make_table(1);
  const RRef<Table> spare = make_table(2);
  const DistributedOptimizer optimizer(worker(0), {group_of(table)});
  const Standby standby(optimizer, "worker1", {group_of(spare)});
  const auto change =
      cluster_->faults().hold(calls<&LocalOptimizer::follow_step>().at("worker2").first(1));
  const Context context(worker(0));
  testoptim::pick_from({table}, 0, context);
  const auto first = optimizer.step_async(context.id());
  change.wait_for_hits(1);
  testoptim::pick_from({table}, 1, context);
  change.release();
  first.wait();
  EXPECT_TRUE(spare.call<&Table::value>().equal(table.call<&Table::value>()));
}

// That of the standby changes them too.
TEST_P(StandbyPart, GetsGradientsAsTheyWereBeforeTheOptimizerChangedThem) {
  const RRef<Table> table = make_table(1);
  const RRef<Table> spare = make_table(2);
  const testoptim::DecayedOptions decayed;
  const DistributedOptimizer optimizer(worker(0), {group_of(table, decayed)});
  const Standby standby(optimizer, "worker1", {group_of(spare, decayed)});
  for (int i = 0; i < 3; ++i) step(optimizer, table, 0);
  EXPECT_EQ(table.call<&Table::value>()[0].item<float>(), -1.15625F);
  EXPECT_TRUE(spare.call<&Table::value>().equal(table.call<&Table::value>()));
}

// It may take longer than calls of this owner do, and steps that come meanwhile wait for it.
TEST_P(StandbyPart, CatchesUpForAsLongAsItTakes) {
  const RRef<Table> table = make_table(1);
  const RRef<Table> spare = make_table(2);
  DistributedOptimizer optimizer(worker(0), {group_of(table)});
  const auto snapshot =
      cluster_->faults().hold(calls<&LocalOptimizer::follow_snapshot>().at("worker2").first(1));
  auto adding = std::async(std::launch::async,
                           [&] { return Standby(optimizer, "worker1", {group_of(spare)}); });
  snapshot.wait_for_hits(1);
  const auto default_timeout = worker(1).default_timeout();
  worker(1).set_default_timeout(1us);
  EXPECT_EQ(step(optimizer, table, 0), 1U);
  worker(1).set_default_timeout(default_timeout);
  snapshot.release();
  const Standby standby = adding.get();
  optimizer = take_over(optimizer, {standby});
  EXPECT_EQ(step(optimizer, spare, 1), 2U);
  EXPECT_TRUE(spare.call<&Table::value>().slice(0, 0, 2).equal(-at::ones({2})));
}

TEST_P(StandbyPart, OneThatMissesAChangeWhileItCatchesUpIsNone) {
  const RRef<Table> table = make_table(1);
  const RRef<Table> spare = make_table(2);
  DistributedOptimizer optimizer(worker(0), {group_of(table)});
  step(optimizer, table, 0);
  auto& faults = cluster_->faults();
  const auto snapshot =
      faults.hold(calls<&LocalOptimizer::follow_snapshot>().at("worker2").first(1));
  const auto dismissal = faults.hold(calls<&LocalOptimizer::dismiss>().at("worker2").first(1));
  faults.fail(calls<&LocalOptimizer::follow_step>().at("worker2").first(1));
  auto adding = std::async(std::launch::async, [&] {
    return error_of([&] { Standby(optimizer, "worker1", {group_of(spare)}); });
  });
  snapshot.wait_for_hits(1);
  {
    const Context context(worker(0));
    testoptim::pick_from({table}, 1, context);
    const auto missed = optimizer.step_async(context.id());
    dismissal.wait_for_hits(1);
    snapshot.release();
    // It takes what it gets in time.
    ASSERT_TRUE(eventually([&] { return spare.call<&Table::value>()[0].item<float>() == -1; }));
    dismissal.release();
    EXPECT_EQ(missed.wait().owners.front().version, 2U);
  }
  const sinew::RpcError error = adding.get();
  EXPECT_EQ(error.code(), ErrorCode::kAborted);
  EXPECT_THAT(error.message(), HasSubstr("'worker2' has missed a change"));
  const Standby standby(optimizer, "worker1", {group_of(spare)});
  EXPECT_EQ(step(optimizer, table, 2), 3U);
  optimizer = take_over(optimizer, {standby});
  EXPECT_EQ(step(optimizer, spare, 3), 4U);
}

TEST_P(StandbyPart, AnOwnerThatRefusesAnotherOneHasTheStandbyThatItHad) {
  const RRef<Table> table = make_table(1);
  const RRef<Table> spare = make_table(2);
  DistributedOptimizer optimizer(worker(0), {group_of(table)});
  const Standby standby(optimizer, "worker1", {group_of(spare)});
  step(optimizer, table, 0);
  const auto offer = [&](const std::vector<ParameterGroup>& groups) {
    return error_of([&] { Standby(optimizer, "worker1", groups); });
  };
  const ParameterGroup fitting = group_of(make_table(0));
  const sinew::RpcError small = offer({group_of(worker(0).peer(0).remote<Table>(3))});
  EXPECT_EQ(small.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(small.message(), HasSubstr("is '0 Float [8]' there, and '0 Float [3]' here"));
  EXPECT_EQ(offer({group_of(make_table(0), sinew::optim::AdamOptions())}).code(),
            ErrorCode::kInvalidArgument);
  const sinew::RpcError groups = offer({fitting, {{}, rate_of_one()}});
  EXPECT_EQ(groups.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(groups.message(), HasSubstr("it has 1 groups there, and 2 here"));
  EXPECT_EQ(step(optimizer, table, 1), 2U);
  EXPECT_TRUE(spare.call<&Table::value>().equal(table.call<&Table::value>()));
  // As one that is lost by then.
  cluster_->faults().fail(calls<&LocalOptimizer::check_fits>().at("worker0").first(1));
  EXPECT_EQ(offer({fitting}).code(), ErrorCode::kUnavailable);
  EXPECT_EQ(step(optimizer, table, 2), 3U);
  EXPECT_TRUE(spare.call<&Table::value>().equal(table.call<&Table::value>()));
  optimizer = take_over(optimizer, {standby});
  EXPECT_EQ(step(optimizer, spare, 3), 4U);
}

// What it has is neither that from before the step nor that from behind it, so nobody is to take
// it for the owner's.
TEST_P(StandbyPart, AnOwnerOfWhichAStepFailedHalfWayHasTheStandbyThatItHad) {
  const RRef<Table> table = make_table(1);
  const RRef<Table> spare = make_table(2);
  const RRef<Table> other = make_table(0);
  DistributedOptimizer optimizer(worker(0), {group_of(table)});
  const Standby standby(optimizer, "worker1", {group_of(spare)});
  step(optimizer, table, 0);
  table.call<&Table::fold>();
  const std::optional<PartialStep> failed = failure_of([&] { step(optimizer, table, 1); });
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->code(), ErrorCode::kDataLoss);
  const sinew::RpcError error = error_of([&] { Standby(optimizer, "worker1", {group_of(other)}); });
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(error.message(), HasSubstr("an earlier step failed half-way"));
  EXPECT_TRUE(other.call<&Table::value>().equal(at::zeros({kPartSize})));
  // That has all that came before, and the step can be made there.
  optimizer = take_over(optimizer, {standby});
  const Context context(worker(0));
  testoptim::pick_from({spare}, 1, context);
  EXPECT_EQ(repeat(optimizer, *failed, context).owners.front().version, 2U);
  EXPECT_TRUE(spare.call<&Table::value>().slice(0, 0, 2).equal(-at::ones({2})));
}

}  // namespace
