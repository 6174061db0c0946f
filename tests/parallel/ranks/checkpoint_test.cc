// Checkpointed parts in the module of a DistributedDataParallel, and in autograd contexts: against
// the same without.

#include <torch/nn.h>

#include <memory>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "sinew/parallel/checkpoint.h"
#include "sinew/parallel/distributed_data_parallel.h"
#include "sinew/parallel/sync_batch_norm.h"
#include "sinew/sinew.h"
#include "sinew/tests/parallel/ranks/models.h"
#include "sinew/tests/parallel/ranks/served_test.h"

using sinew::ErrorCode;
using sinew::autograd::Context;
using sinew::parallel::checkpoint;
using sinew::parallel::CheckpointOptions;
using sinew::parallel::DdpOptions;
using sinew::parallel::DistributedDataParallel;
using ::testing::HasSubstr;
using testranks::error_of;
using testranks::grads_of;

namespace testcheckpoint {

/// What the server has.
class Scale {
 public:
  at::Tensor times_weight(const at::Tensor& input) const { return input * weight_; }
  at::Tensor gradient(const sinew::autograd::ContextId& context) {
    return sinew::autograd::gradient_of(sinew::current_worker(), context, weight_);
  }

 private:
  const at::Tensor weight_ = at::full({1}, 3, at::kDouble).requires_grad_();
};

}  // namespace testcheckpoint

SINEW_SERVICE(testcheckpoint::Scale, (), times_weight, gradient);

namespace {

using testcheckpoint::Scale;

enum class How { kPlain, kCheckpointed };

/// Two blocks, with norms over all ranks.
class Net : public torch::nn::Module {
 public:
  Net(How how, const sinew::ProcessGroup& group) : how_(how) {
    torch::manual_seed(7);
    for (int i = 0; i < 2; ++i) {
      torch::nn::Linear linear(torch::nn::LinearOptions(4, 4));
      torch::nn::Sequential block(
          linear, sinew::parallel::SyncBatchNorm(torch::nn::BatchNormOptions(4), group));
      block->push_back(torch::nn::Tanh());
      blocks_.push_back(register_module("block" + std::to_string(i), block));
    }
    to(at::kDouble);
  }

  at::Tensor forward(at::Tensor x) {
    for (torch::nn::Sequential& block : blocks_) {
      x = how_ == How::kCheckpointed ? checkpoint(block, x) : block->forward(x);
    }
    return x;
  }

 private:
  const How how_;
  std::vector<torch::nn::Sequential> blocks_;
};

at::Tensor input_of(int rank, int turn) {
  return (at::arange(12, at::kDouble).view({3, 4}) + rank + 10 * turn).sin();
}

void expect_same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i], b[i])) << i;
}

class DdpCheckpoint : public testranks::RankTest {};

TEST_F(DdpCheckpoint, IsAPlainForwardToTheBit) {
  std::vector<std::vector<at::Tensor>> seen;
  for (const How how : {How::kPlain, How::kCheckpointed}) {
    const auto net = std::make_shared<Net>(how, group());
    DdpOptions options;
    options.first_bucket_bytes = 1;
    options.bucket_bytes = 1;
    DistributedDataParallel ddp(net, group(), options);
    for (int turn = 0; turn < 3; ++turn) {
      ddp.zero_grad();
      if (turn == 1) {
        const auto scope = ddp.no_sync();
        ddp.forward(input_of(rank(), 5)).pow(2).sum().backward();
      }
      ddp.forward(input_of(rank(), turn)).pow(2).sum().backward();
      const at::NoGradGuard no_grad;
      for (const at::Tensor& parameter : net->parameters()) parameter.sub_(parameter.grad() * 0.1);
    }
    std::vector<at::Tensor> all = grads_of(*net);
    for (const at::Tensor& parameter : net->parameters()) all.push_back(parameter.detach());
    for (const at::Tensor& buffer : net->buffers()) all.push_back(buffer);
    seen.push_back(all);
  }
  expect_same(seen[1], seen[0]);
}

/// Uses one of two weights.
class HalfUsed : public torch::nn::Module {
 public:
  HalfUsed() {
    used = register_parameter("used", at::ones({4}, at::kDouble));
    unused = register_parameter("unused", at::ones({4}, at::kDouble));
  }
  at::Tensor forward(const at::Tensor& x) {
    CheckpointOptions uses;
    uses.parameters = {used, unused};
    return checkpoint(
        uses, [this](const at::Tensor& a) { return a * used; }, x);
  }
  at::Tensor used;
  at::Tensor unused;
};

TEST_F(DdpCheckpoint, AllParametersOfThePartCountAsUsed) {
  const auto net = std::make_shared<HalfUsed>();
  DistributedDataParallel ddp(net, group());
  ddp.forward(input_of(rank(), 0)).sum().backward();
  EXPECT_TRUE(net->used.grad().defined());
  EXPECT_TRUE(at::equal(net->unused.grad(), at::zeros({4}, at::kDouble)));
}

class CheckpointInContext : public testranks::ServedTest {
 protected:
  void SetUp() override {
    RankTest::SetUp();
    start_workers(sinew::serve<Scale>());
    scale_ = worker_.peer("server").remote<Scale>();
  }
  void TearDown() override {
    scale_ = {};
    end_workers();
  }

  sinew::RRef<Scale> scale_;
};

TEST_F(CheckpointInContext, GradientsGoToTheContext) {
  std::vector<std::vector<at::Tensor>> seen;
  for (const How how : {How::kPlain, How::kCheckpointed}) {
    const auto net = std::make_shared<Net>(how, group());
    DistributedDataParallel ddp(net, group());
    const at::Tensor input = input_of(rank(), 1).requires_grad_();
    const Context context(worker_);
    const at::Tensor there = scale_.call<&Scale::times_weight>(input);
    const at::Tensor back = scale_.call<&Scale::times_weight>(ddp.forward(there));
    sinew::autograd::backward(context, {back.pow(2).sum()});
    std::vector<at::Tensor> all = {sinew::autograd::gradient_of(context, input),
                                   scale_.call<&Scale::gradient>(context.id())};
    for (const at::Tensor& parameter : net->parameters()) {
      EXPECT_FALSE(parameter.grad().defined());
      all.push_back(sinew::autograd::gradient_of(context, parameter));
    }
    seen.push_back(all);
  }
  expect_same(seen[1], seen[0]);
}

TEST_F(CheckpointInContext, AllParametersOfThePartCountAsUsed) {
  const auto net = std::make_shared<HalfUsed>();
  DistributedDataParallel ddp(net, group());
  const Context context(worker_);
  sinew::autograd::backward(context, {ddp.forward(input_of(rank(), 0)).sum()});
  EXPECT_TRUE(sinew::autograd::gradient_of(context, net->used).defined());
  EXPECT_TRUE(
      at::equal(sinew::autograd::gradient_of(context, net->unused), at::zeros({4}, at::kDouble)));
}

TEST_F(CheckpointInContext, ACallWithinThePartIsRefused) {
  const at::Tensor input = input_of(rank(), 1).requires_grad_();
  const auto part = [this](const at::Tensor& x) {
    return scale_.call<&Scale::times_weight>(x).sin();
  };
  {
    const Context context(worker_);
    const at::Tensor output = checkpoint(part, input);
    const sinew::RpcError error =
        error_of([&] { sinew::autograd::backward(context, {output.sum()}); });
    EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
    EXPECT_THAT(error.what(), HasSubstr("make the call before it"));
  }
  // With the call before it, as the text says.
  const Context context(worker_);
  const at::Tensor output = checkpoint([](const at::Tensor& x) { return x.sin(); },
                                       scale_.call<&Scale::times_weight>(input));
  sinew::autograd::backward(context, {output.sum()});
  EXPECT_TRUE(at::allclose(sinew::autograd::gradient_of(context, input), (input * 3).cos() * 3));
}

}  // namespace
