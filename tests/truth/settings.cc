#include <torch/nn.h>
#include <torch/optim.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "sinew/optim/clip_grad.h"
#include "sinew/parallel/distributed_data_parallel.h"
#include "sinew/parallel/distributed_sampler.h"
#include "sinew/parallel/sync_batch_norm.h"
#include "sinew/parallel/zero_redundancy_optimizer.h"
#include "sinew/tests/truth/programs.h"

namespace sinew::testing {
namespace {

using optim::ClipGradOptions;
using optim::SgdOptions;
using parallel::DdpOptions;
using parallel::DistributedDataParallel;
using parallel::DistributedSampler;
using parallel::DistributedSamplerOptions;
using parallel::SyncBatchNorm;
using parallel::ZeroRedundancyOptimizer;

// ---- An optimizer that is spread.

SgdOptions rate(double lr) {
  SgdOptions sgd;
  sgd.lr = lr;
  return sgd;
}

/// Weights of 0 in two groups, of which each is another rank's part.
std::vector<parallel::ParameterGroup> two_groups(const std::vector<at::Tensor>& weights) {
  return {{{weights[0]}, rate(0.5)}, {{weights[1]}, rate(0.5)}};
}

std::vector<at::Tensor> two_weights() {
  const std::vector<at::Tensor> weights = {at::zeros({1}, at::kDouble).requires_grad_(),
                                           at::zeros({1}, at::kDouble).requires_grad_()};
  for (const at::Tensor& weight : weights) weight.mutable_grad() = at::ones({1}, at::kDouble);
  return weights;
}

/// Rank 1 sets the rate of the second group for a step, and back for the next one.
Numbers set_rate_on_rank_1(const ProcessGroup& group) {
  const std::vector<at::Tensor> weights = two_weights();
  ZeroRedundancyOptimizer optimizer(group, two_groups(weights));
  if (group.rank() == 1) optimizer.set_learning_rate(1, 0.25);
  must_refuse(
      "rank 0 has group 1: SGD with lr 0.5 (0.5, 0, 0, 0, false) where rank 1 has group 1: SGD "
      "with lr 0.25",
      [&] { optimizer.step(); });
  Numbers seen = {value(weights[0]), value(weights[1])};
  optimizer.set_learning_rate(1, 0.25);
  optimizer.step();
  seen.insert(seen.end(), {value(weights[0]), value(weights[1])});
  return seen;
}

/// Rank 0 has the inputs 1 to 4, rank 1 has 1 and 2, a third one none. The rate goes with the
/// number of the input.
Numbers rates_in_join(const ProcessGroup& group) {
  const auto model = std::make_shared<Factors>();
  DistributedDataParallel ddp(model, group);
  ZeroRedundancyOptimizer optimizer(group, model->parameters(), rate(1));
  const int inputs = group.rank() == 0 ? 4 : group.rank() == 1 ? 2 : 0;
  parallel::join({&ddp, &optimizer}, {}, [&] {
    for (int input = 1; input <= inputs; ++input) {
      optimizer.zero_grad();
      ddp.forward(at::full({1}, input, at::kDouble)).backward();
      optimizer.set_learning_rate(0.1 / input);
      optimizer.step();
    }
  });
  return {value(model->a), value(model->b)};
}

void add_spread_settings(TruthRows& rows) {
  rows.push_back(numbers_row("ZeroRedundancyOptimizer, a rate that rank 1 alone sets for a step",
                             always({0, 0, -0.5, -0.25}), &set_rate_on_rank_1));
  rows.push_back(refused_row("ZeroRedundancyOptimizer, momentum on rank 1 alone",
                             "where rank 1 has group 0: SGD with lr 1 (1, 0.9,",
                             [](const ProcessGroup& group) {
                               SgdOptions sgd = rate(1);
                               if (group.rank() == 1) sgd.momentum = 0.9;
                               ZeroRedundancyOptimizer(group, two_weights(), sgd).step();
                             }));
  // 0.1 (2 / 1 + 4 / 2 + 3 / 3 + 4 / 4), divided by the number of ranks.
  rows.push_back(numbers_row(
      "join() with ZeroRedundancyOptimizer, rates by the number of the input",
      [](int size) {
        return Numbers{1 - 0.6 / size, 1 - 0.6 / size};
      },
      &rates_in_join));
}

// ---- What modules are made with.

void add_module_settings(TruthRows& rows) {
  const std::pair<const char*, std::function<void(DdpOptions&)>> kinds[] = {
      {"bucket_bytes", [](DdpOptions& options) { options.bucket_bytes = 1; }},
      {"first_bucket_bytes", [](DdpOptions& options) { options.first_bucket_bytes = 1; }},
      {"unused_parameters",
       [](DdpOptions& options) { options.unused_parameters = parallel::UnusedParameters::kFound; }},
      {"buffers", [](DdpOptions& options) { options.buffers = parallel::BufferSync::kKept; }},
      {"communication hook",
       [](DdpOptions& options) { options.comm_hook = parallel::fp16_compress_hook(); }}};
  for (const auto& [name, change] : kinds) {
    rows.push_back(refused_row(absl::StrCat("rank 1 has another ", name), name,
                               [change = change](const ProcessGroup& group) {
                                 DdpOptions options;
                                 if (group.rank() == 1) change(options);
                                 DistributedDataParallel(std::make_shared<Factors>(), group,
                                                         options);
                               }));
  }
  const auto add_norm = [&rows](const char* name, const torch::nn::BatchNormOptions& of_rank_1) {
    rows.push_back(refused_row(
        absl::StrCat("SyncBatchNorm, another ", name, " on rank 1"),
        "rank 0 has eps 1e-05 and momentum 0.1, rank 1 ", [of_rank_1](const ProcessGroup& group) {
          SyncBatchNorm norm(group.rank() == 1 ? of_rank_1 : torch::nn::BatchNormOptions(2), group);
          norm->forward(at::rand({4, 2}));
        }));
  };
  add_norm("eps", torch::nn::BatchNormOptions(2).eps(0.1));
  add_norm("momentum", torch::nn::BatchNormOptions(2).momentum(0.5));
  add_norm("momentum, none,", torch::nn::BatchNormOptions(2).momentum(c10::nullopt));
}

// ---- Data.

/// Rank 0 begins its first epoch in that way, and then the others theirs. Empty: they are refused.
std::string begin_after_rank_0(const ProcessGroup& group, const DistributedSamplerOptions& options,
                               std::uint64_t epoch) {
  const bool is_first = group.rank() == 0;
  DistributedSampler sampler(10, group, is_first ? options : DistributedSamplerOptions());
  if (is_first) {
    sampler.set_epoch(epoch);
    sampler.reset();
  }
  group.barrier();
  return is_first ? "" : not_refused("rank 0 with 10 samples", [&] { sampler.reset(); });
}

/// All ranks begin two epochs alike, rank 0 both before the others begin any.
std::string begin_alike(const ProcessGroup& group) {
  DistributedSampler sampler(10, group);
  if (group.rank() != 0) group.barrier();
  for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
    sampler.set_epoch(epoch);
    sampler.reset();
  }
  if (group.rank() == 0) group.barrier();
  return "";
}

void add_data(TruthRows& rows) {
  const char* const right = "refused where it is not as on rank 0";
  DistributedSamplerOptions seeded;
  seeded.seed = 7;
  DistributedSamplerOptions uneven;
  uneven.remainder = parallel::Remainder::kUneven;
  const auto add = [&](const char* program, const DistributedSamplerOptions& options,
                       std::uint64_t epoch) {
    rows.push_back({program, right, [=](const ProcessGroup& group) {
                      return begin_after_rank_0(group, options, epoch);
                    }});
  };
  add("DistributedSampler, set_epoch() on rank 0 alone", {}, 1);
  add("DistributedSampler, a seed on rank 0 alone", seeded, 0);
  add("DistributedSampler, another remainder on rank 0", uneven, 0);
  rows.push_back({"DistributedSampler, rank 0 an epoch ahead", "no error", &begin_alike});
}

// ---- What nobody sees but by its effect: the next pass does.

using Step = std::function<void(const Pass& pass, const ProcessGroup& group)>;

/// Gradients that are the same on all ranks, and what one of them makes of them.
void step_twice(const ProcessGroup& group, Way way,
                const std::function<Step(const Factors& model)>& make_step) {
  const auto model = std::make_shared<Factors>();
  DistributedDataParallel ddp(model, group);
  const Step step = make_step(*model);
  for (int times = 0; times < 2; ++times) {
    const Pass pass(way);
    pass.backward(ddp.forward(odd(group)));
    step(pass, group);
  }
}

Step plain_step(const Factors& model) {
  return [optimizer = std::make_shared<torch::optim::SGD>(model.parameters(), 0.1)](
             const Pass&, const ProcessGroup& group) {
    auto& options = static_cast<torch::optim::SGDOptions&>(optimizer->param_groups()[0].options());
    if (group.rank() == 1) options.lr(0.2);
    optimizer->step();
  };
}

Step clipped_step(const Factors& model) {
  return [parameters = model.parameters(),
          optimizer = std::make_shared<torch::optim::SGD>(model.parameters(), 0.1)](
             const Pass&, const ProcessGroup& group) {
    torch::nn::utils::clip_grad_norm_(parameters, group.rank() == 1 ? 0.5 : 1);
    optimizer->step();
  };
}

Step distributed_step(const Factors& model) {
  return [optimizer = optim::DistributedOptimizer(parameter_rrefs(model), rate(0.1))](
             const Pass& pass, const ProcessGroup& group) {
    if (group.rank() == 1) optimizer.set_learning_rate(0.2);
    optimizer.step(pass.context());
  };
}

void add_steps(TruthRows& rows) {
  const auto add = [&rows](const char* program, Way way, Step (*step)(const Factors&)) {
    rows.push_back(refused_row(absl::StrCat(program, ", on rank 1 another one, then a pass"),
                               "data-parallel ranks have parted",
                               [=](const ProcessGroup& group) { step_twice(group, way, step); }));
  };
  add("the rate of LibTorch's SGD", Way::kPlain, &plain_step);
  add("the limit of LibTorch's clip_grad_norm_()", Way::kPlain, &clipped_step);
  add("the rate of a DistributedOptimizer", Way::kContext, &distributed_step);
}

// ---- Clipping.

/// Rank 1 clips otherwise; then all clip alike. Gradients of 2 and 2.
Numbers clip_otherwise(const ProcessGroup& group, double max_norm, const ClipGradOptions& how,
                       const std::string& named) {
  const auto model = std::make_shared<Factors>();
  DistributedDataParallel ddp(model, group);
  const auto parameters = parameter_rrefs(*model);
  const Pass pass(Way::kContext);
  pass.backward(ddp.forward(at::full({1}, 2, at::kDouble)));
  const bool is_other = group.rank() == 1;
  must_refuse(absl::StrCat("clip by different values: ", named), [&] {
    optim::clip_grad_norm_(pass.context(), parameters, is_other ? max_norm : 1,
                           is_other ? how : ClipGradOptions());
  });
  const Numbers before = {pass.gradient(model->a), pass.gradient(model->b)};
  ClipGradOptions by_sum;
  by_sum.norm_type = 1;
  const double norm = optim::clip_grad_norm_(pass.context(), parameters, 1, by_sum);
  return {before[0], before[1], norm, pass.gradient(model->a)};
}

void add_clipping(TruthRows& rows) {
  ClipGradOptions other_norm;
  other_norm.norm_type = 3;
  ClipGradOptions throws;
  throws.error_if_nonfinite = true;
  const auto add = [&rows](double max_norm, const ClipGradOptions& how, const char* named) {
    rows.push_back(numbers_row(absl::StrCat("clip_grad_norm_(), on rank 1 another ", named),
                               always({2, 2, 4, 2 / (4 + 1e-6)}), [=](const ProcessGroup& group) {
                                 return clip_otherwise(group, max_norm, how, named);
                               }));
  };
  add(0.5, {}, "max_norm is 0.5 to 1");
  add(1, other_norm, "norm_type is 2 to 3");
  add(1, throws, "error_if_nonfinite is 0 to 1");
}

}  // namespace

void add_settings(TruthRows& rows) {
  add_spread_settings(rows);
  add_module_settings(rows);
  add_steps(rows);
  add_data(rows);
  add_clipping(rows);
}

}  // namespace sinew::testing
