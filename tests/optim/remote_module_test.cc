#include "sinew/optim/remote_module.h"

#include <torch/nn/modules/linear.h>

#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ATen/ATen.h"
#include "sinew/sinew.h"
#include "sinew/tests/support/cluster.h"

using sinew::ErrorCode;
using sinew::RemoteModule;
using sinew::RpcError;
using sinew::testing::error_of;
using ::testing::HasSubstr;

namespace testmodule {

/// A layer whose result shows whether it trains.
class Net : public torch::nn::Module {
 public:
  Net(std::int64_t in, std::int64_t out) {
    if (in <= 0) throw std::invalid_argument("a layer needs inputs");
    linear_ = register_module("linear", torch::nn::Linear(in, out));
    const at::AutoGradMode no_grad(false);
    linear_->weight.fill_(0.5);
    linear_->bias.fill_(1);
  }
  std::tuple<at::Tensor, bool> forward(const at::Tensor& input, double factor) {
    return {linear_->forward(input) * factor, is_training()};
  }

 private:
  torch::nn::Linear linear_{nullptr};
};

}  // namespace testmodule

SINEW_MODULE(testmodule::Net, (std::int64_t, std::int64_t));

namespace testmodule {

at::Tensor use(const RemoteModule<Net>& net, const at::Tensor& input) {
  return std::get<0>(net.forward(input, 1.0));
}

}  // namespace testmodule

SINEW_METHOD(testmodule::use);

using testmodule::Net;

namespace {

class Modules : public sinew::testing::ClusterTest {
 protected:
  void SetUp() override {
    sinew::MethodTable methods;
    methods.serve<Net>().add<&testmodule::use>();
    start(3, methods);
  }
};

TEST_P(Modules, ForwardInBothWays) {
  const RemoteModule<Net> net(worker(0), "worker1", 3, 2);
  const at::Tensor input = at::ones({4, 3});
  const auto [output, trains] = net.forward(input, 2.0);
  EXPECT_TRUE(output.equal(at::full({4, 2}, 5.0)));
  EXPECT_TRUE(trains);
  const auto later = net.forward_async(input, 4.0);
  EXPECT_TRUE(std::get<0>(later.wait()).equal(at::full({4, 2}, 10.0)));
}

TEST_P(Modules, TrainAndEval) {
  const RemoteModule<Net> net(worker(0), "rank:1/cpu", 3, 2);
  const at::Tensor input = at::ones({1, 3});
  net.eval();
  EXPECT_FALSE(std::get<1>(net.forward(input, 1.0)));
  net.train();
  EXPECT_TRUE(std::get<1>(net.forward(input, 1.0)));
  net.train(false);
  EXPECT_FALSE(std::get<1>(net.forward(input, 1.0)));
}

TEST_P(Modules, TrainsThroughItsRemoteParameters) {
  const RemoteModule<Net> net(worker(0), "worker1", 3, 2);
  const std::vector<sinew::RRef<at::Tensor>> parameters = net.remote_parameters();
  ASSERT_EQ(parameters.size(), 2U);
  EXPECT_EQ(parameters[0].owner_name(), "worker1");
  EXPECT_TRUE(parameters[1].to_here().equal(at::ones({2})));
  sinew::optim::SgdOptions sgd;
  sgd.lr = 0.5;
  const sinew::optim::DistributedOptimizer optimizer(worker(0), parameters, sgd);
  const at::Tensor input = at::ones({1, 3}).set_requires_grad(true);
  {
    const sinew::autograd::Context context(worker(0));
    sinew::autograd::backward(context, {std::get<0>(net.forward(input, 1.0)).sum()});
    EXPECT_TRUE(sinew::autograd::gradient_of(context, input).equal(at::ones({1, 3})));
    optimizer.step(context);
  }
  EXPECT_TRUE(parameters[0].to_here().equal(at::zeros({2, 3})));
  EXPECT_TRUE(parameters[1].to_here().equal(at::full({2}, 0.5)));
}

TEST_P(Modules, HandlesArePassedOnAndShared) {
  const RemoteModule<Net> net(worker(0), "worker1", 3, 2);
  const at::Tensor output = worker(0).peer("worker2").call<&testmodule::use>(net, at::ones({1, 3}));
  EXPECT_TRUE(output.equal(at::full({1, 2}, 2.5)));
  const RemoteModule<Net> same(net.module_rref());
  same.eval();
  EXPECT_FALSE(std::get<1>(net.forward(at::ones({1, 3}), 1.0)));
}

TEST_P(Modules, MistakesAreNamed) {
  const auto making = [&](const std::string& where, std::int64_t inputs = 3) {
    return error_of([&] { RemoteModule<Net>(worker(0), where, inputs, 2); });
  };
  for (const char* where : {"", "/cpu", "worker1/", "worker1/cpu/0", "rank:x", "rank:-1"}) {
    const RpcError error = making(where);
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << where;
    EXPECT_THAT(error.message(), HasSubstr("is no place for a module"));
  }
  EXPECT_EQ(making("nobody").code(), ErrorCode::kNotFound);
  EXPECT_EQ(making("rank:7").code(), ErrorCode::kNotFound);
  for (const char* where : {"worker1/gpu", "worker1/cuda:99", "worker1/cpu:x"}) {
    const RpcError error = making(where);
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << where;
    EXPECT_THAT(error.message(), HasSubstr("is no device of this worker"));
    EXPECT_EQ(error.peer(), "worker1");
  }
  const RpcError error = making("worker1", 0);
  EXPECT_EQ(error.type_name(), "std::invalid_argument");
  EXPECT_THAT(error.message(), HasSubstr("a layer needs inputs"));
  EXPECT_EQ(error_of([&] { RemoteModule<Net>().train(); }).code(), ErrorCode::kFailedPrecondition);
}

TEST_P(Modules, ParametersOfAModuleHere) {
  const auto net = std::make_shared<Net>(3, 2);
  EXPECT_EQ(sinew::parameter_rrefs(worker(0), net).size(), 2U);
  EXPECT_EQ(sinew::parameter_rrefs(worker(0), torch::nn::Linear(2, 2)).size(), 2U);
  const auto references = sinew::parameter_rrefs(worker(0), *net);
  // The parameters themselves.
  const at::AutoGradMode no_grad(false);
  references[0].local_value().fill_(3);
  EXPECT_TRUE(net->parameters()[0].equal(at::full({2, 3}, 3.0)));
}

SINEW_INSTANTIATE_CLUSTER_TEST(Modules);

}  // namespace
