#include "sinew/parallel/internal/sync_batch_norm_function.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "ATen/Functions.h"
#include "ATen/TensorOperators.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sinew/rpc/base/error.h"

namespace sinew::parallel::internal {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct GroupHolder final : torch::CustomClassHolder {
  explicit GroupHolder(ProcessGroup a_group) : group(std::move(a_group)) {}
  const ProcessGroup group;
};

/// All dimensions but that of the channels.
std::vector<std::int64_t> reduced_dims(const at::Tensor& input) {
  std::vector<std::int64_t> dims{0};
  for (std::int64_t dim = 2; dim < input.dim(); ++dim) dims.push_back(dim);
  return dims;
}

/// As BatchNorm computes: half precision would lose small differences of large values.
at::Tensor to_wide(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? tensor : tensor.to(at::kFloat);
}

/// A value per channel, to be used with `input`.
at::Tensor per_channel(const at::Tensor& values, const at::Tensor& input) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(input.dim()), 1);
  sizes[1] = values.numel();
  return values.to(input.scalar_type()).view(sizes);
}

struct Statistics {
  // Per channel, in double.
  at::Tensor mean;
  at::Tensor variance;
  double count = 0;
};

// In addition to the means and sums of each rank: its count, and its settings.
constexpr std::int64_t kNumbersOfRank = 3;
constexpr double kNoMomentum = -1;

std::string text_of(const double* settings) {
  return absl::StrCat(
      "eps ", settings[0], " and ",
      settings[1] == kNoMomentum ? "no momentum" : absl::StrCat("momentum ", settings[1]));
}

void check_settings(const at::Tensor& numbers) {
  const double* const of_rank_0 = numbers.data_ptr<double>() + 1;
  for (std::int64_t rank = 1; rank < numbers.size(0); ++rank) {
    const double* const own = of_rank_0 + rank * kNumbersOfRank;
    if (std::equal(own, own + 2, of_rank_0)) continue;
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrFormat("the ranks of a SyncBatchNorm have different options: rank 0 "
                                   "has %s, rank %d %s",
                                   text_of(of_rank_0), rank, text_of(own)));
  }
}

/// [mean, sum of squared deviations, count, eps, momentum], in double.
at::Tensor local_statistics(const at::Tensor& input, double eps, double momentum) {
  const std::int64_t channels = input.size(1);
  const at::Tensor words =
      at::zeros({2 * channels + kNumbersOfRank}, input.options().dtype(at::kDouble));
  words[2 * channels + 1] = eps;
  words[2 * channels + 2] = momentum;
  if (input.numel() == 0) return words;
  const double count = static_cast<double>(input.numel()) / static_cast<double>(channels);
  const auto [variance, mean] =
      at::var_mean(to_wide(input), reduced_dims(input), /*unbiased=*/false);
  words.narrow(0, 0, channels).copy_(mean);
  words.narrow(0, channels, channels).copy_(variance).mul_(count);
  words.narrow(0, 2 * channels, 1).fill_(count);
  return words;
}

Statistics statistics_of_all(const ProcessGroup& group, const at::Tensor& input, double eps,
                             double momentum) {
  const std::int64_t channels = input.size(1);
  const at::Tensor own = local_statistics(input, eps, momentum);
  std::vector<at::Tensor> gathered;
  for (int rank = 0; rank < group.size(); ++rank) gathered.push_back(at::empty_like(own));
  group.all_gather(gathered, own);
  const at::Tensor all = at::stack(gathered);
  const at::Tensor means = all.narrow(1, 0, channels);
  const at::Tensor squares = all.narrow(1, channels, channels);
  const at::Tensor counts = all.narrow(1, 2 * channels, 1);
  Statistics result;
  const at::Tensor numbers = all.narrow(1, 2 * channels, kNumbersOfRank).cpu().contiguous();
  check_settings(numbers);
  result.count = numbers.select(1, 0).sum().item<double>();
  // Nothing at all, on any rank, is no mistake: there is nothing to normalise.
  const double divisor = std::max(result.count, 1.0);
  result.mean = (means * counts).sum(0) / divisor;
  result.variance = (squares + counts * (means - result.mean).pow(2)).sum(0) / divisor;
  return result;
}

class SyncBatchNormFunction final : public torch::autograd::Function<SyncBatchNormFunction> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& input,
                               const c10::optional<at::Tensor>& weight,
                               const c10::optional<at::Tensor>& bias,
                               const c10::intrusive_ptr<GroupHolder>& holder, double eps,
                               double momentum) {
    const Statistics all = statistics_of_all(holder->group, input, eps, momentum);
    if (all.count == 1) {
      throw RpcError(
          ErrorCode::kInvalidArgument,
          "SyncBatchNorm needs more than one value per channel in training, on all ranks "
          "together");
    }
    const at::Tensor inverse = (all.variance + eps).rsqrt();
    const at::Tensor wide = to_wide(input);
    at::Tensor output = (wide - per_channel(all.mean, wide)) * per_channel(inverse, wide);
    if (weight.has_value()) output.mul_(per_channel(*weight, wide));
    if (bias.has_value()) output.add_(per_channel(*bias, wide));
    output = output.to(input.scalar_type());

    context->save_for_backward({input, weight.value_or(at::Tensor()), all.mean, inverse});
    context->saved_data["group"] = c10::IValue::make_capsule(holder);
    context->saved_data["count"] = all.count;
    const std::int64_t known = all.count > 0 ? all.mean.numel() : 0;
    const at::Tensor mean = all.mean.narrow(0, 0, known).clone();
    const at::Tensor unbiased =
        all.variance.narrow(0, 0, known) * (all.count / std::max(all.count - 1, 1.0));
    context->mark_non_differentiable({mean, unbiased});
    return {output, mean, unbiased};
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& input = saved[0];
    const at::Tensor& weight = saved[1];
    const at::Tensor& mean = saved[2];
    const at::Tensor& inverse = saved[3];
    const at::Tensor gradient = to_wide(gradients[0]);
    const at::Tensor wide = to_wide(input);
    const std::int64_t channels = input.size(1);
    const std::vector<std::int64_t> dims = reduced_dims(input);
    const at::Tensor centred = wide - per_channel(mean, wide);

    const at::Tensor sum = gradient.sum(dims, false, at::kDouble);
    const at::Tensor product = (gradient * centred).sum(dims, false, at::kDouble);
    variable_list result(6);
    if (weight.defined()) {
      result[1] = (product * inverse).to(weight.scalar_type());
      result[2] = sum.to(weight.scalar_type());
    }
    const at::Tensor sums = at::cat({sum, product});
    const auto holder =
        c10::static_intrusive_pointer_cast<GroupHolder>(context->saved_data["group"].toCapsule());
    holder->group.all_reduce(sums);
    sums.div_(std::max(context->saved_data["count"].toDouble(), 1.0));
    at::Tensor scale = inverse;
    if (weight.defined()) scale = scale * weight;
    result[0] = (gradient - per_channel(sums.narrow(0, 0, channels), wide) -
                 centred * per_channel(sums.narrow(0, channels, channels) * inverse.pow(2), wide))
                    .mul_(per_channel(scale, wide))
                    .to(input.scalar_type());
    return result;
  }
};

}  // namespace

Normalised sync_batch_norm(const ProcessGroup& group, const at::Tensor& input,
                           const at::Tensor& weight, const at::Tensor& bias,
                           const NormSettings& settings) {
  const auto if_defined = [](const at::Tensor& tensor) {
    return tensor.defined() ? c10::make_optional(tensor) : c10::nullopt;
  };
  const variable_list results = SyncBatchNormFunction::apply(
      input, if_defined(weight), if_defined(bias), c10::make_intrusive<GroupHolder>(group),
      settings.eps, settings.momentum.value_or(kNoMomentum));
  return {results[0], results[1], results[2]};
}

}  // namespace sinew::parallel::internal
