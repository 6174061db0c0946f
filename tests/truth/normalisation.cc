#include <torch/nn.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "sinew/parallel/distributed_data_parallel.h"
#include "sinew/parallel/sync_batch_norm.h"
#include "sinew/tests/truth/programs.h"

namespace sinew::testing {
namespace {

using parallel::DistributedDataParallel;
using parallel::sync_batch_norm;
using parallel::SyncBatchNorm;

// ---- Statistics of each rank, copied between forward() and backward().

class Normalised : public torch::nn::Module {
 public:
  Normalised() {
    linear = register_module("linear", torch::nn::Linear(2, 3));
    norm = register_module("norm", torch::nn::BatchNorm1d(3));
    to(at::kDouble);
    const at::AutoGradMode no_grad(false);
    for (const at::Tensor& parameter : parameters()) {
      parameter.copy_(at::arange(parameter.numel(), at::kDouble).add(1).sin().view_as(parameter));
    }
  }
  at::Tensor forward(const at::Tensor& input) {
    return norm->forward(linear->forward(input)).pow(3);
  }
  torch::nn::Linear linear{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};

at::Tensor rows_of(int rank, int call) {
  return at::arange(8, at::kDouble).mul(1.7).add(call + 3 * rank).sin().view({4, 2});
}

enum class Between { kForward, kEvaluation, kSync };

/// One process: the mean of what each rank's rows give alone.
Right mean_of_ranks(Between between) {
  return [between](int size) {
    Normalised model;
    for (int rank = 0; rank < size; ++rank) {
      at::Tensor sum = model.forward(rows_of(rank, 0)).sum();
      if (between == Between::kForward) sum = sum + model.forward(rows_of(rank, 1)).sum();
      (sum / size).backward();
    }
    Numbers gradients;
    for (const at::Tensor& one : model.parameters()) gradients.push_back(value(one.grad().sum()));
    return gradients;
  };
}

Numbers copy_statistics(const ProcessGroup& group, Way way, Between between) {
  const auto model = std::make_shared<Normalised>();
  DistributedDataParallel ddp(model, group);
  const Pass pass(way);
  at::Tensor sum = ddp.forward(rows_of(group.rank(), 0)).sum();
  if (between == Between::kForward) sum = sum + ddp.forward(rows_of(group.rank(), 1)).sum();
  if (between == Between::kSync) ddp.sync_buffers();
  if (between == Between::kEvaluation) {
    const at::AutoGradMode no_grad(false);
    model->eval();
    ddp.forward(rows_of(group.rank(), 2));
    model->train();
  }
  pass.backward(sum);
  Numbers gradients;
  for (const at::Tensor& one : model->parameters()) {
    const at::Tensor gradient =
        way == Way::kPlain ? one.grad() : autograd::gradient_of(pass.context(), one);
    gradients.push_back(value(gradient.sum()));
  }
  return gradients;
}

// ---- Statistics over all ranks.

/// Rows of a batch in which rank r has 2 + 3 r, or the last rank none.
class Batch {
 public:
  Batch(const ProcessGroup& group, bool last_has_none) {
    for (int rank = 0; rank < group.size(); ++rank) {
      const std::int64_t rows = last_has_none && rank + 1 == group.size() ? 0 : 2 + 3 * rank;
      if (rank == group.rank()) own_ = {all_, all_ + rows};
      all_ += rows;
    }
  }
  at::Tensor whole(double offset) const {
    return at::arange(all_ * 12, at::kDouble).mul(1.3).add(offset).sin().view({all_, 3, 4});
  }
  at::Tensor own(const at::Tensor& whole) const {
    return whole.slice(0, own_.first, own_.second).clone();
  }

 private:
  std::int64_t all_ = 0;
  std::pair<std::int64_t, std::int64_t> own_;
};

/// Empty, or how far it is from `right`, whose largest element is `scale`.
std::string too_far(const char* what, const at::Tensor& tensor, const at::Tensor& right,
                    double precision, double scale) {
  if (tensor.numel() == 0) return "";
  const double off = (tensor.to(at::kFloat) - right).abs().max().item<double>();
  return off <= precision * scale ? "" : absl::StrCat(what, " is ", off, " off");
}

/// Against BatchNorm of the whole batch in float, which is what one process computes with.
std::string in_half(const ProcessGroup& group, at::ScalarType type, double around,
                    bool last_has_none) {
  const Batch batch(group, last_has_none);
  const at::Tensor whole = batch.whole(0.1).mul(around / 16).add(around).to(type);
  const at::Tensor weights = batch.whole(7).to(type);
  torch::nn::BatchNorm1d plain(torch::nn::BatchNormOptions(3));
  SyncBatchNorm sync = sync_batch_norm(plain, group);
  const at::Tensor wide = whole.to(at::kFloat).requires_grad_();
  const at::Tensor part = batch.own(whole).requires_grad_();
  const at::Tensor right = plain->forward(wide);
  const at::Tensor output = sync->forward(part);
  (right * weights.to(at::kFloat)).sum().backward();
  output.backward(batch.own(weights));
  // Of the type: ten digits of two, or seven.
  const double precision = type == at::kHalf ? 1.0 / 1024 : 1.0 / 128;
  const double steepest = wide.grad().abs().max().item<double>();
  for (const std::string& problem :
       {too_far("the output", output, batch.own(right), precision, 4),
        too_far("the gradient", part.grad(), batch.own(wide.grad()), precision, steepest),
        too_far("the mean", sync->running_mean, plain->running_mean, 1e-5, around),
        too_far("the variance", sync->running_var, plain->running_var, 1e-3, around * around)}) {
    if (!problem.empty()) return problem;
  }
  return "";
}

}  // namespace

void add_normalisation(TruthRows& rows) {
  const std::pair<const char*, Between> kinds[] = {{"a second forward", Between::kForward},
                                                   {"an evaluation", Between::kEvaluation},
                                                   {"sync_buffers()", Between::kSync}};
  for (const auto& [name, between] : kinds) {
    add_numbers(rows, absl::StrCat("BatchNorm, ", name, " between forward and backward"),
                mean_of_ranks(between), [between = between](const ProcessGroup& group, Way way) {
                  return copy_statistics(group, way, between);
                });
  }
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    for (const double around : {1.0, 100.0, 1000.0}) {
      for (const bool last_has_none : {false, true}) {
        rows.push_back({absl::StrCat("SyncBatchNorm in ", c10::toString(type), " around ", around,
                                     last_has_none ? ", no rows on the last rank" : ""),
                        "BatchNorm of the whole batch in float", [=](const ProcessGroup& group) {
                          return in_half(group, type, around, last_has_none);
                        }});
      }
    }
  }
}

}  // namespace sinew::testing
