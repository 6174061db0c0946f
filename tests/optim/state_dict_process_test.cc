// What Python's PyTorch reads of a module's state, and what it writes.

#include "sinew/optim/state_dict.h"

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ATen/ATen.h"
#include "sinew/sinew.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/processes.h"
#include "sinew/tests/support/temporary_folder.h"

namespace teststate {

class Net : public torch::nn::Module {
 public:
  explicit Net(double value) {
    linear_ = register_module("linear", torch::nn::Linear(3, 2));
    norm_ = register_module("norm", torch::nn::BatchNorm1d(2));
    const at::AutoGradMode no_grad(false);
    for (at::Tensor& parameter : parameters()) parameter.fill_(value);
  }
  at::Tensor forward(const at::Tensor& input) { return norm_->forward(linear_->forward(input)); }

 private:
  torch::nn::Linear linear_{nullptr};
  torch::nn::BatchNorm1d norm_{nullptr};
};

/// A module that is none of LibTorch's.
class Plain {
 public:
  at::Tensor forward(const at::Tensor& input) { return input; }
  std::vector<at::Tensor> parameters() const { return {}; }
  void train(bool) {}
  void to(c10::Device) {}
};

}  // namespace teststate

SINEW_MODULE(teststate::Net, (double));
SINEW_MODULE(teststate::Plain, ());

namespace {

using sinew::ErrorCode;
using sinew::RemoteModule;
using sinew::RpcError;
using sinew::optim::load_state_dict;
using sinew::optim::save_state_dict;
using sinew::optim::StateDict;
using sinew::testing::error_of;
using sinew::testing::run_program;
using ::testing::AllOf;
using ::testing::HasSubstr;
using teststate::Net;
using teststate::Plain;

class ModuleState : public sinew::testing::ClusterTest {
 protected:
  void start_workers() { start(2, sinew::serve<Net, Plain>()); }
  static std::vector<std::string> names_of(const StateDict& state) {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : state) names.push_back(name);
    return names;
  }
  const sinew::testing::TemporaryFolder folder_;
};
SINEW_INSTANTIATE_CLUSTER_TEST(ModuleState);

TEST_P(ModuleState, IsReadAndSetAtItsWorker) {
  start_workers();
  const RemoteModule<Net> net(worker(0), "worker1", 0.5);
  static_cast<void>(net.forward(at::ones({4, 3})));
  StateDict state = net.state_dict();
  EXPECT_EQ(names_of(state),
            (std::vector<std::string>{"linear.bias", "linear.weight", "norm.bias",
                                      "norm.num_batches_tracked", "norm.running_mean",
                                      "norm.running_var", "norm.weight"}));
  EXPECT_EQ(state.at("norm.num_batches_tracked").item<std::int64_t>(), 1);
  EXPECT_FALSE(state.at("linear.weight").requires_grad());
  // A copy: it stays what it is.
  {
    const sinew::optim::DistributedOptimizer optimizer(worker(0), net.remote_parameters(),
                                                       sinew::optim::SgdOptions());
    const sinew::autograd::Context context(worker(0));
    sinew::autograd::backward(
        context, {net.forward(at::ones({1, 3}) * at::arange(2).view({2, 1})).square().sum()});
    optimizer.step(context);
  }
  EXPECT_TRUE(state.at("norm.weight").equal(at::full({2}, 0.5)));
  EXPECT_FALSE(net.state_dict().at("norm.bias").equal(state.at("norm.bias")));
  // Into another module, in which everything is taken over.
  const RemoteModule<Net> other(worker(0), "worker1", 7.0);
  other.load_state_dict(state);
  for (const auto& [name, tensor] : other.state_dict()) {
    EXPECT_TRUE(tensor.equal(state.at(name))) << name;
  }
}

// As a step of an optimizer, a new state is no change in place for passes that are under way.
TEST_P(ModuleState, IsSetBetweenForwardAndBackward) {
  start_workers();
  const RemoteModule<Net> net(worker(0), "worker1", 0.5);
  const StateDict state = net.state_dict();
  const at::Tensor input = at::ones({4, 3}).requires_grad_();
  const sinew::autograd::Context context(worker(0));
  const at::Tensor output = net.forward(input);
  net.load_state_dict(state);
  sinew::autograd::backward(context, {output.square().sum()});
  EXPECT_TRUE(sinew::autograd::gradient_of(context, input).defined());
}

TEST_P(ModuleState, MistakesAreNamed) {
  start_workers();
  const RemoteModule<Net> net(worker(0), "worker1", 0.5);
  StateDict state = net.state_dict();
  state.erase("linear.bias");
  state["linear.weight"] = at::ones({3, 3});
  state["other"] = at::ones({1});
  const RpcError error = error_of([&] { net.load_state_dict(state); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(error.peer(), "worker1");
  EXPECT_THAT(error.message(),
              AllOf(HasSubstr("'linear.bias' is missing"),
                    HasSubstr("'linear.weight' has sizes [3, 3], and [2, 3] in the module"),
                    HasSubstr("'other' is unknown")));
  EXPECT_TRUE(net.state_dict().at("linear.weight").equal(at::full({2, 3}, 0.5)));
  const RemoteModule<Plain> plain(worker(0), "worker1");
  EXPECT_THAT(error_of([&] { plain.state_dict(); }).message(),
              HasSubstr("teststate::Plain has no named_parameters()"));
}

TEST_P(ModuleState, FilesAreReadAsTheyWereWritten) {
  start_workers();
  const RemoteModule<Net> net(worker(0), "worker1", 0.5);
  StateDict state = net.state_dict();
  // A view of more, another layout and another type.
  state["view"] = at::arange(1'000'000).view({1000, 1000}).t().slice(0, 0, 2).slice(1, 0, 3);
  state["half"] = at::ones({2}, at::kHalf);
  const std::string path = folder_.file("net.pt");
  save_state_dict(state, path);
  EXPECT_LT(std::filesystem::file_size(path), 100'000U);
  const StateDict read = load_state_dict(path);
  EXPECT_EQ(names_of(read), names_of(state));
  for (const auto& [name, tensor] : read) {
    EXPECT_TRUE(tensor.equal(state.at(name))) << name;
    EXPECT_EQ(tensor.scalar_type(), state.at(name).scalar_type());
  }
  EXPECT_EQ(error_of([&] { save_state_dict(state, path); }).code(), ErrorCode::kAlreadyExists);
  EXPECT_EQ(error_of([&] { load_state_dict(folder_.file("none.pt")); }).code(),
            ErrorCode::kNotFound);
  EXPECT_EQ(error_of([&] {
              save_state_dict({{"x", at::Tensor()}}, folder_.file("x.pt"));
            }).code(),
            ErrorCode::kInvalidArgument);
  for (const std::uintmax_t size :
       {std::uintmax_t{0}, std::uintmax_t{100}, std::filesystem::file_size(path) / 2}) {
    const std::string damaged = folder_.file("damaged.pt");
    std::filesystem::copy_file(path, damaged, std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(damaged, size);
    const RpcError error = error_of([&] { load_state_dict(damaged); });
    EXPECT_EQ(error.code(), ErrorCode::kDataLoss) << size;
    EXPECT_THAT(error.message(), HasSubstr(damaged));
  }
}

/// "": there is a Python with PyTorch.
std::string why_no_python() {
  try {
    run_program({"/usr/bin/python3", "-c", "import torch"});
    return "";
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

TEST(ModuleStateInPython, IsReadWithWeightsOnly) {
  if (const std::string why = why_no_python(); !why.empty()) {
    GTEST_SKIP() << "needs Debian's python3-torch: " << why;
  }
  const sinew::testing::TemporaryFolder folder;
  Net net(0.25);
  save_state_dict(sinew::internal::named_tensors(net), folder.file("net.pt"));
  EXPECT_EQ(
      run_program({"/usr/bin/python3", "-c", R"(
import sys, torch
net = torch.nn.Sequential()
net.add_module("linear", torch.nn.Linear(3, 2))
net.add_module("norm", torch.nn.BatchNorm1d(2))
state = torch.load(sys.argv[1], weights_only=True)
net.load_state_dict(state)
print(sorted(state), net.linear.weight.tolist(), net.norm.running_var.tolist())
net(torch.ones(4, 3))
torch.save(dict(net.state_dict()), sys.argv[2])
torch.save(net.state_dict(), sys.argv[3])
)",
                   folder.file("net.pt"), folder.file("python.pt"), folder.file("ordered.pt")}),
      "['linear.bias', 'linear.weight', 'norm.bias', 'norm.num_batches_tracked', "
      "'norm.running_mean', 'norm.running_var', 'norm.weight'] [[0.25, 0.25, 0.25], [0.25, "
      "0.25, 0.25]] [1.0, 1.0]\n");
  const StateDict state = load_state_dict(folder.file("python.pt"));
  EXPECT_EQ(state.size(), 7U);
  EXPECT_EQ(state.at("norm.num_batches_tracked").item<std::int64_t>(), 1);
  EXPECT_TRUE(state.at("norm.running_mean").allclose(at::full({2}, 0.1)));
  EXPECT_TRUE(state.at("linear.weight").equal(at::full({2, 3}, 0.25)));
  const StateDict ordered = load_state_dict(folder.file("ordered.pt"));
  EXPECT_EQ(ordered.size(), 7U);
  for (const auto& [name, tensor] : ordered) EXPECT_TRUE(tensor.equal(state.at(name))) << name;
  // What LibTorch does not read.
  run_program({"/usr/bin/python3", "-c", R"(
import sys, torch
torch.save(torch.nn.Linear(2, 2).state_dict(), sys.argv[1], _use_new_zipfile_serialization=False)
)",
               folder.file("old.pt")});
  EXPECT_THAT(error_of([&] { load_state_dict(folder.file("old.pt")); }).message(),
              HasSubstr("torch.save(module.state_dict(), path)"));
  run_program({"/usr/bin/python3", "-c", "import sys, torch; torch.save([1], sys.argv[1])",
               folder.file("list.pt")});
  EXPECT_THAT(error_of([&] { load_state_dict(folder.file("list.pt")); }).message(),
              HasSubstr("is no dictionary of tensors"));
}

}  // namespace
