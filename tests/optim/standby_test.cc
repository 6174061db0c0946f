// Owners whose standbys take over.

#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ATen/ATen.h"
#include "sinew/optim/internal/local_optimizer.h"
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
using sinew::internal::LocalOptimizer;
using sinew::optim::DistributedOptimizer;
using sinew::optim::PartialStep;
using sinew::optim::Standby;
using sinew::optim::StepReport;
using sinew::testing::calls;
using sinew::testing::Cluster;
using sinew::testing::error_of;
using sinew::testing::eventually;
using sinew::testing::replies;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testoptim::rate_of_one;
using testoptim::Table;
using namespace std::chrono_literals;

namespace testoptim {

/// Another trainer that has the optimizer, and may have its standby take over.
class Deputy {
 public:
  Deputy(const DistributedOptimizer& optimizer, const Standby& standby)
      : optimizer_(optimizer), standby_(standby) {}

  /// Then makes a step of one element of the tables.
  DistributedOptimizer take_over(const RRef<Table>& first, const RRef<Table>& second,
                                 std::int64_t index) {
    optimizer_ = sinew::optim::take_over(optimizer_, {standby_});
    const Context context;
    pick_from({first, second}, index, context);
    optimizer_.step(context);
    return optimizer_;
  }

 private:
  DistributedOptimizer optimizer_;
  const Standby standby_;
};

}  // namespace testoptim

SINEW_SERVICE(testoptim::Deputy, (DistributedOptimizer, Standby), take_over);

namespace {

constexpr std::int64_t kSize = 80;

at::Tensor minus_one_at(const std::vector<std::int64_t>& indices) {
  const at::Tensor value = at::zeros({kSize});
  for (const std::int64_t index : indices) value[index] -= 1;
  return value;
}

/// Trainers are worker0 and worker4, owners worker1 and worker2, and worker3 stands by.
class StandbyTest : public sinew::testing::ClusterTest {
 protected:
  void SetUp() override {
    sinew::testing::ClusterOptions options;
    options.names = sinew::testing::worker_names(5);
    testoptim::add_methods(options.methods);
    options.methods.serve<testoptim::Deputy>();
    cluster_ = &start(std::move(options));
    for (const char* name : {"worker1", "worker2"}) tables_.push_back(make_table(name));
    spare_ = make_table("worker3");
    optimizer_ = DistributedOptimizer(worker(0), parameters(), rate_of_one());
  }
  void TearDown() override {
    context_ = nullptr;
    failed_ = {};
    standby_ = {};
    optimizer_ = {};
    tables_.clear();
    spare_ = {};
    ClusterTest::TearDown();
  }

  RRef<Table> make_table(const std::string& name) {
    return worker(0).peer(name).remote<Table>(kSize);
  }
  std::vector<RRef<at::Tensor>> parameters() const {
    std::vector<RRef<at::Tensor>> all;
    for (const RRef<Table>& table : tables_) all.push_back(table.call<&Table::parameter>());
    return all;
  }
  void add_standby(const sinew::optim::Options& options = rate_of_one()) {
    standby_ = Standby(optimizer_, "worker1", {spare_.call<&Table::parameter>()}, options);
  }
  /// worker1 dies; its part is that of worker3 then.
  void fail_over() {
    cluster_->kill("worker1");
    take_over();
  }
  void take_over() {
    optimizer_ = sinew::optim::take_over(optimizer_, {standby_});
    tables_[0] = spare_;
  }
  /// Ends what was killed for the shutdown at the end.
  void start_again(const std::string& name) { cluster_->start(name); }

  StepReport pick(std::int64_t index) const {
    const Context context(worker(0));
    testoptim::pick_from(tables_, index, context);
    return optimizer_.step(context);
  }
  sinew::Future<StepReport> begin_step(std::int64_t index) {
    context_ = std::make_unique<Context>(worker(0));
    testoptim::pick_from(tables_, index, *context_);
    return optimizer_.step_async(context_->id());
  }
  /// Makes a step that has not been acknowledged once more.
  StepReport redo(std::int64_t index) {
    const Context context(worker(0));
    testoptim::pick_from(tables_, index, context);
    return sinew::optim::repeat(optimizer_, *failed_, context);
  }
  /// Waits for a step that fails.
  void fail(const sinew::Future<StepReport>& step) {
    try {
      step.wait();
      ADD_FAILURE() << "the step did not fail";
    } catch (const PartialStep& error) {
      failed_ = error;
    }
    context_ = nullptr;
  }
  at::Tensor value(std::size_t table) const { return tables_[table].call<&Table::value>(); }
  std::int64_t steps_at(int owner) const { return worker(owner).counters()["optim.steps"]; }

  Cluster* cluster_ = nullptr;
  std::vector<RRef<Table>> tables_;
  RRef<Table> spare_;
  DistributedOptimizer optimizer_;
  Standby standby_;
  std::unique_ptr<Context> context_;
  std::optional<PartialStep> failed_;
};

TEST_P(StandbyTest, HasWhatWasAcknowledgedAndGoesOn) {
  sinew::optim::SgdOptions momentum = rate_of_one();
  momentum.momentum = 0.5;
  optimizer_ = DistributedOptimizer(worker(0), parameters(), momentum);
  pick(0);
  add_standby(momentum);
  EXPECT_EQ(standby_.owner(), "worker1");
  EXPECT_EQ(standby_.worker().name, "worker3");
  EXPECT_EQ(pick(1).owners[0].version, 2U);
  const at::Tensor before = value(0);
  EXPECT_TRUE(spare_.call<&Table::value>().equal(before));
  fail_over();
  EXPECT_EQ(optimizer_.owners()[0].name, "worker3");
  EXPECT_EQ(pick(2).owners[0].version, 3U);
  // The same as at the owner that has lived all the time: steps, and the momentum of all.
  EXPECT_TRUE(value(0).equal(value(1))) << value(0);
  start_again("worker1");
}

TEST_P(StandbyTest, AStepIsAcknowledgedWhenTheStandbyHasIt) {
  add_standby();
  const auto held =
      cluster_->faults().hold(calls<&LocalOptimizer::follow_step>().at("worker3").first(1));
  const auto step = begin_step(0);
  held.wait_for_hits(1);
  ASSERT_TRUE(eventually([&] { return steps_at(1) == 1; }));
  EXPECT_FALSE(step.done());
  // Others wait for this one.
  const auto second = optimizer_.step_async(context_->id());
  ASSERT_TRUE(eventually([&] { return steps_at(1) == 2; }));
  EXPECT_FALSE(second.done());
  EXPECT_TRUE(spare_.call<&Table::value>().equal(at::zeros({kSize})));
  held.release();
  EXPECT_EQ(step.wait().owners[0].version, 1U);
  EXPECT_EQ(second.wait().owners[0].version, 2U);
  EXPECT_TRUE(spare_.call<&Table::value>().equal(minus_one_at({0, 0})));
}

TEST_P(StandbyTest, StepsGoOnWhileItCatchesUp) {
  const auto held =
      cluster_->faults().hold(calls<&LocalOptimizer::follow_snapshot>().at("worker3").first(1));
  pick(0);
  auto adding = std::async(std::launch::async, [&] { add_standby(); });
  held.wait_for_hits(1);
  // The snapshot is older than these, which come before it.
  for (std::int64_t step = 1; step < 40; ++step) pick(step);
  EXPECT_TRUE(spare_.call<&Table::value>().equal(at::zeros({kSize})));
  held.release();
  adding.get();
  pick(40);
  fail_over();
  std::vector<std::int64_t> all(41);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
  EXPECT_TRUE(value(0).equal(minus_one_at(all))) << value(0);
  EXPECT_EQ(pick(41).owners[0].version, 42U);
  start_again("worker1");
}

// It holds back those that make it fall further behind.
TEST_P(StandbyTest, StepsWaitForAStandbyThatIsFarBehind) {
  const auto held =
      cluster_->faults().hold(calls<&LocalOptimizer::follow_snapshot>().at("worker3").first(1));
  auto adding = std::async(std::launch::async, [&] { add_standby(); });
  held.wait_for_hits(1);
  std::vector<sinew::Future<StepReport>> steps = {begin_step(0)};
  for (std::int64_t step = 0; step < 70; ++step) {
    ASSERT_TRUE(eventually([&] { return steps_at(1) == step + 1; }));
    steps.push_back(optimizer_.step_async(context_->id()));
  }
  steps[10].wait();
  EXPECT_FALSE(steps[69].done());
  held.release();
  adding.get();
  EXPECT_EQ(steps[69].wait().owners[0].version, 70U);
  steps[70].wait();
}

// The owner dies after it has applied the step and before it has said so.
TEST_P(StandbyTest, AStepThatTheStandbyHasIsNotAppliedAgain) {
  add_standby();
  pick(0);
  const auto lost =
      cluster_->faults().drop(replies<&LocalOptimizer::step>().at("worker1").first(1));
  const auto step = begin_step(1);
  for (const int owner : {1, 2, 3}) ASSERT_TRUE(eventually([&] { return steps_at(owner) == 2; }));
  lost.wait_for_hits(1);
  cluster_->kill("worker1");
  fail(step);
  EXPECT_THAT(failed_->unknown(), ElementsAre("worker1"));
  EXPECT_THAT(failed_->applied(), ElementsAre("worker2"));
  take_over();
  const StepReport again = redo(1);
  EXPECT_EQ(again.owners[0].version, 2U) << "as the first time";
  EXPECT_EQ(again.owners[1].version, 2U);
  for (const std::size_t table : {0, 1}) EXPECT_TRUE(value(table).equal(minus_one_at({0, 1})));
  start_again("worker1");
}

// The owner dies after it has applied the step, and the standby has not got it.
TEST_P(StandbyTest, AStepThatTheStandbyHasNotIsAppliedThereAlone) {
  add_standby();
  pick(0);
  cluster_->faults().drop(calls<&LocalOptimizer::follow_step>().at("worker3").first(1));
  const auto step = begin_step(1);
  for (const int owner : {1, 2}) ASSERT_TRUE(eventually([&] { return steps_at(owner) == 2; }));
  cluster_->kill("worker1");
  fail(step);
  take_over();
  EXPECT_TRUE(value(0).equal(minus_one_at({0})));
  EXPECT_EQ(redo(1).owners[0].version, 2U);
  for (const std::size_t table : {0, 1}) EXPECT_TRUE(value(table).equal(minus_one_at({0, 1})));
  // A third time changes nothing either.
  EXPECT_EQ(redo(1).owners[0].version, 2U);
  EXPECT_TRUE(value(0).equal(minus_one_at({0, 1})));
  start_again("worker1");
}

TEST_P(StandbyTest, AStepThatWasNotBegunIsMadeWhole) {
  add_standby();
  context_ = std::make_unique<Context>(worker(0));
  testoptim::pick_from(tables_, 0, *context_);
  cluster_->kill("worker1");
  try {
    optimizer_.step(*context_);
    ADD_FAILURE() << "the step did not fail";
  } catch (const PartialStep& error) {
    failed_ = error;
  }
  EXPECT_THAT(failed_->not_applied(), ElementsAre("worker1", "worker2"));
  take_over();
  const auto code_of_repeating = [&] {
    return error_of([&] { sinew::optim::repeat(optimizer_, *failed_, *context_); }).code();
  };
  EXPECT_EQ(code_of_repeating(), ErrorCode::kAborted) << "its gradients are lost with the owner";
  EXPECT_EQ(error_of([&] { optimizer_.step(*context_); }).code(), ErrorCode::kAborted);
  context_ = nullptr;
  redo(0);
  for (const std::size_t table : {0, 1}) EXPECT_TRUE(value(table).equal(minus_one_at({0})));
  start_again("worker1");
}

TEST_P(StandbyTest, OneThatIsLostCostsTheOwnerNothing) {
  add_standby();
  pick(0);
  const auto held = cluster_->faults().hold(calls<&LocalOptimizer::follow_step>().at("worker3"));
  const auto step = begin_step(1);
  held.wait_for_hits(1);
  cluster_->kill("worker3");
  EXPECT_EQ(step.wait().owners[0].version, 2U);
  context_ = nullptr;
  held.remove();
  EXPECT_EQ(pick(2).owners[0].version, 3U);
  EXPECT_FALSE(standby_.alive());
  EXPECT_EQ(error_of([&] { sinew::optim::take_over(optimizer_, {standby_}); }).code(),
            ErrorCode::kUnavailable);
  EXPECT_EQ(pick(3).owners[0].version, 4U) << "nothing has changed";
  // Another one takes its place, and catches up.
  start_again("worker3");
  spare_ = make_table("worker3");
  add_standby();
  fail_over();
  EXPECT_TRUE(value(0).equal(minus_one_at({0, 1, 2, 3})));
  start_again("worker1");
}

TEST_P(StandbyTest, OneThatHasMissedAStepDoesNotTakeOver) {
  add_standby();
  cluster_->faults().fail(calls<&LocalOptimizer::follow_step>().at("worker3").first(1),
                          ErrorCode::kResourceExhausted);
  EXPECT_EQ(pick(0).owners[0].version, 1U) << "the owner goes on without it";
  EXPECT_EQ(pick(1).owners[0].version, 2U);
  const sinew::RpcError error = error_of([&] { sinew::optim::take_over(optimizer_, {standby_}); });
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(error.message(), HasSubstr("its owner has gone on without it"));
}

// It could not be told that it lacks a step, so the step is none that is known to be there.
TEST_P(StandbyTest, NothingIsAcknowledgedBeforeTheStandbyKnowsThatItIsNone) {
  add_standby();
  cluster_->faults().fail(calls<&LocalOptimizer::follow_step>().at("worker3").first(1));
  const auto untold = cluster_->faults().fail(calls<&LocalOptimizer::dismiss>().at("worker3"));
  fail(begin_step(0));
  EXPECT_THAT(failed_->unknown(), ElementsAre("worker1"));
  untold.wait_for_hits(1);
  untold.remove();
  EXPECT_EQ(redo(0).owners[0].version, 1U) << "the owner has it, and its standby knows now";
  EXPECT_EQ(error_of([&] { sinew::optim::take_over(optimizer_, {standby_}); }).code(),
            ErrorCode::kFailedPrecondition);
  EXPECT_TRUE(value(0).equal(minus_one_at({0})));
}

// An owner that lives, since it was taken for lost: nothing of what it does counts any more.
TEST_P(StandbyTest, TheOwnerThatIsReplacedIsFencedOff) {
  add_standby();
  const auto held =
      cluster_->faults().hold(calls<&LocalOptimizer::follow_step>().at("worker3").first(1));
  const DistributedOptimizer old = optimizer_;
  const RRef<Table> table = tables_[0];
  const auto late = begin_step(0);
  held.wait_for_hits(1);
  ASSERT_TRUE(eventually([&] { return steps_at(1) == 1; }));
  take_over();
  held.release();
  fail(late);
  EXPECT_EQ(failed_->code(), ErrorCode::kAborted);
  EXPECT_THAT(failed_->message(), HasSubstr("standby of this owner has taken over"));
  EXPECT_THAT(failed_->unknown(), ElementsAre("worker1"));
  EXPECT_TRUE(value(0).equal(at::zeros({kSize})));
  EXPECT_EQ(redo(0).owners[0].version, 1U);
  // The gradients went to the old owner.
  const Context other(worker(0));
  testoptim::pick_from({table, tables_[1]}, 1, other);
  try {
    old.step(other);
    ADD_FAILURE() << "the step did not fail";
  } catch (const PartialStep& error) {
    EXPECT_EQ(error.code(), ErrorCode::kAborted);
    EXPECT_THAT(error.not_applied(), ElementsAre("worker1", "worker2"));
  }
  for (const std::size_t one : {0, 1}) EXPECT_TRUE(value(one).equal(minus_one_at({0})));
}

// One that gave its standby up, but could not tell it in time.
TEST_P(StandbyTest, AnOwnerThatGivesUpAStandbyThatHasTakenOverAcknowledgesNothing) {
  add_standby();
  const auto held = cluster_->faults().hold(calls<&LocalOptimizer::dismiss>().at("worker3"));
  cluster_->faults().fail(calls<&LocalOptimizer::follow_step>().at("worker3").first(1));
  const auto step = begin_step(0);
  held.wait_for_hits(1);
  EXPECT_FALSE(step.done());
  take_over();
  held.release();
  fail(step);
  EXPECT_EQ(failed_->code(), ErrorCode::kAborted);
  redo(0);
  for (const std::size_t one : {0, 1}) EXPECT_TRUE(value(one).equal(minus_one_at({0})));
}

TEST_P(StandbyTest, OptionsAndLoadsReachItToo) {
  const sinew::testing::TemporaryFolder folder;
  for (const char* name : {"worker1", "worker2", "worker3"}) {
    sinew::optim::serve_checkpoints(cluster_->worker(name), folder.file(""));
  }
  pick(0);
  optimizer_.save("run", "1");
  add_standby();
  pick(1);
  optimizer_.load("run");
  EXPECT_TRUE(spare_.call<&Table::value>().equal(minus_one_at({0})));
  EXPECT_EQ(pick(2).owners[0].version, 2U);
  optimizer_.set_learning_rate(2);
  pick(3);
  EXPECT_EQ(spare_.call<&Table::value>()[3].item<float>(), -2);
  sinew::optim::SgdOptions decayed = rate_of_one();
  decayed.weight_decay = 0.5;
  optimizer_.set_options(0, decayed);
  fail_over();
  EXPECT_EQ(optimizer_.options<sinew::optim::SgdOptions>(0).weight_decay, 0.5);
  pick(4);
  EXPECT_TRUE(value(0).equal(value(1))) << value(0);
  // It goes on with the owner's checkpoints.
  EXPECT_EQ(optimizer_.save("run", "5").number, 2U);
  pick(5);
  EXPECT_EQ(optimizer_.load("run").note, "5");
  EXPECT_TRUE(value(0).equal(value(1)));
  optimizer_.load("run", 1);
  EXPECT_TRUE(value(0).equal(minus_one_at({0})));
  start_again("worker1");
}

TEST_P(StandbyTest, AnotherTrainerLetsItTakeOver) {
  add_standby();
  pick(0);
  const auto deputy = worker(0).peer("worker4").remote<testoptim::Deputy>(optimizer_, standby_);
  deputy.created().wait();
  cluster_->kill("worker1");
  optimizer_ = deputy.call<&testoptim::Deputy::take_over>(spare_, tables_[1], 1);
  tables_[0] = spare_;
  pick(2);
  for (const std::size_t one : {0, 1}) EXPECT_TRUE(value(one).equal(minus_one_at({0, 1, 2})));
  start_again("worker1");
}

TEST_P(StandbyTest, OfTwoWhoLetItTakeOverTheLastOneCounts) {
  add_standby();
  pick(0);
  const DistributedOptimizer before = optimizer_;
  fail_over();
  const DistributedOptimizer first = optimizer_;
  optimizer_ = sinew::optim::take_over(before, {standby_});
  {
    const Context context(worker(0));
    testoptim::pick_from(tables_, 1, context);
    EXPECT_EQ(error_of([&] { first.step(context); }).code(), ErrorCode::kAborted);
  }
  pick(1);
  for (const std::size_t one : {0, 1}) EXPECT_TRUE(value(one).equal(minus_one_at({0, 1})));
  start_again("worker1");
}

// The owner's place is taken, and the worker that comes back stands by for the next time.
TEST_P(StandbyTest, TheLostWorkerComesBackAsTheStandby) {
  add_standby();
  pick(0);
  fail_over();
  start_again("worker1");
  spare_ = make_table("worker1");
  standby_ = Standby(optimizer_, "worker3", {spare_.call<&Table::parameter>()}, rate_of_one());
  pick(1);
  cluster_->kill("worker3");
  take_over();
  EXPECT_EQ(pick(2).owners[0].version, 3U);
  EXPECT_TRUE(value(0).equal(minus_one_at({0, 1, 2})));
  start_again("worker3");
}

// Answers of the first owner are given by the second one, and known by the third.
TEST_P(StandbyTest, OrdersGoOnFromOwnerToOwner) {
  for (std::int64_t step = 0; step < 5; ++step) pick(step);
  add_standby();
  const auto lost =
      cluster_->faults().drop(replies<&LocalOptimizer::step>().at("worker1").first(1));
  const auto step = begin_step(5);
  for (const int owner : {1, 2}) ASSERT_TRUE(eventually([&] { return steps_at(owner) == 6; }));
  ASSERT_TRUE(eventually([&] { return steps_at(3) == 1; }));
  lost.wait_for_hits(1);
  cluster_->kill("worker1");
  fail(step);
  take_over();
  EXPECT_EQ(redo(5).owners[0].order, 6U) << "as the first time";
  EXPECT_EQ(pick(6).owners[0].order, 7U);
  start_again("worker1");
  spare_ = make_table("worker1");
  standby_ = Standby(optimizer_, "worker3", {spare_.call<&Table::parameter>()}, rate_of_one());
  cluster_->kill("worker3");
  take_over();
  EXPECT_EQ(pick(7).owners[0].order, 8U);
  EXPECT_TRUE(value(0).equal(minus_one_at({0, 1, 2, 3, 4, 5, 6, 7})));
  start_again("worker3");
}

TEST_P(StandbyTest, TheSecondStandbyTakesThePlaceOfTheFirst) {
  add_standby();
  const Standby first = standby_;
  pick(0);
  spare_ = make_table("worker4");
  add_standby();
  pick(1);
  EXPECT_EQ(error_of([&] { sinew::optim::take_over(optimizer_, {first}); }).code(),
            ErrorCode::kFailedPrecondition);
  fail_over();
  EXPECT_EQ(optimizer_.owners()[0].name, "worker4");
  EXPECT_TRUE(value(0).equal(minus_one_at({0, 1})));
  start_again("worker1");
}

TEST_P(StandbyTest, MistakesAreNamed) {
  const auto own = spare_.call<&Table::parameter>();
  const auto why = [&](std::string_view owner, std::vector<RRef<at::Tensor>> parameters,
                       const sinew::optim::Options& options) {
    const sinew::RpcError error =
        error_of([&] { Standby(optimizer_, owner, std::move(parameters), options); });
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
    return error.message();
  };
  EXPECT_THAT(why("worker9", {own}, rate_of_one()),
              HasSubstr("'worker9' has no parameters of the optimizer"));
  EXPECT_THAT(why("worker1", {tables_[1].call<&Table::parameter>()}, rate_of_one()),
              HasSubstr("'worker2' has parameters of the optimizer itself"));
  const RRef<Table> other = make_table("worker4");
  EXPECT_THAT(why("worker1", {own, other.call<&Table::parameter>()}, rate_of_one()),
              HasSubstr("is one worker, and these parameters are at 2"));
  const RRef<Table> small = worker(0).peer("worker3").remote<Table>(3);
  EXPECT_THAT(why("worker1", {small.call<&Table::parameter>()}, rate_of_one()),
              HasSubstr("parameter 0 (group, type, sizes) is '0 Float [80]' there, and '0 Float "
                        "[3]' here"));
  EXPECT_THAT(why("worker1", {own}, sinew::optim::AdamOptions()), HasSubstr("it is of SGD"));
  EXPECT_EQ(pick(0).owners[0].version, 1U) << "the owner goes on";
  EXPECT_EQ(error_of([&] { sinew::optim::take_over(optimizer_, {Standby()}); }).code(),
            ErrorCode::kFailedPrecondition);
  add_standby();
  const DistributedOptimizer another(worker(0), parameters(), rate_of_one());
  EXPECT_EQ(error_of([&] { sinew::optim::take_over(another, {standby_}); }).code(),
            ErrorCode::kInvalidArgument);
  cluster_->kill("worker2");
  EXPECT_EQ(error_of([&] { sinew::optim::take_over(optimizer_, {standby_}); }).code(),
            ErrorCode::kUnavailable)
      << "an owner is lost that has no standby";
  start_again("worker2");
}

// The same for each optimizer, to the last digit, with and without rows that get no gradient.
TEST_P(StandbyTest, OptimizersHaveTheSameStateThere) {
  sinew::optim::SgdOptions momentum;
  momentum.lr = 0.1;
  momentum.momentum = 0.9;
  sinew::optim::AdagradOptions adagrad;
  adagrad.lr = 0.1;
  const std::vector<std::pair<sinew::optim::Options, bool>> all = {
      {momentum, false},
      {momentum, true},
      {adagrad, true},
      {sinew::optim::AdamOptions(), false},
      {sinew::optim::AdamaxOptions(), false},
      {testoptim::LionOptions(), false}};
  sinew::MethodTable methods;
  testoptim::add_methods(methods);
  methods.serve<testoptim::Lion>();
  standby_ = {};
  optimizer_ = {};
  tables_.clear();
  spare_ = {};
  for (const auto& [options, sparse] : all) {
    SCOPED_TRACE(std::string(options.name()) + (sparse ? ", sparse" : ""));
    start(3, methods);
    {
      const testoptim::RemoteTraining training(worker(0), 1, sparse);
      DistributedOptimizer optimizer(worker(0), training.parameters(), options);
      for (std::int64_t step = 0; step < 3; ++step)
        training.step(optimizer, testoptim::batch(step));
      const auto spare = worker(0).peer("worker2").remote<testoptim::Shard>(17, sparse);
      const Standby standby =
          Standby(optimizer, "worker1", spare.call<&testoptim::Shard::parameters>(), options);
      for (std::int64_t step = 3; step < 8; ++step)
        training.step(optimizer, testoptim::batch(step));
      const std::vector<at::Tensor> values = training.values();
      const std::vector<at::Tensor> there = spare.call<&testoptim::Shard::values>();
      ASSERT_EQ(values.size(), there.size());
      for (std::size_t i = 0; i < values.size(); ++i) EXPECT_TRUE(values[i].equal(there[i])) << i;
    }
  }
}

SINEW_INSTANTIATE_CLUSTER_TEST(StandbyTest);

}  // namespace
