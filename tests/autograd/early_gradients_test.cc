// Gradients that other workers wait for leave before the rest of a worker's step has run.

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ATen/ATen.h"
#include "sinew/sinew.h"
#include "sinew/tests/support/cluster.h"

using sinew::ErrorCode;
using sinew::RpcError;
using sinew::autograd::backward;
using sinew::autograd::BackwardOptions;
using sinew::autograd::Context;
using sinew::autograd::gradient_of;
using sinew::testing::error_of;
using sinew::testing::eventually;
using ::testing::HasSubstr;

namespace testgrad {

using at::Tensor;
using sinew::autograd::Context;

Tensor leaf() { return at::full({2}, 0.5).set_requires_grad(true); }

/// What no other worker waits for, and what a test makes of it.
struct Rest {
  sinew::testing::Gate gate;
  std::atomic<bool> throws{false};
  std::atomic<int> ran{0};
  const Tensor weight = leaf();
};
Rest* rest = nullptr;

struct AtTheGate : torch::autograd::Function<AtTheGate> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& weight) {
    return weight.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    rest->gate.pass();
    if (rest->throws) throw std::out_of_range("no gradient today");
    ++rest->ran;
    return gradients;
  }
};

Tensor twice(const Tensor& input) { return input * 2; }

// The engine left to itself begins with what was recorded last.
Tensor with_weight(const Tensor& input) {
  const Tensor product = input * 3;
  return product + AtTheGate::apply(rest->weight);
}

struct Slow : torch::autograd::Function<Slow> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& input) {
    return input.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    // What takes longer than a millisecond is worth a message.
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return gradients;
  }
};

/// Twice the input; `rest` goes on when the gradient has come.
std::atomic<int> ran_before{-1};
Tensor awaited(const Tensor& input) {
  Tensor result = input * 2;
  result.register_hook([](const Tensor& gradient) {
    int none = -1;
    ran_before.compare_exchange_strong(none, rest->ran);
    rest->gate.open();
    return gradient;
  });
  return result;
}

}  // namespace testgrad

SINEW_METHOD(testgrad::awaited, testgrad::twice, testgrad::with_weight);

namespace testgrad {

/// Five times the input; `arrived` runs when its gradient is there.
Tensor watched(const Tensor& input, std::function<void()> arrived) {
  Tensor result = input * 5;
  result.register_hook([arrived = std::move(arrived)](const Tensor& gradient) {
    arrived();
    return gradient;
  });
  return result;
}

Tensor by_way_of(const Tensor& input, int to) {
  return sinew::current_worker().peer(to).call<&with_weight>(
      watched(input, [] { rest->gate.open(); }));
}

/// By way of worker `to`, and the gradient back.
Tensor there_and_back(const Tensor& input, int to) {
  return sinew::current_worker().peer(to).call<&twice>(watched(input, [] { rest->gate.open(); }));
}

/// Two calls to worker `to`. In the backward pass the second one's gradient is there first, and the
/// first one's only when the second one's has come to where it is awaited.
Tensor two_calls(const Tensor& input, int to) {
  const sinew::Worker here = sinew::current_worker();
  const Tensor first = here.peer(to).call<&awaited>(input);
  const Tensor second = here.peer(to).call<&awaited>(input * 5);
  return Slow::apply(second) + AtTheGate::apply(first);
}

/// Leads a pass in which worker `to` answers in steps, and stops between two of them.
sinew::testing::Gate* between_steps = nullptr;
void lead(const Tensor& input, int to) {
  const sinew::Worker here = sinew::current_worker();
  const Tensor first = here.peer(to).call<&twice>(input);
  const Tensor again =
      here.peer(to).call<&with_weight>(watched(first, [] { between_steps->pass(); }));
  sinew::autograd::backward(here, Context::current(), {again.sum()});
}

}  // namespace testgrad

SINEW_METHOD(testgrad::by_way_of, testgrad::there_and_back, testgrad::two_calls, testgrad::lead);

namespace {

using at::Tensor;
using testgrad::leaf;
using testgrad::rest;
using testgrad::watched;

class EarlyGradients : public sinew::testing::ClusterTest {
 protected:
  void SetUp() override {
    rest = &rest_;
    sinew::MethodTable methods;
    methods.add<&testgrad::twice>().add<&testgrad::with_weight>().add<&testgrad::by_way_of>();
    methods.add<&testgrad::there_and_back>()
        .add<&testgrad::awaited>()
        .add<&testgrad::two_calls>()
        .add<&testgrad::lead>();
    start(3, methods);
  }
  bool none(const std::string& counter) {
    for (int rank = 0; rank < 3; ++rank) {
      if (worker(rank).counters()[counter] != 0) return false;
    }
    return true;
  }
  std::int64_t calls() {
    std::int64_t sum = 0;
    for (int rank = 0; rank < 3; ++rank) sum += worker(rank).counters()["autograd.calls"];
    return sum;
  }
  /// Calls worker 1 twice. In between, where the gradient is awaited: `arrived`.
  Tensor there_and_back_twice(const Tensor& input, std::function<void()> arrived) {
    const Tensor first = worker(0).peer(1).call<&testgrad::twice>(input);
    return worker(0).peer(1).call<&testgrad::with_weight>(watched(first, std::move(arrived)));
  }

  testgrad::Rest rest_;
};

TEST_P(EarlyGradients, RideInTheAnswerOfAStep) {
  const Context context(worker(0));
  const Tensor input = leaf();
  int ran_before = -1;
  const Tensor loss = there_and_back_twice(input, [&] {
                        ran_before = rest->ran;
                        rest->gate.open();
                      }).sum();
  backward(context, {loss});
  EXPECT_EQ(ran_before, 0);
  EXPECT_EQ(rest->ran, 1);
  EXPECT_TRUE(at::allclose(gradient_of(context, input), at::full({2}, 30.0)));
  // One call with each gradient, as without.
  EXPECT_EQ(calls(), 2);
}

TEST_P(EarlyGradients, GoToAThirdWorker) {
  const Context context(worker(0));
  const Tensor input = leaf();
  // Worker 2 waits for the gradient of this one too, so what follows is not all of its part.
  const Tensor first = worker(0).peer(2).call<&testgrad::twice>(input);
  const Tensor loss = worker(0).peer(1).call<&testgrad::by_way_of>(first, 2).sum();
  backward(context, {loss});
  EXPECT_EQ(rest->ran, 1);
  EXPECT_TRUE(at::allclose(gradient_of(context, input), at::full({2}, 30.0)));
}

// Also where all that is left of a worker's part can run at once.
TEST_P(EarlyGradients, LeaveOneByOneWhereTheyTakeLong) {
  const Context context(worker(0));
  const Tensor input = leaf();
  testgrad::ran_before = -1;
  const Tensor loss = worker(0).peer(1).call<&testgrad::two_calls>(input, 2).sum();
  backward(context, {loss});
  EXPECT_EQ(testgrad::ran_before, 0);
  EXPECT_EQ(rest->ran, 1);
  EXPECT_TRUE(at::allclose(gradient_of(context, input), at::full({2}, 12.0)));
}

// The answer that could have told is gone: the next one tells.
TEST_P(EarlyGradients, TheRestThrows) {
  const Context context(worker(0));
  const Tensor input = leaf();
  const Tensor loss = there_and_back_twice(input, [] { rest->gate.open(); }).sum();
  BackwardOptions options;
  options.retain_graph = true;
  for (int round = 1; round <= 20; ++round) {
    rest->gate.close();
    rest->throws = true;
    const RpcError error = error_of([&] { backward(context, {loss}, options); });
    EXPECT_EQ(error.code(), ErrorCode::kOutOfRange) << error.what();
    EXPECT_EQ(error.peer(), "worker1");
    EXPECT_THAT(error.message(), HasSubstr("no gradient today"));
    EXPECT_TRUE(eventually([&] { return none("autograd.passes"); }));
    rest->gate.close();
    rest->throws = false;
    backward(context, {loss}, options);
    EXPECT_TRUE(at::allclose(gradient_of(context, input), at::full({2}, 30.0 * round)));
  }
  EXPECT_EQ(rest->ran, 20);
}

TEST_P(EarlyGradients, TheInitiatorFailsWhileTheRestRuns) {
  const Tensor input = leaf();
  {
    const Context context(worker(0));
    const Tensor loss =
        there_and_back_twice(input, [] { throw std::domain_error("no more of this"); }).sum();
    const RpcError error = error_of([&] { backward(context, {loss}); });
    EXPECT_THAT(error.message(), HasSubstr("no more of this"));
    EXPECT_EQ(error.peer(), "worker0");
    EXPECT_EQ(rest->ran, 0);
    rest->gate.open();
    EXPECT_TRUE(eventually([&] { return rest->ran == 1 && none("autograd.passes"); }));
    EXPECT_TRUE(sinew::autograd::gradients(context).empty());
  }
  EXPECT_TRUE(eventually([&] { return none("autograd.contexts"); }));
}

// Worker 2 takes part by then, though worker 0 has no gradients for it, and must hear of the end.
TEST_P(EarlyGradients, TheRestOfTheInitiatorThrows) {
  const Context context(worker(0));
  const Tensor input = leaf();
  rest->throws = true;
  const Tensor far = worker(0).peer(1).call<&testgrad::there_and_back>(input * 2, 2);
  const Tensor loss = (far + testgrad::AtTheGate::apply(rest->weight)).sum();
  const RpcError error = error_of([&] { backward(context, {loss}); });
  EXPECT_EQ(error.code(), ErrorCode::kOutOfRange) << error.what();
  EXPECT_TRUE(eventually([&] { return none("autograd.passes"); }));
  EXPECT_TRUE(sinew::autograd::gradients(context).empty());
}

TEST_P(EarlyGradients, TheInitiatorIsLostBetweenSteps) {
  sinew::testing::Gate between_steps;
  testgrad::between_steps = &between_steps;
  rest->gate.open();
  const Context context(worker(0));
  const Tensor input = leaf();
  const auto led = worker(0).peer(1).async<&testgrad::lead>(input, 2);
  ASSERT_TRUE(between_steps.wait_for_arrivals(1));
  EXPECT_EQ(worker(2).counters()["autograd.passes"], 1);
  auto lost = std::async(std::launch::async, [&] {
    sinew::ShutdownOptions now;
    now.graceful = false;
    worker(1).shutdown(now);
  });
  EXPECT_TRUE(eventually([&] { return worker(2).counters()["autograd.passes"] == 0; }));
  between_steps.open();
  lost.get();
  EXPECT_EQ(error_of([&] { led.wait(); }).code(), ErrorCode::kUnavailable);
  // Worker 2 takes part in others.
  const Tensor loss = worker(0).peer(2).call<&testgrad::twice>(input).sum();
  backward(context, {loss});
  EXPECT_TRUE(at::allclose(gradient_of(context, input), at::full({2}, 2.0)));
  abandon();
}

SINEW_INSTANTIATE_CLUSTER_TEST(EarlyGradients);

}  // namespace
