// Optimizers whose owners are lost and come back.

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "sinew/optim/internal/local_optimizer.h"
#include "sinew/sinew.h"
#include "sinew/testing/cluster.h"
#include "sinew/tests/optim/table.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/temporary_folder.h"

using sinew::ErrorCode;
using sinew::RRef;
using sinew::autograd::Context;
using sinew::optim::DistributedOptimizer;
using sinew::optim::PartialStep;
using sinew::optim::StepReport;
using sinew::testing::Cluster;
using sinew::testing::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testoptim::rate_of_one;
using testoptim::Table;
using namespace std::chrono_literals;

namespace testoptim {

/// A step by a trainer that was given the optimizer.
std::uint64_t pick_once(const RRef<Table>& first, const RRef<Table>& second,
                        const DistributedOptimizer& optimizer, std::int64_t index) {
  const Context context;
  pick_from({first, second}, index, context);
  return optimizer.step(context).owners.at(0).version;
}

}  // namespace testoptim

SINEW_METHOD(testoptim::pick_once);

namespace {

constexpr std::int64_t kTableSize = 8;

/// Trainers are worker0 and worker3, owners worker1 and worker2.
class Rebind : public sinew::testing::ClusterTest {
 protected:
  void SetUp() override {
    sinew::testing::ClusterOptions options;
    options.names = sinew::testing::worker_names(4);
    options.methods.serve<Table>().add<&testoptim::pick_once>();
    cluster_ = &start(std::move(options));
    for (const char* name : {"worker1", "worker2"}) {
      serve_checkpoints(name);
      tables_.push_back(make_table(name));
    }
    optimizer_ = DistributedOptimizer(worker(0), parameters(), rate_of_one());
  }
  void TearDown() override {
    optimizer_ = {};
    tables_.clear();
    ClusterTest::TearDown();
  }

  void serve_checkpoints(const std::string& name) {
    sinew::optim::serve_checkpoints(cluster_->worker(name), folder_.file(""));
  }
  RRef<Table> make_table(const std::string& name) {
    return worker(0).peer(name).remote<Table>(kTableSize);
  }
  std::vector<RRef<at::Tensor>> parameters() const {
    std::vector<RRef<at::Tensor>> all;
    for (const RRef<Table>& table : tables_) all.push_back(table.call<&Table::parameter>());
    return all;
  }
  at::Tensor value(std::size_t table) const { return tables_[table].call<&Table::value>(); }
  StepReport pick(const DistributedOptimizer& optimizer, std::int64_t index) const {
    const Context context(worker(0));
    testoptim::pick_from(tables_, index, context);
    return optimizer.step(context);
  }
  /// worker2 dies, and is there again, empty.
  void restart_second() {
    cluster_->kill("worker2");
    cluster_->start("worker2");
    serve_checkpoints("worker2");
    tables_[1] = make_table("worker2");
  }
  DistributedOptimizer rebound() const { return optimizer_.rebind(parameters(), rate_of_one()); }

  const sinew::testing::TemporaryFolder folder_;
  Cluster* cluster_ = nullptr;
  std::vector<RRef<Table>> tables_;
  DistributedOptimizer optimizer_;
};

at::Tensor picked(std::vector<std::int64_t> indices) {
  const at::Tensor value = at::zeros({kTableSize});
  for (const std::int64_t index : indices) value[index] -= 1;
  return value;
}

TEST_P(Rebind, GoesOnFromTheCheckpointAtAllOwners) {
  pick(optimizer_, 0);
  EXPECT_EQ(pick(optimizer_, 1).owners[1].version, 2U);
  optimizer_.save("run", "2");
  EXPECT_EQ(pick(optimizer_, 2).owners[0].version, 3U);
  restart_second();

  DistributedOptimizer rebound = this->rebound();
  EXPECT_EQ(rebound.owners()[1].incarnation, worker(2).info().incarnation);
  EXPECT_TRUE(value(0).equal(picked({0, 1, 2}))) << "an owner that lives is left alone";
  EXPECT_EQ(rebound.load("run").note, "2");
  for (const std::size_t table : {0, 1}) {
    EXPECT_TRUE(value(table).equal(picked({0, 1}))) << value(table);
  }
  const StepReport again = pick(rebound, 2);
  EXPECT_EQ(again.owners[0].version, 3U);
  EXPECT_EQ(again.owners[1].version, 3U);
  EXPECT_EQ(rebound.save("run", "3").number, 2U);
  // Once more, and with the other trainer.
  restart_second();
  rebound = rebound.rebind(parameters(), rate_of_one());
  EXPECT_EQ(rebound.load("run").note, "3");
  EXPECT_EQ(cluster_->worker(0).peer("worker3").call<&testoptim::pick_once>(tables_[0], tables_[1],
                                                                            rebound, 3),
            4U);
  for (const std::size_t table : {0, 1}) {
    EXPECT_TRUE(value(table).equal(picked({0, 1, 2, 3}))) << value(table);
  }
}

TEST_P(Rebind, StateStaysWhereTheOwnerLives) {
  sinew::optim::SgdOptions momentum = rate_of_one();
  momentum.momentum = 0.5;
  optimizer_ = DistributedOptimizer(worker(0), parameters(), momentum);
  pick(optimizer_, 0);
  restart_second();
  const DistributedOptimizer rebound = optimizer_.rebind(parameters(), momentum);
  pick(rebound, 1);
  EXPECT_EQ(value(0)[0].item<float>(), -1.5) << "with the momentum of the first step";
  EXPECT_EQ(value(1)[0].item<float>(), 0);
  EXPECT_EQ(value(1)[1].item<float>(), -1);
}

TEST_P(Rebind, StepsOfOtherHandlesAreRefused) {
  const DistributedOptimizer rebound = this->rebound();
  Context context(worker(0));
  testoptim::pick_from(tables_, 0, context);
  try {
    optimizer_.step(context);
    ADD_FAILURE() << "the step did not fail";
  } catch (const PartialStep& error) {
    EXPECT_EQ(error.code(), ErrorCode::kAborted);
    EXPECT_THAT(error.not_applied(), ElementsAre("worker1", "worker2"));
    EXPECT_THAT(error.message(), HasSubstr("was rebound meanwhile"));
  }
  EXPECT_TRUE(value(0).equal(at::zeros({kTableSize})));
  rebound.step(context);
  EXPECT_TRUE(value(0).equal(picked({0})));
}

// The step has come to the owner that lives, and waits there, when the optimizer is rebound.
TEST_P(Rebind, AStepThatIsUnderWayIsRefusedByTheOwnersThatLive) {
  optimizer_.save("run", "0");
  const sinew::testing::Fault held = cluster_->faults().hold(
      sinew::testing::calls<&sinew::internal::LocalOptimizer::step>().at("worker1"));
  Context context(worker(0));
  testoptim::pick_from(tables_, 0, context);
  const auto step = optimizer_.step_async(context.id());
  held.wait_for_hits(1);
  restart_second();
  const DistributedOptimizer rebound = this->rebound();
  rebound.load("run");
  held.release();
  try {
    step.wait();
    ADD_FAILURE() << "the step did not fail";
  } catch (const PartialStep& error) {
    EXPECT_THAT(error.message(), HasSubstr("was rebound meanwhile"));
    EXPECT_THAT(error.not_applied(), ElementsAre("worker1"));
  }
  EXPECT_TRUE(value(0).equal(at::zeros({kTableSize})));
}

TEST_P(Rebind, ContextsOfBeforeAreRefused) {
  auto before = std::make_unique<Context>(worker(0));
  testoptim::pick_from(tables_, 0, *before);
  restart_second();
  const DistributedOptimizer rebound = this->rebound();
  const sinew::RpcError error = error_of([&] { rebound.step(*before); });
  EXPECT_EQ(error.code(), ErrorCode::kAborted);
  EXPECT_THAT(error.message(), HasSubstr("is from before the optimizer was rebound"));
  EXPECT_TRUE(value(0).equal(at::zeros({kTableSize})));
  before = nullptr;
  pick(rebound, 0);
  EXPECT_TRUE(value(1).equal(picked({0})));
}

TEST_P(Rebind, AStepThatWasAppliedBeforeIsStillKnown) {
  Context context(worker(0));
  testoptim::pick_from(tables_, 0, context);
  // The answer is lost.
  const sinew::testing::Fault lost = cluster_->faults().drop(
      sinew::testing::replies<&sinew::internal::LocalOptimizer::step>().at("worker1").first(1));
  sinew::CancellationSource cancellation;
  sinew::CallOptions options;
  options.cancellation = cancellation.token();
  const auto step = optimizer_.step_async(context.id(), options);
  for (const int owner : {1, 2}) EXPECT_EVENTUALLY(worker(owner).counters()["optim.steps"], 1);
  lost.wait_for_hits(1);
  cancellation.cancel();
  std::unique_ptr<PartialStep> failed;
  try {
    step.wait();
  } catch (const PartialStep& error) {
    failed = std::make_unique<PartialStep>(error);
  }
  ASSERT_NE(failed, nullptr);
  const DistributedOptimizer rebound = this->rebound();
  EXPECT_EQ(optimizer_.repeat(*failed).owners[0].version, 1U);
  EXPECT_EQ(error_of([&] { rebound.repeat(*failed); }).code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(value(0).equal(picked({0})));
}

TEST_P(Rebind, TheLastOneCounts) {
  DistributedOptimizer first = this->rebound();
  first = first.rebind(parameters(), rate_of_one());
  // Made of a handle that does not know of them.
  const DistributedOptimizer second = this->rebound();
  EXPECT_EQ(error_of([&] { pick(first, 0); }).code(), ErrorCode::kAborted);
  pick(second, 0);
  EXPECT_TRUE(value(0).equal(picked({0})));
}

TEST_P(Rebind, MistakesAreNamed) {
  const std::vector<RRef<at::Tensor>> all = parameters();
  EXPECT_EQ(error_of([&] { DistributedOptimizer().rebind(all, rate_of_one()); }).code(),
            ErrorCode::kFailedPrecondition);
  const sinew::RpcError fewer = error_of([&] { optimizer_.rebind({all[0]}, rate_of_one()); });
  EXPECT_EQ(fewer.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(fewer.message(), HasSubstr("worker 'worker2' lives and has parameters"));
  const RRef<Table> other = make_table("worker2");
  const sinew::RpcError another = error_of([&] {
    optimizer_.rebind({all[0], other.call<&Table::parameter>()}, rate_of_one());
  });
  EXPECT_EQ(another.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(another.message(), HasSubstr("1 of 2 owners failed: 'worker2': the optimizer has 1 "
                                           "parameters here, and parameter 0 of those"));
  const sinew::RpcError more = error_of([&] {
    optimizer_.rebind({all[0], all[1], other.call<&Table::parameter>()}, rate_of_one());
  });
  EXPECT_THAT(more.message(), HasSubstr("'worker2': the optimizer has 1 parameters here"));
  cluster_->kill("worker2");
  const sinew::RpcError lost = error_of([&] { optimizer_.rebind(all, rate_of_one()); });
  EXPECT_EQ(lost.code(), ErrorCode::kUnavailable);
  EXPECT_THAT(lost.message(), HasSubstr("worker2"));
  cluster_->start("worker2");
}

// The files are written while steps go on, and have what there was before them.
TEST_P(Rebind, AnAsynchronousSaveIsOfTheStepsBeforeIt) {
  pick(optimizer_, 0);
  const auto saved = optimizer_.save_async("run", "1");
  pick(optimizer_, 1);
  EXPECT_EQ(saved.wait().note, "1");
  EXPECT_TRUE(value(0).equal(picked({0, 1})));
  EXPECT_EQ(optimizer_.load("run").number, saved.wait().number);
  for (const std::size_t table : {0, 1}) EXPECT_TRUE(value(table).equal(picked({0})));
  EXPECT_EQ(pick(optimizer_, 2).owners[0].version, 2U);
  // Nobody reads these.
  for (int i = 0; i < 40; ++i) optimizer_.save_async("run", "2");
  EXPECT_EQ(optimizer_.save("run", "3").number, 42U);
}

SINEW_INSTANTIATE_CLUSTER_TEST(Rebind);

}  // namespace
