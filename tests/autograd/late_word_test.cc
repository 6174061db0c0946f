// The word that a pass has failed, or that a context has ended, comes late, or not by the way that
// the work came.

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ATen/ATen.h"
#include "absl/strings/match.h"
#include "sinew/sinew.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/fault_plan.h"
#include "sinew/tests/support/faulty_transport.h"

using sinew::RpcError;
using sinew::autograd::backward;
using sinew::autograd::BackwardOptions;
using sinew::autograd::Context;
using sinew::internal::FaultAction;
using sinew::internal::FaultDirection;
using sinew::internal::FaultPlan;
using sinew::internal::FaultRule;
using sinew::internal::FaultyFrame;
using sinew::testing::error_of;
using sinew::testing::eventually;
using ::testing::HasSubstr;

namespace lateword {

using at::Tensor;

Tensor leaf() { return at::full({2}, 0.5).set_requires_grad(true); }

/// Of the process; who multiplies by it is the one worker that is asked to.
Tensor* weight = nullptr;
Tensor times_weight(const Tensor& input) { return input * *weight; }
Tensor weight_gradient() {
  return sinew::autograd::gradient_of(sinew::autograd::Context::current(), *weight);
}

sinew::testing::Gate* gate = nullptr;
std::atomic<bool> throws{false};
struct ThrowsAtTheGate : torch::autograd::Function<ThrowsAtTheGate> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& input) {
    return input.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    gate->pass();
    if (throws) throw std::out_of_range("no gradient today");
    return gradients;
  }
};
Tensor at_the_gate(const Tensor& input) { return ThrowsAtTheGate::apply(input); }

}  // namespace lateword

SINEW_METHOD(lateword::at_the_gate, lateword::times_weight, lateword::weight_gradient);

namespace lateword {

/// Runs a pass of its own through worker `to`.
void lead(int to) {
  const sinew::Worker here = sinew::current_worker();
  const Tensor loss = here.peer(to).call<&times_weight>(leaf()).sum();
  backward(here, Context::current(), {loss});
}

/// By way of worker `to`.
Tensor by_way_of(const Tensor& input, int to) {
  return sinew::current_worker().peer(to).call<&times_weight>(input);
}

}  // namespace lateword

SINEW_METHOD(lateword::lead, lateword::by_way_of);

namespace {

using at::Tensor;
using lateword::leaf;

class LateWord : public sinew::testing::ClusterTest {
 protected:
  void SetUp() override {
    lateword::weight = &weight_;
    lateword::gate = &gate_;
    sinew::testing::ClusterOptions options;
    options.names = sinew::testing::worker_names(4);
    options.methods.add<&lateword::at_the_gate, &lateword::times_weight>();
    options.methods.add<&lateword::weight_gradient, &lateword::lead, &lateword::by_way_of>();
    sinew::testing::wrap_transports(
        options, [this](int rank, std::unique_ptr<sinew::internal::Transport> inner) {
          return rank == 1 ? sinew::internal::make_faulty_transport(std::move(inner), plan_)
                           : std::move(inner);
        });
    start(std::move(options));
  }
  /// The word that a pass has failed, on its way to worker 1.
  FaultPlan::RuleId hold_the_word() {
    FaultRule rule;
    rule.action = FaultAction::kHold;
    rule.matches = [](const FaultyFrame& frame) {
      return frame.direction == FaultDirection::kIncoming &&
             absl::StrContains(frame.frame.envelope, "sinew.autograd.abort");
    };
    return plan_->add(std::move(rule));
  }
  Tensor gradient_at_worker_1() { return worker(0).peer(1).call<&lateword::weight_gradient>(); }
  /// Through worker 1, which is done with its part of the pass, and worker 2, which fails then.
  void fail_late(const Tensor& loss) {
    gate_.close();
    lateword::throws = true;
    auto failed = std::async(std::launch::async,
                             [&] { return error_of([&] { backward(context_->id(), loss); }); });
    EXPECT_TRUE(gate_.wait_for_arrivals(1));
    EXPECT_TRUE(eventually([&] { return gradient_at_worker_1().defined(); }));
    gate_.open();
    EXPECT_THAT(failed.get().message(), HasSubstr("no gradient today"));
    lateword::throws = false;
  }
  /// A loss in a new context, through worker 1 and worker 2.
  Tensor through_both() {
    context_.emplace(worker(0));
    return (worker(0).peer(1).call<&lateword::times_weight>(leaf()) +
            worker(0).peer(2).call<&lateword::at_the_gate>(leaf()))
        .sum();
  }
  /// fail_late(), of which worker 1 does not hear until the rule that is returned is released.
  FaultPlan::RuleId fail_unheard(const Tensor& loss) {
    const FaultPlan::RuleId held = hold_the_word();
    fail_late(loss);
    EXPECT_TRUE(plan_->wait_for_hits(held, 1, std::chrono::seconds(60)));
    return held;
  }
  void backward(const sinew::autograd::ContextId& id, const Tensor& loss) {
    BackwardOptions options;
    options.retain_graph = true;
    sinew::autograd::backward(worker(0), id, {loss}, options);
  }

  Tensor weight_ = leaf();
  sinew::testing::Gate gate_;
  std::optional<Context> context_;
  const std::shared_ptr<FaultPlan> plan_ = std::make_shared<FaultPlan>(7);
};

// A pass says which ones before it have failed.
TEST_P(LateWord, OfAFailureComesAfterTheNextPass) {
  const Tensor loss = through_both();
  const auto held = fail_unheard(loss);
  backward(context_->id(), loss);
  EXPECT_TRUE(at::allclose(gradient_at_worker_1(), at::full({2}, 0.5)));
  plan_->remove(held);
  EXPECT_EQ(plan_->release(held), 1u);
  backward(context_->id(), loss);
  EXPECT_TRUE(at::allclose(gradient_at_worker_1(), at::full({2}, 1.0)));
  context_.reset();
}

// Another worker's pass knows nothing of it, and what it has added stays.
TEST_P(LateWord, OfAFailureComesAfterAnotherWorkersPass) {
  const Tensor loss = through_both();
  const auto held = fail_unheard(loss);
  worker(0).peer(3).call<&lateword::lead>(1);
  EXPECT_TRUE(at::allclose(gradient_at_worker_1(), at::full({2}, 1.0)));
  plan_->remove(held);
  EXPECT_EQ(plan_->release(held), 1u);
  EXPECT_TRUE(eventually([&] { return at::allclose(gradient_at_worker_1(), at::full({2}, 0.5)); }));
  context_.reset();
}

// Worker 0, whose context it is, has never heard of worker 2.
TEST_P(LateWord, OfAnEndedContextHasLostItsWay) {
  context_.emplace(worker(0));
  const Tensor result = worker(0).peer(1).call<&lateword::by_way_of>(leaf(), 2);
  EXPECT_EQ(worker(2).counters()["autograd.contexts"], 1);
  sinew::ShutdownOptions now;
  now.graceful = false;
  worker(1).shutdown(now);
  context_.reset();
  EXPECT_TRUE(eventually([&] { return worker(2).counters()["autograd.contexts"] == 0; }));
  abandon();
}

TEST_P(LateWord, OfAContextThatEndsAfterTheWorkerBetweenHasLeft) {
  context_.emplace(worker(0));
  const Tensor result = worker(0).peer(1).call<&lateword::by_way_of>(leaf(), 2);
  sinew::ShutdownOptions now;
  now.graceful = false;
  worker(1).shutdown(now);
  EXPECT_TRUE(eventually([&] {
    try {
      worker(2).peer(1).call<&lateword::times_weight>(at::ones({2}));
      return false;
    } catch (const RpcError&) {
      return true;
    }
  }));
  EXPECT_EQ(worker(2).counters()["autograd.contexts"], 1);
  context_.reset();
  EXPECT_TRUE(eventually([&] { return worker(2).counters()["autograd.contexts"] == 0; }));
  abandon();
}

SINEW_INSTANTIATE_CLUSTER_TEST(LateWord);

}  // namespace
