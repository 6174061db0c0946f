// A function that computes once more in its backward(): checkpointing by hand.

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ATen/ATen.h"
#include "sinew/sinew.h"
#include "sinew/tests/support/cluster.h"

namespace testinner {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor& weight() {
  static at::Tensor& weight = *new at::Tensor(at::full({2}, 3.0).requires_grad_());
  return weight;
}

/// As PyTorch's own does it: gradients of parameters come by the way.
struct ByBackward : torch::autograd::Function<ByBackward> {
  static variable_list forward(AutogradContext* context, const at::Tensor& input) {
    context->save_for_backward({input});
    return {input * weight()};
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::AutoGradMode with_gradients(true);
    const at::Tensor input = context->get_saved_variables()[0].detach().requires_grad_();
    torch::autograd::backward({input * weight()}, {gradients[0]});
    return {input.grad()};
  }
};

/// They are inputs, and have results.
struct ByGrad : torch::autograd::Function<ByGrad> {
  static variable_list forward(AutogradContext* context, const at::Tensor& input,
                               const at::Tensor& weight) {
    context->save_for_backward({input, weight});
    return {input * weight};
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::AutoGradMode with_gradients(true);
    const variable_list saved = context->get_saved_variables();
    const at::Tensor input = saved[0].detach().requires_grad_();
    const at::Tensor weight = saved[1].detach().requires_grad_();
    return torch::autograd::grad({input * weight}, {input, weight}, {gradients[0]});
  }
};

at::Tensor by_backward(const at::Tensor& input) { return ByBackward::apply(input)[0]; }
at::Tensor by_grad(const at::Tensor& input) { return ByGrad::apply(input, weight())[0]; }

}  // namespace testinner

SINEW_METHOD(testinner::by_backward, testinner::by_grad);

namespace {

using sinew::ErrorCode;
using sinew::RpcError;
using sinew::autograd::Context;
using sinew::autograd::gradient_of;
using sinew::testing::error_of;
using ::testing::HasSubstr;
using testinner::by_backward;
using testinner::by_grad;
using testinner::weight;

class InnerBackward : public sinew::testing::ClusterTest {
 protected:
  void SetUp() override {
    start(2, sinew::MethodTable().add<&by_backward, &by_grad>());
    weight().mutable_grad().reset();
  }
};
SINEW_INSTANTIATE_CLUSTER_TEST(InnerBackward);

TEST_P(InnerBackward, IsRefusedWhereItWouldMissTheContext) {
  const at::Tensor mine = at::ones({2}).requires_grad_();
  const sinew::Peer peer = worker(0).peer(1);
  enum Place { kHere, kThere, kBehindACall, kPlaces };
  for (int place = 0; place < kPlaces; ++place) {
    const Context context(worker(0));
    const at::Tensor output = place == kHere    ? by_backward(mine)
                              : place == kThere ? peer.call<&by_backward>(mine)
                                                : peer.call<&by_grad>(by_backward(mine));
    const RpcError error = error_of([&] { sinew::autograd::backward(context, {output.sum()}); });
    EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition) << error.message();
    EXPECT_EQ(error.peer(), place == kThere ? "worker1" : "worker0");
    EXPECT_THAT(error.message(), HasSubstr("Call torch::autograd::grad()"));
    EXPECT_FALSE(weight().grad().defined());
    EXPECT_TRUE(sinew::autograd::gradients(context).empty());
  }
}

TEST_P(InnerBackward, ByGradIsInTheContext) {
  const at::Tensor mine = at::ones({2}).requires_grad_();
  const Context context(worker(0));
  const at::Tensor output = worker(0).peer(1).call<&by_grad>(by_grad(mine));
  sinew::autograd::backward(context, {output.sum()});
  EXPECT_TRUE(gradient_of(context, mine).equal(at::full({2}, 9.0)));
  EXPECT_TRUE(gradient_of(context, weight()).equal(at::full({2}, 3.0)));
  EXPECT_TRUE(gradient_of(worker(1), context.id(), weight()).equal(at::full({2}, 3.0)));
  EXPECT_FALSE(weight().grad().defined());
}

// LibTorch's own passes are as ever, also after those of contexts, and in one.
TEST_P(InnerBackward, ElsewhereItIsLibTorchs) {
  const at::Tensor mine = at::ones({2}).requires_grad_();
  const Context context(worker(0));
  sinew::autograd::backward(context, {by_grad(mine).sum()});
  by_backward(mine).sum().backward();
  EXPECT_TRUE(mine.grad().equal(at::full({2}, 3.0)));
  EXPECT_TRUE(weight().grad().equal(at::ones({2})));
}

}  // namespace
