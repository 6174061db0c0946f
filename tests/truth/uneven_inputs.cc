#include <torch/nn.h>
#include <torch/optim.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "sinew/parallel/distributed_data_parallel.h"
#include "sinew/parallel/zero_redundancy_optimizer.h"
#include "sinew/tests/truth/programs.h"

namespace sinew::testing {
namespace {

using parallel::DistributedDataParallel;
using parallel::join;
using parallel::JoinDivision;
using parallel::JoinOptions;
using parallel::ZeroRedundancyOptimizer;

constexpr double kRate = 0.1;

/// Two layers with the weight 0, of which each is another rank's part of a
/// ZeroRedundancyOptimizer: the gradient of each is the input.
class Layers : public torch::nn::Module {
 public:
  Layers() {
    first = register_parameter("first", at::zeros({1}, at::kDouble));
    second = register_parameter("second", at::zeros({1}, at::kDouble));
  }
  at::Tensor forward(const at::Tensor& input) { return (first + second) * input; }
  Numbers weights() const { return {value(first), value(second)}; }
  at::Tensor first;
  at::Tensor second;
};

at::Tensor filled(double number) { return at::full({1}, number, at::kDouble); }

/// Rank 0 has the inputs 1 to 4, rank 1 has 1 and 2, a third one none.
int inputs_of(int rank) { return rank == 0 ? 4 : rank == 1 ? 2 : 0; }

/// The means of the gradients of an epoch, where ranks without inputs count as zeros.
Numbers means(int size) { return {2.0 / size, 4.0 / size, 3.0 / size, 4.0 / size}; }

/// One process: a weight of 0 after these gradients, `epochs` times.
template <class Optimizer, class Options>
Right trained(const std::function<Numbers(int size)>& gradients, const Options& options,
              int epochs) {
  return [=](int size) {
    const at::Tensor weight = at::zeros({1}, at::kDouble).requires_grad_();
    Optimizer optimizer(std::vector<at::Tensor>{weight}, options);
    for (int epoch = 0; epoch < epochs; ++epoch) {
      for (const double gradient : gradients(size)) {
        weight.mutable_grad() = filled(gradient);
        optimizer.step();
      }
    }
    return Numbers{value(weight), value(weight)};
  };
}

// ---- An optimizer that is spread.

struct Training {
  optim::Options options;
  int epochs = 1;
  bool accumulates = false;
};

Numbers spread(const ProcessGroup& group, Way way, const Training& training) {
  const auto model = std::make_shared<Layers>();
  DistributedDataParallel ddp(model, group);
  ZeroRedundancyOptimizer optimizer(group, model->parameters(), training.options);
  for (int epoch = 0; epoch < training.epochs; ++epoch) {
    join({&ddp, &optimizer}, {}, [&] {
      for (int input = 1; input <= inputs_of(group.rank()); ++input) {
        optimizer.zero_grad();
        const Pass pass(way);
        if (training.accumulates) {
          const auto scope = ddp.no_sync();
          pass.backward(ddp.forward(filled(input)));
        }
        pass.backward(ddp.forward(filled(input)));
        if (way == Way::kPlain) {
          optimizer.step();
        } else {
          optimizer.step(pass.context());
        }
      }
    });
  }
  return model->weights();
}

void add_spread(TruthRows& rows) {
  optim::SgdOptions sgd;
  sgd.lr = kRate;
  const auto add = [&](const char* program, const Right& right, const Training& training) {
    add_numbers(
        rows, absl::StrCat("join() with ZeroRedundancyOptimizer, ", program), right,
        [training](const ProcessGroup& group, Way way) { return spread(group, way, training); });
  };
  add("SGD",
      [](int size) {
        return size == 2 ? Numbers{-0.65, -0.65} : Numbers{-1.3 / 3, -1.3 / 3};
      },
      {sgd});
  add("accumulation",
      [](int size) {
        return size == 2 ? Numbers{-1.3, -1.3} : Numbers{-2.6 / 3, -2.6 / 3};
      },
      {sgd, 1, true});
  optim::SgdOptions momentum = sgd;
  momentum.momentum = 0.9;
  add("momentum, two epochs",
      trained<torch::optim::SGD>(&means, torch::optim::SGDOptions(kRate).momentum(0.9), 2),
      {momentum, 2});
  optim::AdamOptions adam;
  adam.lr = kRate;
  add("Adam, two epochs", trained<torch::optim::Adam>(&means, torch::optim::AdamOptions(kRate), 2),
      {adam, 2});
}

// ---- An optimizer of each rank's own.

/// Steps what a pass has brought: LibTorch's, or of the context.
class OwnSgd {
 public:
  OwnSgd(Way way, const torch::nn::Module& model, double momentum)
      : plain_(model.parameters(), torch::optim::SGDOptions(kRate).momentum(momentum)) {
    if (way == Way::kPlain) return;
    optim::SgdOptions options;
    options.lr = kRate;
    options.momentum = momentum;
    of_contexts_.emplace(parameter_rrefs(model), options);
  }
  void zero_grad() { plain_.zero_grad(); }
  void step(const Pass& pass) {
    if (of_contexts_) {
      of_contexts_->step(pass.context());
    } else {
      plain_.step();
    }
  }

 private:
  torch::optim::SGD plain_;
  std::optional<optim::DistributedOptimizer> of_contexts_;
};

void train(DistributedDataParallel<Layers>& ddp, OwnSgd& optimizer, Way way, int inputs) {
  for (int input = 1; input <= inputs; ++input) {
    optimizer.zero_grad();
    const Pass pass(way);
    pass.backward(ddp.forward(filled(input)));
    optimizer.step(pass);
  }
}

/// In the second epoch all ranks have `steps` inputs.
Numbers two_epochs(const ProcessGroup& group, Way way, double momentum, int steps) {
  const auto model = std::make_shared<Layers>();
  DistributedDataParallel ddp(model, group);
  OwnSgd optimizer(way, *model, momentum);
  join({&ddp}, {}, [&] { train(ddp, optimizer, way, inputs_of(group.rank())); });
  train(ddp, optimizer, way, steps);
  return model->weights();
}

Numbers join_once(const ProcessGroup& group, Way way, const JoinOptions& options) {
  const auto model = std::make_shared<Layers>();
  DistributedDataParallel ddp(model, group);
  OwnSgd optimizer(way, *model, 0);
  join({&ddp}, options, [&] { train(ddp, optimizer, way, inputs_of(group.rank())); });
  return model->weights();
}

void add_own(TruthRows& rows) {
  add_numbers(
      rows, "join(), SGD, a second epoch of 1 and 2",
      [](int size) {
        return size == 2 ? Numbers{-0.95, -0.95} : Numbers{-1.3 / 3 - 0.3, -1.3 / 3 - 0.3};
      },
      [](const ProcessGroup& group, Way way) { return two_epochs(group, way, 0, 2); });
  add_refused(rows, "join(), momentum of each rank, a second epoch",
              "data-parallel ranks have parted",
              [](const ProcessGroup& group, Way way) { two_epochs(group, way, 0.9, 2); });
  JoinOptions by_active;
  by_active.division = JoinDivision::kEffectiveWorldSize;
  add_numbers(
      rows, "join(), divided by those who have inputs", always({-1, -1}),
      [by_active](const ProcessGroup& group, Way way) { return join_once(group, way, by_active); });
  JoinOptions first_ends;
  first_ends.early_termination = parallel::EarlyTermination::kThrow;
  add_refused(
      rows, "join(), the first one without inputs ends it",
      "no inputs left, which ends the loop on all ranks",
      [first_ends](const ProcessGroup& group, Way way) { join_once(group, way, first_ends); });
  add_refused(rows, "join(), rank 0 evaluates where the others train",
              "reduce gradients in this step", [](const ProcessGroup& group, Way way) {
                const auto model = std::make_shared<Layers>();
                DistributedDataParallel ddp(model, group);
                join({&ddp}, {}, [&] {
                  const at::AutoGradMode grad(group.rank() != 0);
                  const Pass pass(way);
                  ddp.forward(filled(1));
                });
              });
}

}  // namespace

void add_uneven_inputs(TruthRows& rows) {
  add_spread(rows);
  add_own(rows);
}

}  // namespace sinew::testing
