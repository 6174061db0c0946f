#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "sinew/optim/clip_grad.h"
#include "sinew/optim/grad_scaler.h"
#include "sinew/parallel/checkpoint.h"
#include "sinew/parallel/distributed_data_parallel.h"
#include "sinew/parallel/zero_redundancy_optimizer.h"
#include "sinew/tests/truth/programs.h"

namespace truthapp {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// A row for each trainer, at the server.
class Rows {
 public:
  Rows() : weight_(at::ones({4, 1}, at::kDouble).requires_grad_()) {}
  at::Tensor look_up(int row) const { return weight_.select(0, row); }
  sinew::RRef<at::Tensor> weight() const { return sinew::make_rref(weight_); }
  double value(int row) const { return weight_.detach().select(0, row).item<double>(); }

 private:
  const at::Tensor weight_;
};

/// No input of a function.
struct Held {
  at::Tensor tensor;
};

/// Computes once more in its backward(), as PyTorch's own checkpointing does: gradients of
/// parameters come by the way.
struct Checkpointed : torch::autograd::Function<Checkpointed> {
  static variable_list forward(AutogradContext* context, const at::Tensor& input,
                               const Held& weight) {
    context->saved_data["weight"] = weight.tensor;
    context->save_for_backward({input});
    return {input * weight.tensor};
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::AutoGradMode with_gradients(true);
    const at::Tensor input = context->get_saved_variables()[0].detach().requires_grad_();
    const at::Tensor weight = context->saved_data["weight"].toTensor();
    torch::autograd::backward({input * weight}, {gradients[0]});
    return {input.grad(), at::Tensor()};
  }
};

at::Tensor checkpointed(const at::Tensor& input) {
  static const at::Tensor& weight = *new at::Tensor(at::full({1}, 3, at::kDouble).requires_grad_());
  return Checkpointed::apply(input, Held{weight})[0];
}

}  // namespace truthapp

SINEW_SERVICE(truthapp::Rows, (), look_up, weight, value);
SINEW_METHOD(truthapp::checkpointed);

namespace sinew::testing {
namespace {

using optim::clip_grad_norm_;
using optim::ClipGradOptions;
using optim::DistributedOptimizer;
using optim::GradScaler;
using optim::GradScalerOptions;
using parallel::DistributedDataParallel;
using parallel::ZeroRedundancyOptimizer;
using truthapp::Rows;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kRate = 0.5;

Peer server() { return current_worker().peer("server"); }

/// An embedding at the server with a row for each trainer, and a dense part, whose weights are 1.
class Shared {
 public:
  explicit Shared(const ProcessGroup& group)
      : rank_(group.rank()), rows_(server().remote<Rows>()), ddp_(one_weight(), group) {
    parameters_ = {rows_.call<&Rows::weight>(), make_rref(at::Tensor(ddp_.module()->weight))};
  }

  /// Its gradients: `of_row` for this rank's row, and the mean of the ranks' `of_dense`.
  at::Tensor loss(double of_row, double of_dense) {
    const at::Tensor row = rows_.call<&Rows::look_up>(rank_);
    return row.sum() * of_row + ddp_.forward(at::full({1, 1}, of_dense, at::kDouble)).sum();
  }
  DistributedOptimizer optimizer() const { return sgd(parameters_); }
  /// Of the embedding, 0, or of the dense part, 1.
  DistributedOptimizer optimizer(std::size_t part) const { return sgd({parameters_[part]}); }
  const std::vector<RRef<at::Tensor>>& parameters() const { return parameters_; }
  double dense() const { return value(ddp_.module()->weight); }
  double row() const { return rows_.call<&Rows::value>(rank_); }
  DistributedDataParallel<torch::nn::LinearImpl>& ddp() { return ddp_; }

 private:
  static DistributedOptimizer sgd(const std::vector<RRef<at::Tensor>>& parameters) {
    optim::SgdOptions options;
    options.lr = kRate;
    return DistributedOptimizer(parameters, options);
  }
  static torch::nn::Linear one_weight() {
    torch::nn::Linear net(torch::nn::LinearOptions(1, 1).bias(false));
    net->to(at::kDouble);
    net->weight.variable_data().fill_(1);
    return net;
  }

  const int rank_;
  const RRef<Rows> rows_;
  DistributedDataParallel<torch::nn::LinearImpl> ddp_;
  std::vector<RRef<at::Tensor>> parameters_;
};

// ---- Norms.

/// The norm, and the dense weight after a step. The embedding's gradients are 100 at rank 0,
/// `others` at the others; the dense one is 2.
Numbers clip(const ProcessGroup& group, double others, const ClipGradOptions& how) {
  Shared shared(group);
  const DistributedOptimizer sgd = shared.optimizer();
  const autograd::Context context;
  autograd::backward(context, {shared.loss(group.rank() == 0 ? 100 : others, 2)});
  const double norm = clip_grad_norm_(context, shared.parameters(), 1, how);
  sgd.step(context);
  return {norm, shared.dense()};
}

void add_norms(TruthRows& rows) {
  for (const double type : {1.0, 2.0, kInf}) {
    const double norm = std::isinf(type) ? 100 : type == 1 ? 102 : std::hypot(100, 2);
    ClipGradOptions how;
    how.norm_type = type;
    rows.push_back(
        numbers_row(absl::StrCat("clip_grad_norm_() of embeddings and a dense part, norm ", type),
                    always({norm, 1 - kRate * 2 / (norm + 1e-6)}),
                    [how](const ProcessGroup& group) { return clip(group, 0.1, how); }));
    rows.push_back(numbers_row(absl::StrCat("the same, infinite on rank 1, norm ", type),
                               always({kInf, 1}), [how](const ProcessGroup& group) {
                                 return clip(group, group.rank() == 1 ? kInf : 0.1, how);
                               }));
    how.error_if_nonfinite = true;
    for (const double fault : {kInf, std::nan("")}) {
      rows.push_back(refused_row(
          absl::StrCat("the same, ", fault, " on rank 1, error_if_nonfinite, norm ", type),
          "cannot be clipped on any rank",
          [=](const ProcessGroup& group) { clip(group, group.rank() == 1 ? fault : 0.1, how); }));
    }
  }
  rows.push_back(numbers_row(
      "rank 0 clips its embedding alone", always({100, 2}), [](const ProcessGroup& group) {
        Shared shared(group);
        const autograd::Context context;
        autograd::backward(context, {shared.loss(group.rank() == 0 ? 100 : 0.1, 2)});
        const std::vector<RRef<at::Tensor>> embedding = {shared.parameters()[0]};
        const at::Tensor sum = at::full(
            {1}, group.rank() == 0 ? clip_grad_norm_(context, embedding, 1) : 0, at::kDouble);
        group.all_reduce(sum);
        return Numbers{value(sum),
                       value(autograd::gradient_of(context, shared.ddp().module()->weight))};
      }));
  rows.push_back(refused_row("rank 0 clips where the others unscale",
                             "all ranks clip and unscale in the same order",
                             [](const ProcessGroup& group) {
                               Shared shared(group);
                               const DistributedOptimizer sgd = shared.optimizer();
                               GradScaler scaler;
                               const autograd::Context context;
                               autograd::backward(context, {scaler.scale(shared.loss(1, 2))});
                               if (group.rank() == 0) {
                                 clip_grad_norm_(context, shared.parameters(), 1);
                               } else {
                                 scaler.unscale_(sgd, context);
                               }
                             }));
}

// ---- Scales.

enum class Clipping { kNone, kToOne };

bool scaled_step(Shared& shared, GradScaler& scaler, const DistributedOptimizer& sgd, double of_row,
                 Clipping clipping = Clipping::kNone) {
  const autograd::Context context;
  autograd::backward(context, {scaler.scale(shared.loss(of_row, 2))});
  if (clipping == Clipping::kToOne) {
    scaler.unscale_(sgd, context);
    clip_grad_norm_(context, shared.parameters(), 1);
  }
  const bool applied = scaler.step(sgd, context).has_value();
  scaler.update();
  return applied;
}

/// Of five steps, of which rank 1 has an infinity in the second one: whether each was applied, and
/// the scale behind it; then the dense weight.
Numbers one_infinity(const ProcessGroup& group) {
  Shared shared(group);
  const DistributedOptimizer sgd = shared.optimizer();
  GradScalerOptions options;
  options.init_scale = 8;
  options.growth_interval = 2;
  GradScaler scaler(options);
  Numbers seen;
  for (int step = 0; step < 5; ++step) {
    const bool fails = step == 1 && group.rank() == 1;
    seen.push_back(scaled_step(shared, scaler, sgd, fails ? kInf : 1) ? 1 : 0);
    seen.push_back(scaler.get_scale());
  }
  seen.push_back(shared.dense());
  seen.push_back(shared.row());
  return seen;
}

/// An optimizer of the embedding decides by itself, as each does; the scale is one. How many ranks
/// have stepped their embeddings, whether the dense part was stepped, what it is then, the scale.
Numbers optimizers_by_themselves(const ProcessGroup& group) {
  Shared shared(group);
  const DistributedOptimizer of_row = shared.optimizer(0);
  const DistributedOptimizer of_dense = shared.optimizer(1);
  GradScaler scaler;
  const autograd::Context context;
  autograd::backward(context, {scaler.scale(shared.loss(group.rank() == 1 ? kInf : 1, 2))});
  const at::Tensor stepped = at::full({1}, scaler.step(of_row, context) ? 1 : 0, at::kDouble);
  const bool dense_is_stepped = scaler.step(of_dense, context).has_value();
  scaler.update();
  group.all_reduce(stepped);
  return {value(stepped), dense_is_stepped ? 1.0 : 0.0, shared.dense(), scaler.get_scale()};
}

/// Rank 1 runs out of inputs after the first of three steps, and rank 0 has an infinity in the
/// second one. Then two steps of all: the one that rank 1 has missed costs the first of them.
Numbers infinity_without_inputs(const ProcessGroup& group) {
  Shared shared(group);
  const DistributedOptimizer sgd = shared.optimizer();
  GradScalerOptions options;
  options.init_scale = 8;
  GradScaler scaler(options);
  parallel::join({&shared.ddp()}, {}, [&] {
    for (int step = 0; step < (group.rank() == 1 ? 1 : 3); ++step) {
      scaled_step(shared, scaler, sgd, step == 1 && group.rank() == 0 ? kInf : 0, Clipping::kToOne);
    }
  });
  Numbers seen = {shared.dense()};
  for (int step = 0; step < 2; ++step) {
    seen.push_back(scaled_step(shared, scaler, sgd, 1) ? 1 : 0);
    seen.push_back(scaler.get_scale());
  }
  return seen;
}

void add_scales(TruthRows& rows) {
  rows.push_back(numbers_row(
      "GradScaler, infinite on rank 1 in the second of five steps",
      always({1, 8, 0, 4, 1, 4, 1, 8, 1, 8, 1 - 4 * kRate * 2, 1 - 4 * kRate}), &one_infinity));
  rows.push_back(numbers_row("GradScaler, scales of 16 and 4", always({0, 4, 1, 4, 1 - kRate * 2}),
                             [](const ProcessGroup& group) {
                               Shared shared(group);
                               const DistributedOptimizer sgd = shared.optimizer();
                               GradScalerOptions options;
                               options.init_scale = group.rank() == 0 ? 16 : 4;
                               GradScaler scaler(options);
                               Numbers seen;
                               for (int step = 0; step < 2; ++step) {
                                 seen.push_back(scaled_step(shared, scaler, sgd, 1) ? 1 : 0);
                                 seen.push_back(scaler.get_scale());
                               }
                               seen.push_back(shared.dense());
                               return seen;
                             }));
  rows.push_back(numbers_row(
      "GradScaler, optimizers of the embedding and the dense part",
      [](int size) {
        return Numbers{size - 1.0, 1, 1 - kRate * 2, 32768};
      },
      &optimizers_by_themselves));
  rows.push_back(numbers_row(
      "GradScaler and clipping in join(), infinite on rank 0 when rank 1 has no inputs",
      [](int size) {
        // The dense gradients 2 and, without rank 1, 1 or 4 / 3, clipped to a norm of 1.
        const double third = 2 * (size - 1.0) / size;
        const double clipped = third / std::max(1.0, third + 1e-6);
        return Numbers{1 - kRate * (2 / (2 + 1e-6) + clipped), 0, 4, 1, 4};
      },
      &infinity_without_inputs));
}

// ---- Tied weights.

const char* const kTied = "a weight that modules share is given once";

class Tied : public torch::nn::Module {
 public:
  Tied() {
    weight = register_parameter("weight", at::full({1}, 3, at::kDouble));
    register_parameter("tied", weight);
  }
  at::Tensor forward(const at::Tensor& input) { return input * weight * weight; }
  at::Tensor weight;
};

/// The gradient 6 of a weight of 3, its norm, and the weight after a step of 0.5 that was clipped
/// to a norm of 1.
Numbers tied_once(const ProcessGroup& group) {
  const auto model = std::make_shared<Tied>();
  DistributedDataParallel ddp(model, group);
  const auto parameters = parameter_rrefs(*model);
  optim::SgdOptions sgd;
  sgd.lr = kRate;
  const DistributedOptimizer optimizer(parameters, sgd);
  const autograd::Context context;
  autograd::backward(context, {ddp.forward(odd(group, 1.0 / group.size()))});
  const double gradient = value(autograd::gradient_of(context, model->weight));
  const double norm = clip_grad_norm_(context, parameters, 1);
  optimizer.step(context);
  return {gradient, norm, value(model->weight)};
}

void add_tied(TruthRows& rows) {
  rows.push_back(numbers_row("tied weights by parameter_rrefs()",
                             always({6, 6, 3 - kRate * 6 / (6 + 1e-6)}), &tied_once));
  add_numbers(rows, "tied weights under DistributedDataParallel", times_size({6}),
              [](const ProcessGroup& group, Way way) {
                const auto model = std::make_shared<Tied>();
                DistributedDataParallel ddp(model, group);
                const Pass pass(way);
                pass.backward(ddp.forward(odd(group)));
                return Numbers{pass.gradient(model->weight)};
              });
  const auto twice = [](const Tied& model) {
    const auto weight = make_rref(model.weight);
    return std::vector<RRef<at::Tensor>>{weight, weight};
  };
  rows.push_back(
      refused_row("a weight twice in clip_grad_norm_()", kTied, [twice](const ProcessGroup&) {
        const Tied model;
        const autograd::Context context;
        clip_grad_norm_(context, twice(model), 1);
      }));
  rows.push_back(
      refused_row("a weight twice in DistributedOptimizer", kTied, [twice](const ProcessGroup&) {
        const Tied model;
        DistributedOptimizer(twice(model), optim::SgdOptions());
      }));
  rows.push_back(refused_row(
      "a weight twice in ZeroRedundancyOptimizer", kTied, [](const ProcessGroup& group) {
        const Tied model;
        ZeroRedundancyOptimizer(group, {model.weight, model.weight}, optim::SgdOptions());
      }));
}

// ---- A backward() within a backward().

class Checkpointing : public torch::nn::Module {
 public:
  Checkpointing() {
    first = register_parameter("first", at::ones({1}, at::kDouble));
    second = register_parameter("second", at::full({1}, 3, at::kDouble));
  }
  at::Tensor forward(const at::Tensor& input) {
    return truthapp::Checkpointed::apply(input * first, truthapp::Held{second})[0];
  }
  at::Tensor first;
  at::Tensor second;
};

Numbers checkpoint(const ProcessGroup& group, Way way) {
  const auto model = std::make_shared<Checkpointing>();
  DistributedDataParallel ddp(model, group);
  const Pass pass(way);
  pass.backward(ddp.forward(odd(group)));
  return {pass.gradient(model->first), pass.gradient(model->second)};
}

/// The same by checkpoint().
class CheckpointingPart : public Checkpointing {
 public:
  at::Tensor forward(const at::Tensor& input) {
    sinew::parallel::CheckpointOptions uses;
    uses.parameters = {second};
    return sinew::parallel::checkpoint(
        uses, [this](const at::Tensor& x) { return x * second; }, input * first);
  }
};

Numbers checkpointed_part(const ProcessGroup& group, Way way) {
  const auto model = std::make_shared<CheckpointingPart>();
  DistributedDataParallel ddp(model, group);
  const Pass pass(way);
  pass.backward(ddp.forward(odd(group)));
  return {pass.gradient(model->first), pass.gradient(model->second)};
}

void add_inner_backward(TruthRows& rows) {
  add_numbers(rows, "a layer by checkpoint()", times_size({3, 1}), checkpointed_part);
  rows.push_back(
      numbers_row("a checkpointed layer", times_size({3, 1}),
                  [](const ProcessGroup& group) { return checkpoint(group, Way::kPlain); }));
  const char* const refused = "Call torch::autograd::grad()";
  rows.push_back(refused_row(in(Way::kContext, "a checkpointed layer"), refused,
                             [](const ProcessGroup& group) { checkpoint(group, Way::kContext); }));
  rows.push_back(refused_row(
      "a layer that is checkpointed at the server, in contexts", refused, [](const ProcessGroup&) {
        const at::Tensor mine = at::ones({1}, at::kDouble).requires_grad_();
        const autograd::Context context;
        autograd::backward(context, {server().call<&truthapp::checkpointed>(mine)});
      }));
}

// ---- What is in a pass, and what state has.

/// The server's row and the dense weight after a step whose look-up came before the context.
Numbers look_up_too_early(const ProcessGroup& group) {
  const RRef<Rows> rows = server().remote<Rows>();
  const at::Tensor mine = at::ones({1}, at::kDouble).requires_grad_();
  optim::SgdOptions sgd;
  sgd.lr = kRate;
  const DistributedOptimizer optimizer({rows.call<&Rows::weight>(), make_rref(mine)}, sgd);
  const at::Tensor early = rows.call<&Rows::look_up>(group.rank());
  const autograd::Context context;
  autograd::backward(context, {(early * mine).sum()});
  ::testing::internal::CaptureStderr();
  const auto report = optimizer.step(context);
  const std::string said = ::testing::internal::GetCapturedStderr();
  const bool is_named = said.find("nothing of owner 'server' is in the pass") != std::string::npos;
  return {is_named ? 1.0 : 0.0, static_cast<double>(report.owners.at(0).updated),
          rows.call<&Rows::value>(group.rank()), value(mine)};
}

/// The text of rank 0, at all ranks.
std::string from_rank_0(const ProcessGroup& group, std::string text) {
  const at::Tensor size = at::full({1}, static_cast<std::int64_t>(text.size()), at::kLong);
  group.broadcast(size, 0);
  const at::Tensor bytes = at::empty({size.item<std::int64_t>()}, at::kByte);
  if (group.rank() == 0) std::memcpy(bytes.data_ptr(), text.data(), text.size());
  group.broadcast(bytes, 0);
  return std::string(static_cast<const char*>(bytes.data_ptr()), bytes.nbytes());
}

/// Two steps with a rate of 0.1, a momentum of 0.9 and the gradient 1; a third one by an optimizer
/// that was made with other options, and has loaded the state.
Numbers resume(const ProcessGroup& group) {
  const std::vector<at::Tensor> weights = {at::zeros({1}, at::kDouble).requires_grad_(),
                                           at::zeros({1}, at::kDouble).requires_grad_()};
  for (const at::Tensor& weight : weights) weight.mutable_grad() = at::ones({1}, at::kDouble);
  optim::SgdOptions sgd;
  sgd.lr = 0.1;
  sgd.momentum = 0.9;
  ZeroRedundancyOptimizer first(group, weights, sgd);
  first.step();
  first.step();
  const std::string state = from_rank_0(group, first.save(0));
  optim::SgdOptions others;
  others.lr = 1;
  others.weight_decay = 0.5;
  ZeroRedundancyOptimizer second(group, weights, others);
  second.load(state);
  second.step();
  return {value(weights[0]), value(weights[1])};
}

}  // namespace

void add_optimizers(TruthRows& rows) {
  add_norms(rows);
  add_scales(rows);
  add_tied(rows);
  add_inner_backward(rows);
  rows.push_back(numbers_row("a look-up before autograd::Context, then backward and step",
                             always({1, 0, 1, 0.5}), &look_up_too_early));
  // 0.1 (1 + 1.9 + 2.71).
  rows.push_back(numbers_row("state loaded into an optimizer with other options",
                             always({-0.561, -0.561}), &resume));
}

MethodTable served() {
  return serve<Rows>().add<&truthapp::checkpointed>().add<&truthapp::take_turn>();
}

}  // namespace sinew::testing
