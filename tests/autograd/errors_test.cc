#include <atomic>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ATen/ATen.h"
#include "sinew/sinew.h"
#include "sinew/tests/autograd/gated_chain.h"
#include "sinew/tests/support/cluster.h"

using sinew::ErrorCode;
using sinew::RpcError;
using sinew::autograd::backward;
using sinew::autograd::BackwardOptions;
using sinew::autograd::Context;
using sinew::autograd::gradient_of;
using sinew::testing::error_of;
using sinew::testing::eventually;
using testgrad::AtBackward;
using ::testing::HasSubstr;

namespace late {

std::atomic<int> begun{0};

/// What begin_later() returns.
const sinew::Promise<at::Tensor>& promise() {
  static const auto& promise = *new sinew::Promise<at::Tensor>();
  return promise;
}
sinew::Future<at::Tensor> begin_later(const at::Tensor&) {
  ++begun;
  return promise().future();
}
at::Tensor twice(const at::Tensor& input) { return input * 2; }

}  // namespace late

SINEW_METHOD(late::begin_later, late::twice);

namespace {

using at::Tensor;

Tensor input_leaf() { return at::full({2}, 0.5).set_requires_grad(true); }

class AutogradErrors : public sinew::testing::ClusterTest {
 protected:
  void SetUp() override {
    sinew::MethodTable methods;
    testgrad::add_chain_methods(methods);
    start(4, methods);
  }
  bool none(const std::string& counter) {
    for (int rank = 0; rank < 4; ++rank) {
      if (worker(rank).counters()[counter] != 0) return false;
    }
    return true;
  }
  /// Through workers 1, 2 and 3.
  Tensor chain(const Tensor& input, const std::string& at, AtBackward what) {
    return worker(0).peer(1).call<&testgrad::chain>(
        input, std::vector<std::string>{"worker2", "worker3"}, at, what);
  }
  bool stopped(int rank) {
    return eventually([&] { return worker(0).peer(rank).call<&testgrad::has_stopped>(); });
  }
};

TEST_P(AutogradErrors, AFunctionThatThrowsAtEachHop) {
  for (int rank = 1; rank < 4; ++rank) {
    const std::string name = "worker" + std::to_string(rank);
    Context context(worker(0));
    const Tensor input = input_leaf();
    const Tensor loss = chain(input, name, AtBackward::kThrow).sum();
    BackwardOptions options;
    options.retain_graph = true;
    worker(0).peer(rank).call<&testgrad::set_throwing>(true);
    for (int i = 0; i < 20; ++i) {
      const RpcError error = error_of([&] { backward(context, {loss}, options); });
      EXPECT_EQ(error.code(), ErrorCode::kOutOfRange) << error.what();
      EXPECT_EQ(error.peer(), name);
      EXPECT_THAT(error.message(), HasSubstr("failed at worker '" + name + "'"));
      EXPECT_THAT(error.message(), HasSubstr("no gradient today"));
      EXPECT_THAT(error.type_name(), HasSubstr("out_of_range"));
    }
    EXPECT_TRUE(eventually([&] { return none("autograd.passes"); }));
    EXPECT_TRUE(sinew::autograd::gradients(context).empty());
    // Nothing is stuck, and nothing of the failed passes counts.
    worker(0).peer(rank).call<&testgrad::set_throwing>(false);
    for (int i = 1; i <= 20; ++i) {
      backward(context, {loss}, options);
      // 2 + 2 (2 + 2 * 2) after the input's own.
      EXPECT_TRUE(at::allclose(gradient_of(context, input), at::full({2}, 11.0 * i)))
          << gradient_of(context, input);
    }
  }
  EXPECT_TRUE(eventually([&] { return none("autograd.contexts"); }));
}

// Worker 1 answers in steps: nobody else has gradients for it. It fails in its second step, or
// waits for it when the initiator fails.
TEST_P(AutogradErrors, AFunctionThatThrowsBetweenTheStepsOfAWorker) {
  for (int rank = 0; rank < 2; ++rank) {
    const std::string name = "worker" + std::to_string(rank);
    SCOPED_TRACE(name);
    Context context(worker(0));
    const Tensor input = input_leaf();
    Tensor value = input;
    for (const int to : {1, 0, 1}) {
      // Only the first call at worker 1 throws, which is the last one in the backward pass.
      const bool here = to == rank && (to == 0 || value.is_same(input));
      value = worker(0).peer(to).call<&testgrad::chain>(
          value, std::vector<std::string>{}, here ? name : "",
          here ? AtBackward::kThrow : AtBackward::kNothing);
    }
    const Tensor loss = value.sum();
    BackwardOptions options;
    options.retain_graph = true;
    worker(0).peer(rank).call<&testgrad::set_throwing>(false);
    backward(context, {loss}, options);
    const Tensor once = gradient_of(context, input).clone();
    for (int i = 2; i <= 10; ++i) {
      worker(0).peer(rank).call<&testgrad::set_throwing>(true);
      const RpcError error = error_of([&] { backward(context, {loss}, options); });
      EXPECT_EQ(error.code(), ErrorCode::kOutOfRange) << error.what();
      EXPECT_THAT(error.message(), HasSubstr("failed at worker '" + name + "'"));
      EXPECT_TRUE(eventually([&] { return none("autograd.passes"); }));
      EXPECT_TRUE(at::allclose(gradient_of(context, input), once * (i - 1)));
      worker(0).peer(rank).call<&testgrad::set_throwing>(false);
      backward(context, {loss}, options);
      EXPECT_TRUE(at::allclose(gradient_of(context, input), once * i));
    }
  }
  EXPECT_TRUE(eventually([&] { return none("autograd.contexts"); }));
}

TEST_P(AutogradErrors, TwoPassesAtOnce) {
  Context context(worker(0));
  const Tensor input = input_leaf();
  const Tensor loss = chain(input, "worker2", AtBackward::kStop).sum();
  const sinew::Worker self = worker(0);
  const auto id = context.id();
  BackwardOptions options;
  options.retain_graph = true;
  auto first = std::async(std::launch::async, [&] { backward(self, id, {loss}, options); });
  ASSERT_TRUE(stopped(2));
  const RpcError error = error_of([&] { backward(context, {loss}, options); });
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(error.message(), HasSubstr("runs at worker 'worker0' already"));
  EXPECT_EQ(worker(0).counters()["autograd.passes"], 1);
  worker(0).peer(2).call<&testgrad::go_on>();
  first.get();
  EXPECT_TRUE(at::allclose(gradient_of(context, input), at::full({2}, 11.0)));
  EXPECT_TRUE(none("autograd.passes"));
}

TEST_P(AutogradErrors, TimeIsOver) {
  Context context(worker(0));
  const Tensor input = input_leaf();
  const Tensor loss = chain(input, "worker3", AtBackward::kStop).sum();
  BackwardOptions options;
  options.timeout = std::chrono::milliseconds(200);
  const RpcError error = error_of([&] { backward(context, {loss}, options); });
  EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded) << error.what();
  worker(0).peer(3).call<&testgrad::go_on>();
  EXPECT_TRUE(eventually([&] { return none("autograd.passes"); }));
  EXPECT_TRUE(sinew::autograd::gradients(context).empty());
}

TEST_P(AutogradErrors, ContextEndsDuringAPass) {
  std::optional<Context> context(std::in_place, worker(0));
  const Tensor loss = chain(input_leaf(), "worker2", AtBackward::kStop).sum();
  const sinew::Worker self = worker(0);
  const auto id = context->id();
  auto pass =
      std::async(std::launch::async, [&] { return error_of([&] { backward(self, id, {loss}); }); });
  ASSERT_TRUE(stopped(2));
  context.reset();
  const RpcError error = pass.get();
  EXPECT_EQ(error.code(), ErrorCode::kCancelled) << error.what();
  worker(0).peer(2).call<&testgrad::go_on>();
  EXPECT_TRUE(eventually([&] { return none("autograd.passes") && none("autograd.contexts"); }));
}

TEST_P(AutogradErrors, LostWorkerInTheMiddle) {
  Context context(worker(0));
  const Tensor loss = chain(input_leaf(), "worker3", AtBackward::kStop).sum();
  const sinew::Worker self = worker(0);
  const auto id = context.id();
  auto pass =
      std::async(std::launch::async, [&] { return error_of([&] { backward(self, id, {loss}); }); });
  ASSERT_TRUE(stopped(3));
  sinew::ShutdownOptions now;
  now.graceful = false;
  worker(2).shutdown(now);
  const RpcError error = pass.get();
  EXPECT_EQ(error.code(), ErrorCode::kUnavailable) << error.what();
  EXPECT_THAT(error.message(), HasSubstr("worker2"));
  worker(0).peer(3).call<&testgrad::go_on>();
  EXPECT_TRUE(eventually([&] { return none("autograd.passes"); }));
  abandon();
}

TEST_P(AutogradErrors, TensorsOfAnotherContext) {
  Tensor old;
  {
    Context context(worker(0));
    old = chain(input_leaf(), "", AtBackward::kNothing);
  }
  Context context(worker(0));
  const RpcError error = error_of([&] { backward(context, {old.sum()}); });
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(error.message(), HasSubstr("in another context"));
  EXPECT_THAT(error.message(), HasSubstr("detach()"));
  // A plain backward says what to use.
  EXPECT_ANY_THROW(old.sum().backward());
  EXPECT_EQ(worker(0).counters()["autograd.passes"], 0);
}

TEST_P(AutogradErrors, FailingCallLeavesTheContextUsable) {
  Context context(worker(0));
  const Tensor input = input_leaf();
  EXPECT_EQ(error_of([&] {
              worker(0).peer(1).call<&testgrad::chain>(input, std::vector<std::string>{"nobody"},
                                                       "", AtBackward::kNothing);
            }).code(),
            ErrorCode::kNotFound);
  const Tensor loss = chain(input, "", AtBackward::kNothing).sum();
  backward(context, {loss});
  EXPECT_TRUE(at::allclose(gradient_of(context, input), at::full({2}, 11.0)));
}

SINEW_INSTANTIATE_CLUSTER_TEST(AutogradErrors);

// ---- What outlives its worker.

sinew::testing::ClusterOptions two_workers() {
  sinew::testing::ClusterOptions options;
  options.methods.add<&late::begin_later>().add<&late::twice>();
  return options;
}

TEST(AutogradLate, AMethodWhoseFutureCompletesWhenItsWorkerIsGone) {
  {
    const sinew::testing::Cluster cluster(two_workers());
    Context context(cluster.worker(0));
    cluster.worker(0).peer(1).async<&late::begin_later>(input_leaf());
    ASSERT_TRUE(eventually([] { return late::begun == 1; }));
  }
  late::promise().set_value(input_leaf());
}

TEST(AutogradLate, AResultThatIsReadWhenItsWorkerIsGone) {
  sinew::Future<Tensor> result;
  {
    const sinew::testing::Cluster cluster(two_workers());
    Context context(cluster.worker(0));
    result = cluster.worker(0).peer(1).async<&late::twice>(input_leaf());
    ASSERT_TRUE(eventually([&] { return result.done(); }));
  }
  const RpcError error = error_of([&] { result.wait(); });
  EXPECT_EQ(error.code(), ErrorCode::kCancelled) << error.what();
}

}  // namespace
