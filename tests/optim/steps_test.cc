// Each step once: several trainers, lost and repeated messages, lost owners.

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ATen/ATen.h"
#include "absl/strings/match.h"
#include "sinew/optim/internal/copy_options.h"
#include "sinew/optim/internal/local_optimizer.h"
#include "sinew/sinew.h"
#include "sinew/tests/optim/table.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/faulty_transport.h"

using sinew::ErrorCode;
using sinew::RRef;
using sinew::autograd::Context;
using sinew::internal::FaultAction;
using sinew::internal::FaultDirection;
using sinew::internal::FaultPlan;
using sinew::internal::FaultRule;
using sinew::internal::FaultyFrame;
using sinew::optim::DistributedOptimizer;
using sinew::optim::PartialStep;
using sinew::optim::StepReport;
using sinew::testing::eventually;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

namespace testoptim {

/// The orders that the owner gave to the steps.
using Orders = std::vector<std::int64_t>;

std::int64_t order_of(const StepReport& report) {
  return static_cast<std::int64_t>(report.owners.at(0).order);
}

/// Steps for the indices from `first` on, each with a context of its own.
Orders pick_some(const RRef<Table>& table, const DistributedOptimizer& optimizer,
                 std::int64_t first, std::int64_t count) {
  Orders orders;
  for (std::int64_t i = first; i < first + count; ++i) {
    const Context context(sinew::current_worker());
    sinew::autograd::backward(context, {table.call<&Table::pick>(i)});
    orders.push_back(order_of(optimizer.step(context)));
  }
  return orders;
}
Orders pick_alone(const RRef<Table>& table, const RRef<at::Tensor>& parameter, std::int64_t first,
                  std::int64_t count) {
  const DistributedOptimizer optimizer(sinew::current_worker(), {parameter}, rate_of_one());
  return pick_some(table, optimizer, first, count);
}

sinew::optim::SgdOptions with_momentum() {
  sinew::optim::SgdOptions sgd;
  sgd.lr = 0.1;
  sgd.momentum = 0.9;
  sgd.weight_decay = 0.2;
  return sgd;
}

void step_by_somebody(const RRef<sinew::internal::LocalOptimizer>& part,
                      const sinew::internal::StepRequest& request) {
  part.call<&sinew::internal::LocalOptimizer::step>(request);
}

/// Steps with a gradient of `factor`, whose effect depends on those before.
Orders weigh(const RRef<Table>& table, const RRef<at::Tensor>& parameter, double factor,
             std::int64_t count) {
  const DistributedOptimizer optimizer(sinew::current_worker(), {parameter}, with_momentum());
  Orders orders;
  for (std::int64_t i = 0; i < count; ++i) {
    const Context context(sinew::current_worker());
    sinew::autograd::backward(context, {table.call<&Table::weighted_sum>(factor)});
    orders.push_back(order_of(optimizer.step(context)));
  }
  return orders;
}

}  // namespace testoptim

SINEW_METHOD(testoptim::pick_some, testoptim::pick_alone, testoptim::weigh,
             testoptim::step_by_somebody);

using testoptim::Orders;
using testoptim::Table;

namespace {

constexpr std::int64_t kTrainers = 3;
constexpr std::int64_t kEach = 30;

class Steps : public sinew::testing::ClusterTest {
 protected:
  /// Faults are those of worker 0.
  void start_workers(int size) {
    sinew::testing::ClusterOptions options;
    options.names = sinew::testing::worker_names(size);
    options.methods.serve<Table>();
    options.methods.add<&testoptim::pick_some>().add<&testoptim::pick_alone>();
    options.methods.add<&testoptim::weigh>().add<&testoptim::step_by_somebody>();
    sinew::testing::wrap_transports(
        options, [this](int rank, std::unique_ptr<sinew::internal::Transport> inner) {
          return rank == 0 ? sinew::internal::make_faulty_transport(std::move(inner), plan_)
                           : std::move(inner);
        });
    start(std::move(options));
  }
  RRef<Table> make_table(int rank, std::int64_t size) {
    return worker(0).peer(rank).remote<Table>(size);
  }
  static RRef<at::Tensor> parameter_of(const RRef<Table>& table) {
    return table.call<&Table::parameter>();
  }
  /// An owner's part of an optimizer, without a trainer's.
  RRef<sinew::internal::LocalOptimizer> make_part(const RRef<at::Tensor>& parameter) {
    using sinew::internal::OptimizerGroup;
    const sinew::Peer owner = worker(0).peer(parameter.owner().rank);
    const auto options = sinew::internal::copy_options({owner}, {testoptim::rate_of_one()});
    const std::vector<OptimizerGroup> groups = {{{parameter}, options[0][0]}};
    return owner.remote<sinew::internal::LocalOptimizer(std::vector<OptimizerGroup>)>(groups);
  }
  static at::Tensor value_of(const RRef<Table>& table) { return table.call<&Table::value>(); }

  const std::shared_ptr<FaultPlan> plan_ = std::make_shared<FaultPlan>(11);
};

/// Every step was applied once, and each had an order of its own.
void expect_complete(const at::Tensor& value, const std::vector<Orders>& histories) {
  EXPECT_TRUE(value.equal(at::full_like(value, -1))) << value;
  std::set<std::int64_t> orders;
  for (const Orders& one : histories) {
    EXPECT_TRUE(std::is_sorted(one.begin(), one.end()));
    orders.insert(one.begin(), one.end());
  }
  EXPECT_EQ(orders.size(), static_cast<std::size_t>(kTrainers * kEach));
  EXPECT_EQ(*orders.begin(), 1);
  EXPECT_EQ(*orders.rbegin(), kTrainers * kEach);
}

TEST_P(Steps, OfTrainersWithAnOptimizerEachAreAllApplied) {
  start_workers(1 + kTrainers);
  const RRef<Table> table = make_table(0, kTrainers * kEach);
  const RRef<at::Tensor> parameter = parameter_of(table);
  std::vector<sinew::Future<Orders>> trainers;
  for (std::int64_t i = 0; i < kTrainers; ++i) {
    trainers.push_back(
        worker(0).peer(i + 1).async<&testoptim::pick_alone>(table, parameter, i * kEach, kEach));
  }
  const std::vector<Orders> histories = sinew::wait_all(std::move(trainers));
  expect_complete(value_of(table), histories);
}

TEST_P(Steps, OfTrainersThatShareAnOptimizerAreAllApplied) {
  start_workers(1 + kTrainers);
  const RRef<Table> table = make_table(0, kTrainers * kEach);
  const DistributedOptimizer optimizer(worker(0), {parameter_of(table)}, testoptim::rate_of_one());
  std::vector<sinew::Future<Orders>> trainers;
  for (std::int64_t i = 0; i < kTrainers; ++i) {
    trainers.push_back(
        worker(0).peer(i + 1).async<&testoptim::pick_some>(table, optimizer, i * kEach, kEach));
  }
  const std::vector<Orders> histories = sinew::wait_all(std::move(trainers));
  expect_complete(value_of(table), histories);
  EXPECT_EQ(worker(0).counters()["optim.optimizers"], 1);
}

TEST_P(Steps, AreTheSameAsOneAfterTheOther) {
  start_workers(1 + kTrainers);
  // So large that a step takes a while.
  const RRef<Table> table = make_table(0, 100000);
  const RRef<at::Tensor> parameter = parameter_of(table);
  const auto factor = [](std::int64_t trainer) { return 1.0 + static_cast<double>(trainer) / 7; };
  std::vector<sinew::Future<Orders>> trainers;
  for (std::int64_t i = 0; i < kTrainers; ++i) {
    trainers.push_back(
        worker(0).peer(i + 1).async<&testoptim::weigh>(table, parameter, factor(i), kEach));
  }
  std::map<std::int64_t, std::size_t> history;
  const std::vector<Orders> histories = sinew::wait_all(std::move(trainers));
  for (std::size_t i = 0; i < histories.size(); ++i) {
    for (const std::int64_t order : histories[i]) history[order] = i;
  }
  ASSERT_EQ(history.size(), static_cast<std::size_t>(kTrainers * kEach));
  // All steps again, in the order that they are said to have had.
  const auto options = testoptim::with_momentum();
  at::Tensor weight = at::zeros({1});
  std::vector<at::Tensor> momentum(kTrainers);
  for (const auto& [order, trainer] : history) {
    const at::Tensor gradient =
        at::full({1}, factor(static_cast<std::int64_t>(trainer))).add(weight, options.weight_decay);
    at::Tensor& buffer = momentum[trainer];
    buffer = buffer.defined() ? buffer.mul(options.momentum).add(gradient) : gradient.clone();
    weight = weight.add(buffer, -options.lr);
  }
  const at::Tensor value = value_of(table);
  EXPECT_LT((value - weight).abs().max().item<double>(), 1e-5)
      << value.min() << value.max() << weight;
  EXPECT_TRUE(value.min().equal(value.max()));
}

/// Frames of calls and replies between worker 0 and others.
FaultRule hold(FaultDirection direction) {
  FaultRule rule;
  rule.action = FaultAction::kHold;
  rule.matches = [direction](const FaultyFrame& frame) {
    return frame.direction == direction && frame.lane == sinew::internal::Lane::kCalls;
  };
  return rule;
}

class OneOwner : public Steps {
 protected:
  void SetUp() override {
    start_workers(2);
    table_ = make_table(1, 4);
    optimizer_ = DistributedOptimizer(worker(0), {parameter_of(table_)}, testoptim::rate_of_one());
    context_ = std::make_unique<Context>(worker(0));
    sinew::autograd::backward(*context_, {table_.call<&Table::weighted_sum>(1.0)});
  }
  void TearDown() override {
    context_ = nullptr;
    optimizer_ = {};
    table_ = {};
    Steps::TearDown();
  }
  /// A step that is cancelled while the plan holds such frames, and what came of it.
  std::unique_ptr<PartialStep> fail_step(FaultDirection direction) {
    rule_ = plan_->add(hold(direction));
    sinew::CancellationSource cancellation;
    sinew::CallOptions options;
    options.cancellation = cancellation.token();
    const auto step = optimizer_.step_async(context_->id(), options);
    // The request left, or the answer came: a step is counted before its answer is sent, and a
    // cancellation between the two would leave nothing to hold.
    EXPECT_TRUE(plan_->wait_for_hits(rule_, 1, 30s));
    cancellation.cancel();
    try {
      step.wait();
      ADD_FAILURE() << "the step did not fail";
    } catch (const PartialStep& error) {
      return std::make_unique<PartialStep>(error);
    }
    return nullptr;
  }
  void let_go() {
    plan_->remove(rule_);
    EXPECT_GT(plan_->release(rule_), 0U);
  }
  /// How often the step was applied.
  double times() { return -value_of(table_)[0].item<double>(); }

  RRef<Table> table_;
  DistributedOptimizer optimizer_;
  std::unique_ptr<Context> context_;
  FaultPlan::RuleId rule_ = 0;
};

TEST_P(OneOwner, AnswerThatNobodyWaitedForIsAskedForAgain) {
  const auto failed = fail_step(FaultDirection::kIncoming);
  ASSERT_NE(failed, nullptr);
  EXPECT_EQ(failed->code(), ErrorCode::kCancelled);
  EXPECT_EQ(failed->unknown(), std::vector<std::string>{"worker1"});
  EXPECT_THAT(failed->message(), HasSubstr("step 1: perhaps applied by 'worker1' ("));
  let_go();
  EXPECT_EQ(times(), 1);
  const StepReport report = optimizer_.repeat(*failed);
  EXPECT_EQ(report.owners[0].order, 1U);
  EXPECT_EQ(report.owners[0].updated, 1U);
  optimizer_.repeat(*failed);
  EXPECT_EQ(times(), 1);
  // The next one is another one.
  optimizer_.step(*context_);
  EXPECT_EQ(times(), 2);
}

TEST_P(OneOwner, MessageThatComesAfterItsRepetitionChangesNothing) {
  const auto failed = fail_step(FaultDirection::kOutgoing);
  ASSERT_NE(failed, nullptr);
  // The repetition overtakes what is held.
  plan_->remove(rule_);
  optimizer_.repeat(*failed);
  EXPECT_EQ(times(), 1);
  plan_->release(rule_);
  // Calls run in no order, but this one's steps do.
  optimizer_.step(*context_);
  EXPECT_TRUE(eventually([&] { return worker(1).counters()["rpc.server_active_calls"] == 0; }));
  EXPECT_EQ(times(), 2);
}

TEST_P(OneOwner, StepThatWasGivenUpIsNotAppliedLater) {
  auto failed = fail_step(FaultDirection::kOutgoing);
  ASSERT_NE(failed, nullptr);
  failed = nullptr;
  plan_->remove(rule_);
  optimizer_.step(*context_);
  EXPECT_EQ(times(), 1);
  plan_->release(rule_);
  EXPECT_TRUE(eventually([&] { return worker(1).counters()["rpc.server_active_calls"] == 0; }));
  EXPECT_EQ(times(), 1);
}

TEST_P(OneOwner, StepWhoseContextHasEndedIsRefused) {
  rule_ = plan_->add(hold(FaultDirection::kOutgoing));
  const auto step = optimizer_.step_async(context_->id());
  ASSERT_TRUE(plan_->wait_for_hits(rule_, 1, 30s));
  context_ = nullptr;
  ASSERT_TRUE(eventually([&] { return worker(1).counters()["autograd.contexts"] == 0; }));
  let_go();
  try {
    step.wait();
    ADD_FAILURE() << "the step did not fail";
  } catch (const PartialStep& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound) << error.what();
    EXPECT_EQ(error.not_applied(), std::vector<std::string>{"worker1"});
    EXPECT_THAT(error.message(), HasSubstr("has ended before step 1"));
  }
  EXPECT_EQ(times(), 0);
  EXPECT_EQ(worker(1).counters()["optim.steps"], 0);
}

TEST_P(OneOwner, DuplicatedFramesChangeNothing) {
  FaultRule rule;
  rule.action = FaultAction::kDuplicate;
  rule.matches = [](const FaultyFrame& frame) {
    return frame.lane == sinew::internal::Lane::kCalls;
  };
  const auto id = plan_->add(rule);
  for (int i = 0; i < 20; ++i) optimizer_.step(*context_);
  EXPECT_GE(plan_->hits(id), 20U);
  plan_->remove(id);
  EXPECT_EQ(times(), 20);
}

TEST_P(OneOwner, StepsAtOnceAreAllApplied) {
  std::vector<sinew::Future<StepReport>> steps;
  for (int i = 0; i < 50; ++i) steps.push_back(optimizer_.step_async(context_->id()));
  sinew::wait_all(std::move(steps));
  EXPECT_EQ(times(), 50);
}

TEST_P(Steps, AreKnownToTheirOwnerByTheirIds) {
  using sinew::internal::LocalOptimizer;
  start_workers(2);
  const RRef<Table> table = make_table(1, 1);
  const RRef<LocalOptimizer> part = make_part(parameter_of(table));
  const Context context(worker(0));
  sinew::autograd::backward(context, {table.call<&Table::pick>(0)});
  const std::uint64_t trainer = worker(0).info().incarnation.value;
  const auto step = [&](std::uint64_t number, std::uint64_t live_from) {
    return part.call<&LocalOptimizer::step>(
        sinew::internal::StepRequest{context.id(), {trainer, number}, live_from});
  };
  const auto times = [&] { return -value_of(table).item<double>(); };
  EXPECT_EQ(step(1, 1).order, 1U);
  EXPECT_EQ(step(1, 1).order, 1U);
  EXPECT_EQ(times(), 1);
  // Out of order.
  EXPECT_EQ(step(3, 1).order, 2U);
  EXPECT_EQ(step(2, 1).order, 3U);
  EXPECT_EQ(step(3, 3).order, 2U);
  EXPECT_EQ(times(), 3);
  // Its trainer does not want it any more.
  const sinew::internal::StepAnswer late = step(2, 1);
  EXPECT_EQ(late.outcome, sinew::internal::StepOutcome::kRefused);
  EXPECT_THAT(late.error, HasSubstr("step 2 comes too late"));
  EXPECT_EQ(times(), 3);
}

// Else it would use up the number, and the trainer's own step would be taken for a repetition.
TEST_P(Steps, AreNotTakenInTheNameOfAnother) {
  using sinew::internal::LocalOptimizer;
  start_workers(3);
  const RRef<Table> table = make_table(1, 1);
  const RRef<LocalOptimizer> part = make_part(parameter_of(table));
  part.created().wait();
  const Context context(worker(0));
  sinew::autograd::backward(context, {table.call<&Table::pick>(0)});
  sinew::internal::StepRequest request{
      context.id(), {worker(0).info().incarnation.value, 1}, std::uint64_t{1} << 60};
  const sinew::RpcError error = sinew::testing::error_of(
      [&] { worker(0).peer(2).call<&testoptim::step_by_somebody>(part, request); });
  EXPECT_EQ(error.code(), ErrorCode::kPermissionDenied);
  EXPECT_THAT(error.message(), HasSubstr("worker 'worker2' asks for a step in another trainer's"));
  EXPECT_EQ(value_of(table).item<double>(), 0);
  request.live_from = 1;
  EXPECT_EQ(part.call<&LocalOptimizer::step>(request).order, 1U);
  EXPECT_EQ(value_of(table).item<double>(), -1);
}

// LibTorch throws at the second parameter, when it has stepped the first.
TEST_P(Steps, ThatFailHalfWayStopTheirOptimizer) {
  start_workers(2);
  const RRef<Table> first = make_table(1, 2);
  const RRef<Table> second = make_table(1, 2);
  const DistributedOptimizer optimizer(worker(0), {parameter_of(first), parameter_of(second)},
                                       testoptim::rate_of_one());
  const auto step_with = [&](const DistributedOptimizer& stepped) {
    const Context context(worker(0));
    sinew::autograd::backward(
        context, {first.call<&Table::weighted_sum>(1.0) + second.call<&Table::weighted_sum>(1.0)});
    stepped.step(context);
  };
  step_with(optimizer);
  second.call<&Table::fold>();
  try {
    step_with(optimizer);
    ADD_FAILURE() << "the step did not fail";
  } catch (const PartialStep& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDataLoss) << error.what();
    EXPECT_EQ(error.peer(), "worker1");
    EXPECT_EQ(error.unknown(), std::vector<std::string>{"worker1"});
  }
  EXPECT_EQ(value_of(first)[0].item<double>(), -2) << "stepped before";
  EXPECT_EQ(value_of(second)[0].item<double>(), 0);
  try {
    step_with(optimizer);
    ADD_FAILURE() << "the step did not fail";
  } catch (const sinew::RpcError& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition) << error.what();
    EXPECT_THAT(error.message(), HasSubstr("an earlier step failed half-way"));
    EXPECT_THAT(error.message(), HasSubstr("load a checkpoint or make the optimizer anew"));
  }
  EXPECT_EQ(value_of(first)[0].item<double>(), -2) << "nothing more was applied";
  second.call<&Table::unfold>();
  step_with(DistributedOptimizer(worker(0), {parameter_of(first), parameter_of(second)},
                                 testoptim::rate_of_one()));
  EXPECT_EQ(value_of(first)[0].item<double>(), -3);
  EXPECT_EQ(value_of(second)[1].item<double>(), -1);
}

TEST_P(Steps, LostOwnerIsListedAndTheOthersAreNot) {
  start_workers(3);
  const RRef<Table> first = make_table(1, 2);
  const RRef<Table> second = make_table(2, 2);
  const DistributedOptimizer optimizer(worker(0), {parameter_of(first), parameter_of(second)},
                                       testoptim::rate_of_one());
  ASSERT_EQ(optimizer.owners().size(), 2U);
  {
    const Context context(worker(0));
    sinew::autograd::backward(
        context, {first.call<&Table::weighted_sum>(1.0) + second.call<&Table::weighted_sum>(1.0)});
    optimizer.step(context);
    // The message to the second owner is under way when the owner is lost.
    FaultRule rule = hold(FaultDirection::kOutgoing);
    rule.matches = [](const FaultyFrame& frame) {
      // Whichever end has opened the connection.
      return frame.direction == FaultDirection::kOutgoing &&
             frame.lane == sinew::internal::Lane::kCalls &&
             absl::StrContains(frame.remote_hello, "worker2");
    };
    const auto id = plan_->add(rule);
    const auto step = optimizer.step_async(context.id());
    ASSERT_TRUE(eventually([&] { return worker(1).counters()["optim.steps"] == 2; }));
    worker(2).shutdown({false, 60s, false});
    try {
      step.wait();
      ADD_FAILURE() << "the step did not fail";
    } catch (const PartialStep& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnavailable) << error.what();
      EXPECT_EQ(error.peer(), "worker2");
      EXPECT_EQ(error.applied(), std::vector<std::string>{"worker1"});
      EXPECT_EQ(error.unknown(), std::vector<std::string>{"worker2"});
      EXPECT_THAT(error.message(), HasSubstr("applied by 'worker1'; perhaps applied by 'worker2'"));
    }
    plan_->remove(id);
    ASSERT_TRUE(eventually([&] { return !second.peer().alive(); }));
    // From now on it is known, and no owner is told to step.
    try {
      optimizer.step(context);
      ADD_FAILURE() << "the step did not fail";
    } catch (const PartialStep& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
      EXPECT_EQ(error.not_applied(), (std::vector<std::string>{"worker1", "worker2"}));
      EXPECT_THAT(error.message(), HasSubstr("not applied by 'worker1' (nothing was sent)"));
    }
    EXPECT_TRUE(value_of(first).equal(at::full({2}, -2.0)));
  }
  abandon();
}

// The first owner has applied the step, the third one is lost, and of the second one the request or
// the answer is held.
TEST_P(Steps, OwnerThatMayHaveAppliedOneIsAskedThoughAnotherIsLost) {
  for (const FaultDirection direction : {FaultDirection::kIncoming, FaultDirection::kOutgoing}) {
    const bool has_applied = direction == FaultDirection::kIncoming;
    SCOPED_TRACE(has_applied);
    start_workers(4);
    std::vector<RRef<Table>> tables;
    std::vector<RRef<at::Tensor>> parameters;
    for (int rank = 1; rank < 4; ++rank) {
      tables.push_back(make_table(rank, 2));
      parameters.push_back(parameter_of(tables.back()));
    }
    const DistributedOptimizer optimizer(worker(0), parameters, testoptim::rate_of_one());
    const Context context(worker(0));
    sinew::autograd::backward(context, {tables[0].call<&Table::weighted_sum>(1.0) +
                                        tables[1].call<&Table::weighted_sum>(1.0) +
                                        tables[2].call<&Table::weighted_sum>(1.0)});
    const auto hold_with = [&](FaultDirection of, const char* name) {
      FaultRule rule = hold(of);
      rule.matches = [of, name](const FaultyFrame& frame) {
        return frame.direction == of && absl::StrContains(frame.remote_hello, name) &&
               (of == FaultDirection::kIncoming || frame.lane == sinew::internal::Lane::kCalls);
      };
      return plan_->add(rule);
    };
    const auto second = hold_with(direction, "worker2");
    const auto third = hold_with(FaultDirection::kOutgoing, "worker3");
    sinew::CancellationSource cancellation;
    sinew::CallOptions options;
    options.cancellation = cancellation.token();
    const auto step = optimizer.step_async(context.id(), options);
    ASSERT_TRUE(eventually([&] { return worker(1).counters()["optim.steps"] == 1; }));
    if (has_applied) {
      ASSERT_TRUE(eventually([&] { return worker(2).counters()["optim.steps"] == 1; }));
    }
    ASSERT_TRUE(plan_->wait_for_hits(second, 1, 30s));
    // The first one's answer has come.
    ASSERT_TRUE(eventually([&] { return worker(0).counters()["rpc.client_active_calls"] == 2; }));
    worker(3).shutdown({false, 60s, false});
    cancellation.cancel();
    std::unique_ptr<PartialStep> failed;
    try {
      step.wait();
    } catch (const PartialStep& error) {
      failed = std::make_unique<PartialStep>(error);
    }
    ASSERT_NE(failed, nullptr);
    EXPECT_EQ(failed->unknown(), (std::vector<std::string>{"worker2", "worker3"}));
    plan_->remove(third);
    plan_->remove(second);
    if (has_applied) plan_->release(second);
    ASSERT_TRUE(eventually([&] { return !tables[2].peer().alive(); }));
    for (int again = 0; again < 2; ++again) {
      try {
        optimizer.repeat(*failed);
        ADD_FAILURE() << "the step did not fail";
      } catch (const PartialStep& error) {
        EXPECT_EQ(error.applied().size(), has_applied ? 2U : 1U) << error.what();
        EXPECT_EQ(error.unknown(), std::vector<std::string>{"worker3"});
        if (!has_applied) {
          EXPECT_THAT(error.message(), HasSubstr("step 1 had not come, and is given up"));
        }
      }
    }
    plan_->release(second);
    EXPECT_TRUE(eventually([&] { return worker(2).counters()["rpc.server_active_calls"] == 0; }));
    EXPECT_TRUE(value_of(tables[1]).equal(at::full({2}, has_applied ? -1.0 : 0.0)));
    EXPECT_TRUE(value_of(tables[0]).equal(at::full({2}, -1.0)));
    failed = nullptr;
    abandon();
  }
}

SINEW_INSTANTIATE_CLUSTER_TEST(Steps);
SINEW_INSTANTIATE_CLUSTER_TEST(OneOwner);

}  // namespace
