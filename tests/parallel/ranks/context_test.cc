// DistributedDataParallel in autograd contexts: trainers with a dense part each, which is reduced,
// and an embedding on a server that they share by calls; against one process with the whole batch.

#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "sinew/parallel/distributed_data_parallel.h"
#include "sinew/parallel/zero_redundancy_optimizer.h"
#include "sinew/sinew.h"
#include "sinew/tests/parallel/ranks/models.h"
#include "sinew/tests/parallel/ranks/served_test.h"

using sinew::ErrorCode;
using sinew::RpcError;
using sinew::autograd::Context;
using sinew::parallel::DdpOptions;
using sinew::parallel::DistributedDataParallel;
using sinew::parallel::JoinDivision;
using sinew::parallel::JoinOptions;
using sinew::parallel::UnusedParameters;
using ::testing::HasSubstr;
using testranks::Batch;
using testranks::Branches;
using testranks::difference;
using testranks::error_of;
using testranks::grads_of;
using testranks::make_batch;
using testranks::mean_loss;
using testranks::Mlp;

namespace testcontext {

/// What the server has.
class Table {
 public:
  Table()
      : weight_(at::arange(10 * Mlp::kInputs, at::kDouble)
                    .view({10, Mlp::kInputs})
                    .sin()
                    .requires_grad_()) {}
  at::Tensor look_up(const at::Tensor& rows) const { return weight_.index({rows}); }
  /// Fails in backward().
  at::Tensor break_in_backward(const at::Tensor& input) {
    const at::Tensor output = input * 2;
    output.register_hook([](const at::Tensor&) { throw std::runtime_error("the server broke"); });
    return output;
  }
  at::Tensor gradient(const sinew::autograd::ContextId& context) {
    return sinew::autograd::gradient_of(sinew::current_worker(), context, weight_);
  }
  const at::Tensor& weight() const { return weight_; }

 private:
  const at::Tensor weight_;
};

}  // namespace testcontext

SINEW_SERVICE(testcontext::Table, (), look_up, break_in_backward, gradient);

namespace {

using testcontext::Table;

class DdpInContext : public testranks::ServedTest {
 protected:
  void SetUp() override {
    RankTest::SetUp();
    start_workers(sinew::serve<Table>());
    table_ = worker_.peer("server").remote<Table>();
  }
  void TearDown() override {
    if (!ends_) return;
    table_ = {};
    end_workers();
  }

  /// The gradients that a context has for the parameters of a module.
  static std::vector<at::Tensor> gradients_of(const Context& context,
                                              const torch::nn::Module& module) {
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& parameter : module.parameters()) {
      gradients.push_back(sinew::autograd::gradient_of(context, parameter));
    }
    return gradients;
  }
  void expect_no_grad(const torch::nn::Module& module) const {
    for (const at::Tensor& grad : grads_of(module)) EXPECT_FALSE(grad.defined());
  }

  sinew::RRef<Table> table_;
  bool ends_ = true;
};

std::vector<at::Tensor> gradients_of_one(std::uint64_t seed, const Batch& batch) {
  Mlp model(seed);
  mean_loss(model.forward(batch.input), batch.target).backward();
  return grads_of(model);
}

at::Tensor rows_of(int rank) { return at::tensor({rank, 2 * rank + 1, 5, 5}, at::kLong); }

TEST_F(DdpInContext, BothKindsOfGradientsAreRight) {
  for (const std::size_t bucket_bytes : {std::size_t{1}, std::size_t{1} << 20}) {
    const auto model = std::make_shared<Mlp>(10 + static_cast<std::uint64_t>(rank()));
    DdpOptions options;
    options.bucket_bytes = bucket_bytes;
    options.first_bucket_bytes = bucket_bytes;
    DistributedDataParallel ddp(model, group(), options);
    const Batch batch = make_batch(3, 4 * size());
    for (int step = 0; step < 3; ++step) {
      const Context context(worker_);
      const at::Tensor input = table_.call<&Table::look_up>(rows_of(rank()));
      const at::Tensor loss = mean_loss(ddp.forward(input), batch.part(rank(), size()).target);
      sinew::autograd::backward(context, {loss});

      // One process: the mean of all trainers' losses for the model, each loss for the table.
      Mlp whole(10);
      const Table table;
      at::Tensor sum;
      at::Tensor own;
      for (int other = 0; other < size(); ++other) {
        const at::Tensor one = mean_loss(whole.forward(table.look_up(rows_of(other))),
                                         batch.part(other, size()).target);
        if (other == rank()) own = one;
        sum = sum.defined() ? sum + one : one;
      }
      (sum / size()).backward({}, /*retain_graph=*/true);
      EXPECT_LT(difference(gradients_of(context, *model), grads_of(whole)), 1e-12);
      table.weight().mutable_grad().reset();
      own.backward();
      EXPECT_LT(difference({table_.call<&Table::gradient>(context.id())}, {table.weight().grad()}),
                1e-12);
      expect_no_grad(*model);
    }
  }
}

// LibTorch's backward() in a context reduces .grad, and the next pass of a context its own.
TEST_F(DdpInContext, BothWaysOfBackward) {
  const auto model = std::make_shared<Mlp>(4);
  DistributedDataParallel ddp(model, group());
  const Batch batch = make_batch(3, 4 * size());
  const Batch part = batch.part(rank(), size());
  const std::vector<at::Tensor> expected = gradients_of_one(4, batch);
  for (int step = 0; step < 2; ++step) {
    const Context context(worker_);
    mean_loss(ddp.forward(part.input), part.target).backward();
    EXPECT_LT(difference(grads_of(*model), expected), 1e-12);
    for (at::Tensor& parameter : model->parameters()) parameter.mutable_grad().reset();
  }
  for (int step = 0; step < 2; ++step) {
    const Context context(worker_);
    sinew::autograd::backward(context, {mean_loss(ddp.forward(part.input), part.target)});
    EXPECT_LT(difference(gradients_of(context, *model), expected), 1e-12);
    expect_no_grad(*model);
  }
  mean_loss(ddp.forward(part.input), part.target).backward();
  EXPECT_LT(difference(grads_of(*model), expected), 1e-12);
}

TEST_F(DdpInContext, AccumulatesWithoutSync) {
  const auto model = std::make_shared<Mlp>(4);
  DistributedDataParallel ddp(model, group());
  const Batch batch = make_batch(3, 8 * size());
  const Batch part = batch.part(rank(), size());
  const auto loss = [&](int half) {
    const Batch piece = part.rows(4 * half, 4 * half + 4);
    return mean_loss(ddp.forward(piece.input), piece.target) / 2;
  };
  const Context context(worker_);
  {
    const auto scope = ddp.no_sync();
    sinew::autograd::backward(context, {loss(0)});
  }
  sinew::autograd::backward(context, {loss(1)});
  EXPECT_LT(difference(gradients_of(context, *model), gradients_of_one(4, batch)), 1e-12);
  // Once more: what has been reduced stays as it is, and the rest is added.
  sinew::autograd::backward(context, {loss(0) + loss(1)});
  std::vector<at::Tensor> twice = gradients_of_one(4, batch);
  for (at::Tensor& gradient : twice) gradient.mul_(2);
  EXPECT_LT(difference(gradients_of(context, *model), twice), 1e-12);
}

TEST_F(DdpInContext, UnusedParameters) {
  const at::Tensor input = at::ones({1, Mlp::kInputs}, at::kDouble);
  const auto model = std::make_shared<Branches>(3);
  DdpOptions options;
  options.unused_parameters = UnusedParameters::kFound;
  DistributedDataParallel ddp(model, group(), options);
  {
    const Context context(worker_);
    sinew::autograd::backward(context, {ddp.forward(input, rank() == 0 ? 2 : 0).sum()});
    const at::Tensor first = sinew::autograd::gradient_of(context, model->first->weight);
    const at::Tensor second = sinew::autograd::gradient_of(context, model->second->weight);
    EXPECT_TRUE(first.allclose(at::ones_like(first)));
    EXPECT_TRUE(second.allclose(at::full_like(second, 1.0 / size())));
  }
  {
    const Context context(worker_);
    sinew::autograd::backward(context, {ddp.forward(input, 0).sum()});
    EXPECT_FALSE(sinew::autograd::gradient_of(context, model->second->weight).defined());
  }
  // Forbidden: an error on all ranks, also on those that have used all.
  DistributedDataParallel strict(model, group());
  const Context context(worker_);
  const RpcError error = error_of([&] {
    sinew::autograd::backward(context, {strict.forward(input, rank() == 0 ? 2 : 0).sum()});
  });
  if (rank() == 0) {
    EXPECT_EQ(error.code(), ErrorCode::kAborted) << error.message();
  } else {
    EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
    EXPECT_THAT(error.message(), HasSubstr("'second.weight', 'second.bias'"));
  }
  EXPECT_TRUE(sinew::autograd::gradients(context).empty());
}

// Whatever makes a pass fail on one rank, no rank keeps its gradients, and the next pass is right.
TEST_F(DdpInContext, AFailedPassIsKeptNowhere) {
  const auto model = std::make_shared<Mlp>(4);
  DdpOptions options;
  options.bucket_bytes = 300;
  DistributedDataParallel ddp(model, group(), options);
  const Batch batch = make_batch(3, 4 * size());
  const Batch part = batch.part(rank(), size());
  enum Fault { kAtTheServer, kInTheModel, kBeforeThePass, kLast };
  for (int fault = 0; fault < kLast; ++fault) {
    {
      const Context context(worker_);
      at::Tensor input = part.input;
      const bool faulty = rank() == 1;
      if (fault == kAtTheServer && faulty) {
        input = table_.call<&Table::break_in_backward>(input.clone().requires_grad_());
      }
      const at::Tensor output = ddp.forward(input);
      if (fault == kInTheModel && faulty) {
        output.register_hook([](const at::Tensor&) { throw std::runtime_error("a hook broke"); });
      }
      sinew::autograd::BackwardOptions pass;
      if (fault == kBeforeThePass && faulty) pass.timeout = std::chrono::nanoseconds(1);
      const RpcError error = error_of(
          [&] { sinew::autograd::backward(context, {mean_loss(output, part.target)}, pass); });
      if (faulty) {
        EXPECT_THAT(error.message(), HasSubstr(fault == kAtTheServer  ? "the server broke"
                                               : fault == kInTheModel ? "a hook broke"
                                                                      : "did not end"));
      } else {
        EXPECT_EQ(error.code(), ErrorCode::kAborted) << error.message();
        EXPECT_THAT(error.message(), HasSubstr("failed on rank 1"));
      }
      EXPECT_TRUE(sinew::autograd::gradients(context).empty());
    }
    const Context context(worker_);
    sinew::autograd::backward(context, {mean_loss(ddp.forward(part.input), part.target)});
    EXPECT_LT(difference(gradients_of(context, *model), gradients_of_one(4, batch)), 1e-12);
  }
}

// A rank whose pass fails when all have agreed on it has not kept its gradients as the others have,
// and says so in the next vote.
TEST_F(DdpInContext, APassThatFailsAfterTheVoteIsFoundByTheNextOne) {
  const auto model = std::make_shared<Mlp>(4);
  DistributedDataParallel ddp(model, group());
  const Batch batch = make_batch(3, 4 * size());
  const Batch part = batch.part(rank(), size());
  // What is behind a leaf that is not reduced runs when the context has its gradient.
  const at::Tensor other = at::ones({1}, at::kDouble).requires_grad_();
  const auto accumulator = torch::autograd::impl::grad_accumulator(other);
  const std::uintptr_t hook =
      accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
          [faulty = rank() == 1](const torch::autograd::variable_list& outputs,
                                 const torch::autograd::variable_list&) {
            if (faulty) throw std::runtime_error("a hook behind a leaf broke");
            return outputs;
          }));
  {
    const Context context(worker_);
    const at::Tensor loss = mean_loss(ddp.forward(part.input), part.target) + other.sum();
    if (rank() == 1) {
      const RpcError error = error_of([&] { sinew::autograd::backward(context, {loss}); });
      EXPECT_THAT(error.message(), HasSubstr("a hook behind a leaf broke"));
      EXPECT_TRUE(sinew::autograd::gradients(context).empty());
    } else {
      sinew::autograd::backward(context, {loss});
      EXPECT_LT(difference(gradients_of(context, *model), gradients_of_one(4, batch)), 1e-12);
    }
  }
  accumulator->del_post_hook(hook);
  const Context context(worker_);
  const RpcError error = error_of([&] {
    sinew::autograd::backward(context, {mean_loss(ddp.forward(part.input), part.target)});
  });
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(error.message(), HasSubstr("rank 1 has kept the gradients of 0 backward passes, rank "
                                         "0 those of 1"));
  EXPECT_TRUE(sinew::autograd::gradients(context).empty());
}

TEST_F(DdpInContext, HooksCompress) {
  const auto model = std::make_shared<Mlp>(4);
  DdpOptions options;
  options.comm_hook = sinew::parallel::fp16_compress_hook();
  DistributedDataParallel ddp(model, group(), options);
  const Batch batch = make_batch(3, 4 * size());
  const Batch part = batch.part(rank(), size());
  const Context context(worker_);
  sinew::autograd::backward(context, {mean_loss(ddp.forward(part.input), part.target)});
  const double error = difference(gradients_of(context, *model), gradients_of_one(4, batch));
  EXPECT_LT(error, 2e-3);
  EXPECT_GT(error, 1e-9) << "nothing was rounded";
}

TEST_F(DdpInContext, AHookThatReturnsSomethingElseIsNamed) {
  const auto model = std::make_shared<Mlp>(4);
  DdpOptions options;
  options.comm_hook = [](const sinew::ProcessGroup&, const sinew::parallel::GradientBucket&) {
    return sinew::make_ready_future(at::ones({3}));
  };
  DistributedDataParallel ddp(model, group(), options);
  const Batch part = make_batch(3, 4 * size()).part(rank(), size());
  const Context context(worker_);
  const RpcError error = error_of([&] {
    sinew::autograd::backward(context, {mean_loss(ddp.forward(part.input), part.target)});
  });
  EXPECT_THAT(error.message(), HasSubstr("a communication hook has returned 3 elements"));
}

/// Its weight lies column by column.
class Columns : public torch::nn::Module {
 public:
  Columns() { weight = register_parameter("weight", at::ones({2, 3}, at::kDouble).t()); }
  at::Tensor forward(const at::Tensor& input) { return input.matmul(weight); }
  at::Tensor weight;
};

TEST_F(DdpInContext, GradientsHaveTheStridesOfTheirParameters) {
  const auto model = std::make_shared<Columns>();
  DistributedDataParallel ddp(model, group());
  const Context context(worker_);
  const at::Tensor input = at::arange(3, at::kDouble).view({1, 3}) * (rank() + 1);
  sinew::autograd::backward(context, {ddp.forward(input).sum()});
  const at::Tensor gradient = sinew::autograd::gradient_of(context, model->weight);
  EXPECT_EQ(gradient.strides(), model->weight.strides());
  const at::Tensor column = at::arange(3, at::kDouble).view({3, 1}) * (1 + size()) / 2.0;
  EXPECT_TRUE(gradient.allclose(column.expand({3, 2})));
}

TEST_F(DdpInContext, AnOptimizerThatIsSpreadStepsGradientsOfTheContext) {
  const auto model = std::make_shared<Mlp>(4);
  DistributedDataParallel ddp(model, group());
  sinew::parallel::ZeroRedundancyOptimizer optimizer(group(), model->parameters(),
                                                     sinew::optim::SgdOptions());
  const Batch batch = make_batch(3, 4 * size());
  const Batch part = batch.part(rank(), size());
  const Context context(worker_);
  sinew::autograd::backward(context, {mean_loss(ddp.forward(part.input), part.target)});
  optimizer.step(context);
  Mlp whole(4);
  const double rate = sinew::optim::SgdOptions().lr;
  const std::vector<at::Tensor> gradients = gradients_of_one(4, batch);
  const at::AutoGradMode no_grad(false);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    whole.parameters()[i].sub_(gradients[i], rate);
  }
  EXPECT_LT(difference(testranks::values_of(*model), testranks::values_of(whole)), 1e-12);
  EXPECT_GT(difference(testranks::values_of(*model), testranks::values_of(Mlp(4))), 1e-6);
}

TEST_F(DdpInContext, PassesHaveTheTimeLimitOfTheModulesGroup) {
  sinew::GroupOptions options;
  options.timeout = std::chrono::seconds(5);
  std::vector<int> all(static_cast<std::size_t>(size()));
  std::iota(all.begin(), all.end(), 0);
  const auto model = std::make_shared<Mlp>(1);
  DistributedDataParallel ddp(model, group().new_group(all, options));
  const Batch part = make_batch(3, 4 * size()).part(rank(), size());
  const Context context(worker_);
  const at::Tensor loss = mean_loss(ddp.forward(part.input), part.target);
  if (rank() == 0) {
    const RpcError error = error_of([&] { sinew::autograd::backward(context, {loss}); });
    EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded) << error.message();
  }
  group().barrier();
}

TEST_F(DdpInContext, RanksWithoutInputsShadowPasses) {
  const auto steps_of = [](int of) { return of == 1 ? 0 : 2 + of; };
  const auto batch_of = [](int of, int step) {
    return make_batch(static_cast<std::uint64_t>(100 * of + step), 4);
  };
  const auto step_with = [](const torch::nn::Module& module,
                            const std::vector<at::Tensor>& gradients) {
    const at::AutoGradMode no_grad(false);
    std::vector<at::Tensor> parameters = module.parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i].sub_(gradients[i], 0.1);
  };
  for (const auto division : {JoinDivision::kInitialWorldSize, JoinDivision::kEffectiveWorldSize}) {
    const auto model = std::make_shared<Mlp>(4);
    DdpOptions options;
    options.bucket_bytes = 300;
    DistributedDataParallel ddp(model, group(), options);
    JoinOptions how;
    how.division = division;
    sinew::parallel::join({&ddp}, how, [&] {
      for (int step = 0; step < steps_of(rank()); ++step) {
        const Context context(worker_);
        const Batch batch = batch_of(rank(), step);
        sinew::autograd::backward(context, {mean_loss(ddp.forward(batch.input), batch.target)});
        step_with(*model, gradients_of(context, *model));
      }
    });
    Mlp whole(4);
    for (int step = 0; step < steps_of(size() - 1) || step < steps_of(0); ++step) {
      whole.zero_grad();
      int active = 0;
      for (int of = 0; of < size(); ++of) active += step < steps_of(of);
      const int divisor = division == JoinDivision::kInitialWorldSize ? size() : active;
      for (int of = 0; of < size(); ++of) {
        if (step >= steps_of(of)) continue;
        const Batch batch = batch_of(of, step);
        (mean_loss(whole.forward(batch.input), batch.target) / divisor).backward();
      }
      step_with(whole, grads_of(whole));
    }
    EXPECT_LT(difference(testranks::values_of(*model), testranks::values_of(whole)), 1e-11);
  }
}

class DyingTrainer : public DdpInContext {};

TEST_F(DyingTrainer, LeavesErrors) {
  ends_ = false;
  const auto model = std::make_shared<Mlp>(4);
  DistributedDataParallel ddp(model, group());
  const Batch part = make_batch(3, 4 * size()).part(rank(), size());
  {
    const Context context(worker_);
    sinew::autograd::backward(context, {mean_loss(ddp.forward(part.input), part.target)});
  }
  const Context context(worker_);
  const at::Tensor loss = mean_loss(ddp.forward(part.input), part.target);
  if (rank() == size() - 1) {
    model->parameters()[2].register_hook([](const at::Tensor&) { raise(SIGKILL); });
  }
  const RpcError error = error_of([&] { sinew::autograd::backward(context, {loss}); });
  EXPECT_EQ(error.code(), ErrorCode::kUnavailable) << error.message();
  EXPECT_TRUE(sinew::autograd::gradients(context).empty());
}

}  // namespace
