// Ranks with different numbers of inputs.

#include "sinew/parallel/join.h"

#include <torch/nn.h>
#include <torch/optim.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "ATen/ATen.h"
#include "sinew/parallel/distributed_data_parallel.h"
#include "sinew/parallel/zero_redundancy_optimizer.h"
#include "sinew/tests/parallel/ranks/models.h"
#include "sinew/tests/parallel/ranks/rank_test.h"

using sinew::ErrorCode;
using sinew::parallel::DdpOptions;
using sinew::parallel::DistributedDataParallel;
using sinew::parallel::join;
using sinew::parallel::JoinDivision;
using sinew::parallel::JoinOptions;
using sinew::parallel::UnusedParameters;
using sinew::parallel::ZeroRedundancyOptimizer;
using testranks::Batch;
using testranks::Branches;
using testranks::difference;
using testranks::error_of;
using testranks::make_batch;
using testranks::mean_loss;
using testranks::Mlp;
using testranks::values_of;
using testranks::Words;

namespace {

class Join : public testranks::RankTest {
 protected:
  /// Rank 1 has none, the others 2 more than the one before.
  static int steps_of(int of) { return of == 1 ? 0 : 2 + 2 * of; }
  static Batch batch_of(int of, int step) {
    return make_batch(static_cast<std::uint64_t>(100 * of + step), 4);
  }

  /// What one process computes: in each step the sum of the gradients of those that have inputs.
  template <class Module, class... Args>
  std::shared_ptr<Module> one_process(
      JoinDivision division, const std::function<at::Tensor(Module&, int of, int step)>& loss,
      Args... args) const {
    const auto whole = std::make_shared<Module>(args...);
    torch::optim::SGD optimizer(whole->parameters(), torch::optim::SGDOptions(0.1));
    for (int step = 0;; ++step) {
      for (at::Tensor& parameter : whole->parameters()) parameter.mutable_grad().reset();
      int active = 0;
      for (int of = 0; of < size(); ++of) active += step < steps_of(of);
      if (active == 0) return whole;
      const int divisor = division == JoinDivision::kInitialWorldSize ? size() : active;
      for (int of = 0; of < size(); ++of) {
        if (step < steps_of(of)) (loss(*whole, of, step) / divisor).backward();
      }
      optimizer.step();
    }
  }
  std::vector<at::Tensor> expected(JoinDivision division) const {
    const auto loss = [](Mlp& whole, int of, int step) {
      const Batch batch = batch_of(of, step);
      return mean_loss(whole.forward(batch.input), batch.target);
    };
    return values_of(*one_process<Mlp>(division, loss, 1));
  }
};

TEST_F(Join, RanksWithoutInputsShadowTheOthers) {
  for (const auto division : {JoinDivision::kInitialWorldSize, JoinDivision::kEffectiveWorldSize}) {
    for (const auto unused : {UnusedParameters::kForbidden, UnusedParameters::kFound}) {
      const auto model = std::make_shared<Mlp>(1);
      DdpOptions options;
      options.bucket_bytes = 300;
      options.unused_parameters = unused;
      DistributedDataParallel ddp(model, group(), options);
      torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1));
      JoinOptions how;
      how.division = division;
      int done = 0;
      join({&ddp}, how, [&] {
        for (int step = 0; step < steps_of(rank()); ++step, ++done) {
          const Batch batch = batch_of(rank(), step);
          optimizer.zero_grad();
          mean_loss(ddp.forward(batch.input), batch.target).backward();
          optimizer.step();
        }
      });
      EXPECT_EQ(done, steps_of(rank()));
      EXPECT_LT(difference(values_of(*model), expected(division)), 1e-11);
      // Afterwards all ranks count again.
      ddp.zero_grad();
      const Batch batch = make_batch(9, 2 * size());
      const Batch part = batch.part(rank(), size());
      mean_loss(ddp.forward(part.input), part.target).backward();
      Mlp whole(1);
      {
        const at::AutoGradMode no_grad(false);
        for (std::size_t i = 0; i < whole.parameters().size(); ++i) {
          whole.parameters()[i].copy_(model->parameters()[i]);
        }
      }
      mean_loss(whole.forward(batch.input), batch.target).backward();
      EXPECT_LT(difference(testranks::grads_of(*model), testranks::grads_of(whole)), 1e-12);
    }
  }
}

// A rank that never had inputs has no gradient of the embedding to make zeros of.
TEST_F(Join, SparseGradientsAreShadowedToo) {
  const auto rows_of = [](int of, int step) {
    return at::tensor({3, of + step, 10 + of}, at::kLong);
  };
  for (const auto division : {JoinDivision::kInitialWorldSize, JoinDivision::kEffectiveWorldSize}) {
    const auto model = std::make_shared<Words>();
    DistributedDataParallel ddp(model, group());
    torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1));
    JoinOptions how;
    how.division = division;
    join({&ddp}, how, [&] {
      for (int step = 0; step < steps_of(rank()); ++step) {
        for (at::Tensor& parameter : model->parameters()) parameter.mutable_grad().reset();
        ddp.forward(rows_of(rank(), step)).pow(2).sum().backward();
        EXPECT_TRUE(model->table->weight.grad().is_sparse());
        optimizer.step();
      }
    });
    const auto whole = one_process<Words>(division, [&](Words& one, int of, int step) {
      return one.forward(rows_of(of, step)).pow(2).sum();
    });
    EXPECT_LT(difference(values_of(*model), values_of(*whole)), 1e-11);
  }
}

// What a hook returns is a mean over all ranks, and is made one over those that have inputs.
TEST_F(Join, HooksDivideByThoseThatGoOn) {
  for (const auto division : {JoinDivision::kInitialWorldSize, JoinDivision::kEffectiveWorldSize}) {
    const auto model = std::make_shared<Mlp>(1);
    DdpOptions options;
    options.comm_hook = sinew::parallel::all_reduce_hook();
    DistributedDataParallel ddp(model, group(), options);
    torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1));
    JoinOptions how;
    how.division = division;
    join({&ddp}, how, [&] {
      for (int step = 0; step < steps_of(rank()); ++step) {
        const Batch batch = batch_of(rank(), step);
        optimizer.zero_grad();
        mean_loss(ddp.forward(batch.input), batch.target).backward();
        optimizer.step();
      }
    });
    EXPECT_LT(difference(values_of(*model), expected(division)), 1e-11);
  }
}

/// Counts its forward passes, each rank from another number on.
class CountingCalls : public torch::nn::Module {
 public:
  explicit CountingCalls(double start) {
    weight_ = register_parameter("weight", at::ones({1}));
    count = register_buffer("count", at::full({1}, start));
  }
  at::Tensor forward(const at::Tensor& input) {
    count.add_(1);
    return input * weight_;
  }
  at::Tensor count;

 private:
  at::Tensor weight_;
};

// At the end of the ranks that went on longest; before, of the highest one that still has inputs.
TEST_F(Join, BuffersAreThoseOfARankThatGoesOn) {
  const auto model = std::make_shared<CountingCalls>(0);
  DistributedDataParallel ddp(model, group());
  int last = 0;
  for (int of = 0; of < size(); ++of) {
    if (steps_of(of) >= steps_of(last)) last = of;
  }
  join({&ddp}, {}, [&] {
    for (int step = 0; step < steps_of(rank()); ++step) {
      model->count.fill_(100 * rank() + step);
      ddp.forward(at::ones({1})).backward();
      int root = 0;
      for (int of = 0; of < size(); ++of) {
        if (step < steps_of(of)) root = of;
      }
      EXPECT_EQ(model->count.item<double>(), 100 * root + step + 1) << "step " << step;
    }
    model->count.fill_(rank() == last ? 7 : 0);
  });
  EXPECT_EQ(model->count.item<double>(), 7);
}

// Zeros of a rank without inputs are no use of a parameter.
TEST_F(Join, WhatNobodyUsesKeepsItsGradient) {
  const auto model = std::make_shared<Branches>(3);
  DdpOptions options;
  options.unused_parameters = UnusedParameters::kFound;
  DistributedDataParallel ddp(model, group(), options);
  join({&ddp}, {}, [&] {
    for (int step = 0; step < steps_of(rank()); ++step) {
      ddp.forward(at::ones({1, Mlp::kInputs}, at::kDouble), 0).sum().backward();
    }
  });
  EXPECT_EQ(model->first->weight.grad().defined(), steps_of(rank()) > 0);
  EXPECT_FALSE(model->second->weight.grad().defined());
}

TEST_F(Join, EvenInputsEndAtOnce) {
  const auto model = std::make_shared<Mlp>(1);
  DistributedDataParallel ddp(model, group());
  join({&ddp}, {}, [&] {
    for (int step = 0; step < 2; ++step) {
      const Batch batch = batch_of(rank(), step);
      mean_loss(ddp.forward(batch.input), batch.target).backward();
    }
  });
  join({&ddp}, {}, [] {});
}

TEST_F(Join, AccumulationAndEvaluationAreShadowedToo) {
  const auto model = std::make_shared<Mlp>(1);
  DistributedDataParallel ddp(model, group());
  join({&ddp}, {}, [&] {
    for (int step = 0; step < steps_of(rank()); ++step) {
      const Batch batch = batch_of(rank(), step);
      if (step % 3 == 0) {
        const auto scope = ddp.no_sync();
        mean_loss(ddp.forward(batch.input), batch.target).backward();
      } else if (step % 3 == 1) {
        const at::AutoGradMode no_grad(false);
        ddp.forward(batch.input);
      } else {
        mean_loss(ddp.forward(batch.input), batch.target).backward();
      }
    }
  });
  const std::vector<at::Tensor> own = values_of(*model);
  EXPECT_EQ(difference(own, values_of(Mlp(1))), 0);
}

TEST_F(Join, AnOptimizerThatIsSpreadGoesOn) {
  Mlp model(1);
  ZeroRedundancyOptimizer optimizer(group(), model.parameters(), sinew::optim::AdamOptions());
  for (const at::Tensor& parameter : model.parameters()) {
    parameter.mutable_grad() = at::ones_like(parameter);
  }
  join({&optimizer}, {}, [&] {
    for (int step = 0; step < steps_of(rank()); ++step) optimizer.step();
  });
  Mlp whole(1);
  torch::optim::Adam plain(whole.parameters());
  for (const at::Tensor& parameter : whole.parameters()) {
    parameter.mutable_grad() = at::ones_like(parameter);
  }
  int most = 0;
  for (int of = 0; of < size(); ++of) most = std::max(most, steps_of(of));
  for (int step = 0; step < most; ++step) plain.step();
  EXPECT_EQ(difference(values_of(model), values_of(whole)), 0);
}

TEST_F(Join, NeedsSomethingThatTakesPart) {
  EXPECT_EQ(error_of([] { join({}, {}, [] {}); }).code(), ErrorCode::kInvalidArgument);
}

}  // namespace
