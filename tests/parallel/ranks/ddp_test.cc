// DistributedDataParallel with LibTorch's own backward(): against one process with the whole batch.

#include "sinew/parallel/distributed_data_parallel.h"

#include <torch/nn.h>
#include <torch/optim.h>
#include <torch/serialize.h>

#include <chrono>
#include <csignal>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "ATen/ATen.h"
#include "sinew/tests/parallel/ranks/models.h"
#include "sinew/tests/parallel/ranks/rank_test.h"

using sinew::ErrorCode;
using sinew::Future;
using sinew::ProcessGroup;
using sinew::RpcError;
using sinew::parallel::BufferSync;
using sinew::parallel::DdpOptions;
using sinew::parallel::DistributedDataParallel;
using sinew::parallel::GradientBucket;
using sinew::parallel::GradientMemory;
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
using testranks::values_of;
using testranks::Words;

namespace {

class Ddp : public testranks::RankTest {};

/// The gradients of one process with the whole batch.
std::vector<at::Tensor> whole_gradients(std::uint64_t seed, const Batch& batch,
                                        std::int64_t layers = 2, std::int64_t width = 16) {
  Mlp model(seed, layers, width);
  mean_loss(model.forward(batch.input), batch.target).backward();
  return grads_of(model);
}

// Models, batches and buckets of many sizes: some with a bucket for each parameter, some with one.
TEST_F(Ddp, GradientsAreThoseOfTheWholeBatch) {
  for (std::uint64_t round = 0; round < 12; ++round) {
    const auto layers = static_cast<std::int64_t>(1 + round % 4);
    const auto width = static_cast<std::int64_t>(3 + 17 * (round % 3));
    DdpOptions options;
    options.bucket_bytes = round % 2 == 0 ? 200 : 100000;
    options.first_bucket_bytes = round % 3 == 0 ? 1 : 1000;
    options.gradients = round % 4 == 3 ? GradientMemory::kBucketViews : GradientMemory::kOwn;
    // Ranks start apart; the first one's parameters count.
    const auto model =
        std::make_shared<Mlp>(round + 100 * static_cast<std::uint64_t>(rank()), layers, width);
    DistributedDataParallel ddp(model, group(), options);
    ASSERT_EQ(difference(values_of(*model), values_of(Mlp(round, layers, width))), 0);
    // The second and third steps go in buckets in the order of the first.
    for (std::uint64_t step = 0; step < 3; ++step) {
      const Batch batch = make_batch(1000 * round + step, 8 * size());
      const Batch part = batch.part(rank(), size());
      ddp.zero_grad();
      mean_loss(ddp.forward(part.input), part.target).backward();
      EXPECT_LT(difference(grads_of(*model), whole_gradients(round, batch, layers, width)), 1e-12)
          << "round " << round << ", step " << step;
    }
  }
}

TEST_F(Ddp, TrainsAsOneProcess) {
  const auto model = std::make_shared<Mlp>(static_cast<std::uint64_t>(rank()));
  DistributedDataParallel ddp(model, group());
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  Mlp whole(0);
  torch::optim::SGD whole_optimizer(whole.parameters(),
                                    torch::optim::SGDOptions(0.1).momentum(0.9));
  for (std::uint64_t step = 0; step < 20; ++step) {
    const Batch batch = make_batch(step, 4 * size());
    const Batch part = batch.part(rank(), size());
    optimizer.zero_grad();
    mean_loss(ddp.forward(part.input), part.target).backward();
    optimizer.step();
    whole_optimizer.zero_grad();
    mean_loss(whole.forward(batch.input), batch.target).backward();
    whole_optimizer.step();
  }
  EXPECT_LT(difference(values_of(*model), values_of(whole)), 1e-10);
}

TEST_F(Ddp, ZeroGradKeepsTheGradientsTensors) {
  const auto model = std::make_shared<Mlp>(1);
  DistributedDataParallel ddp(model, group());
  ddp.zero_grad();
  for (const at::Tensor& parameter : model->parameters()) EXPECT_FALSE(parameter.grad().defined());
  const Batch batch = make_batch(1, 4);
  mean_loss(ddp.forward(batch.input), batch.target).backward();
  const std::vector<at::Tensor> before = grads_of(*model);
  ddp.zero_grad();
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_TRUE(model->parameters()[i].grad().is_same(before[i]));
    EXPECT_EQ(before[i].abs().max().item<double>(), 0);
  }
}

TEST_F(Ddp, TakesHoldersAndContainers) {
  torch::nn::Linear linear(Mlp::kInputs, Mlp::kOutputs);
  DistributedDataParallel ddp(linear, group());
  const at::Tensor input = at::ones({2, Mlp::kInputs}) * (rank() + 1);
  ddp(input).sum().backward();
  const double mean = 2 * (1 + size()) / 2.0;
  EXPECT_TRUE(linear->weight.grad().allclose(at::full_like(linear->weight, mean)));

  torch::nn::Sequential layers(torch::nn::Linear(Mlp::kInputs, 4), torch::nn::ReLU(),
                               torch::nn::Linear(4, 1));
  DistributedDataParallel sequence(layers, group());
  sequence.forward(input).sum().backward();
  std::vector<at::Tensor> all;
  for (const at::Tensor& grad : grads_of(*layers)) {
    std::vector<at::Tensor> of_ranks;
    for (int i = 0; i < size(); ++i) of_ranks.push_back(at::empty_like(grad));
    group().all_gather(of_ranks, grad);
    for (const at::Tensor& other : of_ranks) EXPECT_TRUE(other.equal(grad));
  }
}

// ---- Unused parameters.

TEST_F(Ddp, UnusedParametersAreFound) {
  const auto model = std::make_shared<Branches>(3);
  DdpOptions options;
  options.unused_parameters = UnusedParameters::kFound;
  DistributedDataParallel ddp(model, group(), options);
  const at::Tensor input = at::ones({1, Mlp::kInputs}, at::kDouble);
  // Rank 0 uses both branches, all others one: the others' zeros count.
  ddp.forward(input, rank() == 0 ? 2 : 0).sum().backward();
  EXPECT_TRUE(model->first->weight.grad().allclose(at::ones_like(model->first->weight)));
  EXPECT_TRUE(
      model->second->weight.grad().allclose(at::full_like(model->second->weight, 1.0 / size())));
  // What nobody uses keeps what it has.
  const at::Tensor before = model->second->weight.grad().clone();
  model->first->zero_grad();
  ddp.forward(input, 0).sum().backward();
  EXPECT_TRUE(model->first->weight.grad().allclose(at::ones_like(model->first->weight)));
  EXPECT_TRUE(model->second->weight.grad().equal(before));
}

TEST_F(Ddp, LoadingIntoAModuleThatIsWatchedIsAnError) {
  const auto model = std::make_shared<Mlp>(5);
  std::stringstream file;
  torch::save(model, file);
  DistributedDataParallel ddp(model, group());
  const at::Tensor input = at::ones({1, Mlp::kInputs}, at::kDouble);
  ddp.forward(input).sum().backward();
  auto loaded = model;
  torch::load(loaded, file);
  ASSERT_EQ(loaded, model);
  const RpcError error = error_of([&] { ddp.forward(input); });
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(error.message(), HasSubstr("torch::load()"));
  EXPECT_THAT(error.message(), HasSubstr("weight'"));
}

// ---- Accumulation.

TEST_F(Ddp, ScopesWithoutSyncMayBeNested) {
  const auto model = std::make_shared<Mlp>(5);
  DistributedDataParallel ddp(model, group());
  const Batch part = make_batch(1, 4 * size()).part(rank(), size());
  {
    const auto outer = ddp.no_sync();
    { const auto inner = ddp.no_sync(); }
    mean_loss(ddp.forward(part.input), part.target).backward();
  }
  Mlp alone(5);
  mean_loss(alone.forward(part.input), part.target).backward();
  EXPECT_LT(difference(grads_of(*model), grads_of(alone)), 1e-14) << "it was reduced";
}

TEST_F(Ddp, AccumulatesWithoutSync) {
  const auto model = std::make_shared<Mlp>(5);
  DistributedDataParallel ddp(model, group());
  const Batch batch = make_batch(1, 8 * size());
  const Batch part = batch.part(rank(), size());
  const auto backward = [&](int half) {
    const Batch piece = part.rows(4 * half, 4 * half + 4);
    (mean_loss(ddp.forward(piece.input), piece.target) / 2).backward();
  };
  for (int step = 0; step < 2; ++step) {
    ddp.zero_grad();
    {
      const auto scope = ddp.no_sync();
      backward(0);
    }
    if (step == 0) {
      Mlp alone(5);
      const Batch piece = part.rows(0, 4);
      (mean_loss(alone.forward(piece.input), piece.target) / 2).backward();
      EXPECT_LT(difference(grads_of(*model), grads_of(alone)), 1e-14) << "it was reduced";
    }
    backward(1);
    EXPECT_LT(difference(grads_of(*model), whole_gradients(5, batch)), 1e-12);
  }
}

// A forward() whose result is dropped leaves nothing behind.
TEST_F(Ddp, ForwardAloneHasNoEffect) {
  const auto model = std::make_shared<Mlp>(5);
  DistributedDataParallel ddp(model, group());
  const Batch batch = make_batch(1, 2 * size());
  const Batch part = batch.part(rank(), size());
  ddp.forward(part.input);
  {
    const at::AutoGradMode no_grad(false);
    ddp.forward(part.input);
  }
  mean_loss(ddp.forward(part.input), part.target).backward();
  EXPECT_LT(difference(grads_of(*model), whole_gradients(5, batch)), 1e-12);
}

// ---- Buffers.

class Counting : public torch::nn::Module {
 public:
  explicit Counting(double start) {
    weight_ = register_parameter("weight", at::ones({1}));
    count = register_buffer("count", at::full({1}, start));
  }
  at::Tensor forward(const at::Tensor& input) {
    const at::AutoGradMode no_grad(false);
    seen = count.item<double>();
    count.add_(1);
    const at::AutoGradMode grad(true);
    return input * weight_;
  }
  at::Tensor count;
  double seen = 0;

 private:
  at::Tensor weight_;
};

TEST_F(Ddp, BuffersAreThoseOfTheFirstRank) {
  const auto model = std::make_shared<Counting>(10.0 * rank());
  DistributedDataParallel ddp(model, group());
  EXPECT_EQ(model->count.item<double>(), 0);
  ddp.forward(at::ones({1})).backward();
  model->count.fill_(100 + rank());
  ddp.forward(at::ones({1})).backward();
  EXPECT_EQ(model->seen, 100);

  DdpOptions options;
  options.buffers = BufferSync::kKept;
  const auto other = std::make_shared<Counting>(0);
  DistributedDataParallel keeping(other, group(), options);
  other->count.fill_(100 + rank());
  keeping.forward(at::ones({1})).backward();
  EXPECT_EQ(other->seen, 100 + rank());
  keeping.sync_buffers();
  EXPECT_EQ(other->count.item<double>(), 101);
}

// Accumulation is no step of all ranks: buffers wait for the next one.
TEST_F(Ddp, BuffersStayWhileGradientsAccumulate) {
  const auto model = std::make_shared<Counting>(0);
  DistributedDataParallel ddp(model, group());
  const auto seen = [&] {
    model->count.fill_(100 + rank());
    ddp.forward(at::ones({1})).backward();
    return model->seen;
  };
  {
    const auto scope = ddp.no_sync();
    EXPECT_EQ(seen(), 100) << "the constructor was one";
    EXPECT_EQ(seen(), 100 + rank());
    {
      const auto inner = ddp.no_sync();
      EXPECT_EQ(seen(), 100 + rank());
    }
    EXPECT_EQ(seen(), 100 + rank());
  }
  EXPECT_EQ(seen(), 100 + rank());
  EXPECT_EQ(seen(), 100);
}

// ---- Communication hooks.

TEST_F(Ddp, CompressionKeepsGradientsAboutRight) {
  struct Case {
    sinew::parallel::CommHook hook;
    double tolerance;
  };
  const std::vector<Case> cases = {{sinew::parallel::all_reduce_hook(), 1e-12},
                                   {sinew::parallel::fp16_compress_hook(), 2e-3},
                                   {sinew::parallel::bf16_compress_hook(), 2e-2}};
  for (const Case& one : cases) {
    const auto model = std::make_shared<Mlp>(7);
    DdpOptions options;
    options.comm_hook = one.hook;
    options.bucket_bytes = 500;
    DistributedDataParallel ddp(model, group(), options);
    const Batch batch = make_batch(2, 4 * size());
    const Batch part = batch.part(rank(), size());
    for (int step = 0; step < 2; ++step) {
      ddp.zero_grad();
      mean_loss(ddp.forward(part.input), part.target).backward();
    }
    EXPECT_LT(difference(grads_of(*model), whole_gradients(7, batch)), one.tolerance);
  }
}

TEST_F(Ddp, AHookOfTheProgram) {
  const auto model = std::make_shared<Mlp>(7);
  std::vector<std::size_t> indexes;
  std::size_t elements = 0;
  int last = 0;
  DdpOptions options;
  options.bucket_bytes = 500;
  options.first_bucket_bytes = 100;
  options.comm_hook = [&](const ProcessGroup& over, const GradientBucket& bucket) {
    indexes.push_back(bucket.index);
    last += bucket.is_last;
    for (const at::Tensor& parameter : bucket.parameters) {
      elements += static_cast<std::size_t>(parameter.numel());
    }
    const at::Tensor sum = bucket.gradients.clone();
    return over.all_reduce_async(sum).then([sum] { return sum * 10; });
  };
  DistributedDataParallel ddp(model, group(), options);
  const Batch batch = make_batch(2, 4 * size());
  const Batch part = batch.part(rank(), size());
  mean_loss(ddp.forward(part.input), part.target).backward();
  std::vector<at::Tensor> expected = whole_gradients(7, batch);
  std::size_t all = 0;
  for (at::Tensor& gradient : expected) {
    all += static_cast<std::size_t>(gradient.numel());
    gradient.mul_(10 * size());
  }
  EXPECT_LT(difference(grads_of(*model), expected), 1e-10);
  EXPECT_EQ(elements, all);
  EXPECT_GT(indexes.size(), 2U);
  EXPECT_EQ(last, 1);
  for (std::size_t i = 0; i < indexes.size(); ++i) EXPECT_EQ(indexes[i], i);
}

TEST_F(Ddp, AHookThatFailsIsHeardOf) {
  const auto model = std::make_shared<Mlp>(7);
  DdpOptions options;
  options.comm_hook = [](const ProcessGroup&, const GradientBucket&) {
    return sinew::make_failed_future<at::Tensor>(
        std::make_exception_ptr(RpcError(ErrorCode::kInternal, "the hook is broken")));
  };
  DistributedDataParallel ddp(model, group(), options);
  const Batch part = make_batch(2, 4 * size()).part(rank(), size());
  const RpcError error =
      error_of([&] { mean_loss(ddp.forward(part.input), part.target).backward(); });
  EXPECT_THAT(error.message(), HasSubstr("the hook is broken"));
}

// ---- Sparse gradients.

TEST_F(Ddp, SparseGradients) {
  const auto model = std::make_shared<Words>();
  DistributedDataParallel ddp(model, group());
  Words whole;
  for (int step = 0; step < 2; ++step) {
    // Ranks have different numbers of rows, some of them alike; the last one has none twice.
    std::vector<std::int64_t> all;
    at::Tensor own;
    for (int other = 0; other < size(); ++other) {
      std::vector<std::int64_t> rows = {3, other + step};
      for (int i = 0; i < other; ++i) rows.push_back(10 + i);
      if (other == rank()) own = at::tensor(rows);
      all.insert(all.end(), rows.begin(), rows.end());
    }
    model->zero_grad();
    ddp.forward(own).sum().backward();
    for (auto& parameter : whole.parameters()) parameter.mutable_grad().reset();
    (whole.forward(at::tensor(all)).sum() / size()).backward();
    ASSERT_TRUE(model->table->weight.grad().is_sparse());
    EXPECT_TRUE(
        model->table->weight.grad().to_dense().allclose(whole.table->weight.grad().to_dense()));
    EXPECT_TRUE(model->linear->weight.grad().allclose(whole.linear->weight.grad()));
    for (auto& parameter : model->parameters()) parameter.mutable_grad().reset();
  }
}

class Bag : public torch::nn::Module {
 public:
  Bag() {
    table = register_module(
        "table", torch::nn::EmbeddingBag(
                     torch::nn::EmbeddingBagOptions(6, 2).sparse(true).mode(torch::kSum)));
  }
  at::Tensor forward(const at::Tensor& rows) { return table->forward(rows); }
  torch::nn::EmbeddingBag table{nullptr};
};

TEST_F(Ddp, SparseGradientsOfBags) {
  const auto model = std::make_shared<Bag>();
  DistributedDataParallel ddp(model, group());
  ddp.forward(at::tensor({rank(), 5}, at::kLong).view({1, 2})).sum().backward();
  ASSERT_TRUE(model->table->weight.grad().is_sparse());
  at::Tensor expected = at::zeros({6, 2});
  expected[5] = 1;
  for (int other = 0; other < size(); ++other) expected[other] += 1.0 / size();
  EXPECT_TRUE(model->table->weight.grad().to_dense().allclose(expected));
}

// ---- Mistakes.

TEST_F(Ddp, ModelsThatDifferAreNamedOnAllRanks) {
  const auto model = std::make_shared<Mlp>(1, 2, rank() == 1 ? 17 : 16);
  const RpcError error = error_of([&] { DistributedDataParallel(model, group()); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message(), HasSubstr("rank 0 has parameter 'layer0.weight' Double [16, 6]"));
  EXPECT_THAT(error.message(), HasSubstr("rank 1 has parameter 'layer0.weight' Double [17, 6]"));

  const auto deeper = std::make_shared<Mlp>(1, rank() == size() - 1 ? 3 : 2);
  EXPECT_THAT(error_of([&] { DistributedDataParallel(deeper, group()); }).message(),
              HasSubstr("'layer2."));
  class Buffered : public torch::nn::Module {
   public:
    explicit Buffered(std::int64_t size) {
      register_parameter("weight", at::ones({1}));
      register_buffer("statistics", at::zeros({size}));
    }
    at::Tensor forward(const at::Tensor& input) { return input; }
  };
  const auto buffered = std::make_shared<Buffered>(rank() == 1 ? 3 : 2);
  EXPECT_THAT(error_of([&] { DistributedDataParallel(buffered, group()); }).message(),
              HasSubstr("rank 0 has buffer 'statistics' Float [2]"));
  // The group goes on.
  const auto good = std::make_shared<Mlp>(1);
  DistributedDataParallel ddp(good, group());
  const Batch batch = make_batch(2, 2 * size());
  const Batch part = batch.part(rank(), size());
  mean_loss(ddp.forward(part.input), part.target).backward();
  EXPECT_LT(difference(grads_of(*good), whole_gradients(1, batch)), 1e-12);
}

struct Odd {
  at::Tensor output;
};
class OddModule : public torch::nn::Module {
 public:
  OddModule() { weight_ = register_parameter("weight", at::ones({1})); }
  Odd forward(const at::Tensor& input) { return {input * weight_}; }

 private:
  at::Tensor weight_;
};

TEST_F(Ddp, OptionsThatMakeNoSense) {
  const auto model = std::make_shared<Mlp>(1);
  DdpOptions options;
  options.bucket_bytes = 0;
  EXPECT_EQ(error_of([&] { DistributedDataParallel(model, group(), options); }).code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([&] { DistributedDataParallel(std::shared_ptr<Mlp>(), group()); }).code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([&] { DistributedDataParallel(model, ProcessGroup()); }).code(),
            ErrorCode::kInvalidArgument);
  for (at::Tensor& parameter : model->parameters()) parameter.set_requires_grad(false);
  EXPECT_THAT(error_of([&] { DistributedDataParallel(model, group()); }).message(),
              HasSubstr("no parameter of the module requires a gradient"));
  options = DdpOptions();
  options.unused_parameters = UnusedParameters::kFound;
  const auto odd = std::make_shared<OddModule>();
  DistributedDataParallel ddp(odd, group(), options);
  EXPECT_THAT(error_of([&] { ddp.forward(at::ones({1})); }).message(),
              HasSubstr("the type that forward() returns is not known"));
}

// ---- A rank dies.

class DyingRank : public testranks::RankTest {};

TEST_F(DyingRank, LeavesErrors) {
  const auto model = std::make_shared<Mlp>(1);
  DdpOptions options;
  options.bucket_bytes = 300;
  DistributedDataParallel ddp(model, group(), options);
  const Batch part = make_batch(2, 4 * size()).part(rank(), size());
  mean_loss(ddp.forward(part.input), part.target).backward();
  ddp.zero_grad();
  const at::Tensor loss = mean_loss(ddp.forward(part.input), part.target);
  if (rank() == size() - 1) {
    // When some gradients are there, and others are not.
    model->parameters()[2].register_hook([](const at::Tensor&) { raise(SIGKILL); });
  }
  const auto begin = std::chrono::steady_clock::now();
  const RpcError error = error_of([&] { loss.backward(); });
  EXPECT_EQ(error.code(), ErrorCode::kUnavailable) << error.message();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(50));
  // The group has failed, and says so at once.
  const at::Tensor next = mean_loss(ddp.forward(part.input), part.target);
  EXPECT_EQ(error_of([&] { next.backward(); }).code(), ErrorCode::kFailedPrecondition);
}

}  // namespace
