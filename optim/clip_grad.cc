#include "sinew/optim/clip_grad.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_format.h"
#include "sinew/optim/internal/gradient_norms.h"
#include "sinew/optim/internal/owned_tensors.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/call.h"

namespace sinew::optim {

using internal::OwnedTensors;

namespace {

void check(double max_norm, double norm_type) {
  if (std::isfinite(max_norm) && max_norm >= 0 && norm_type > 0) return;
  throw RpcError(ErrorCode::kInvalidArgument,
                 absl::StrFormat("gradients cannot be clipped to a norm of %g with a norm_type of "
                                 "%g: neither may be negative, and the norm must be finite",
                                 max_norm, norm_type));
}

}  // namespace

double clip_grad_norm_(const autograd::Context& context,
                       const std::vector<RRef<at::Tensor>>& parameters, double max_norm,
                       const ClipGradOptions& how, const CallOptions& options) {
  check(max_norm, how.norm_type);
  const std::vector<OwnedTensors> owners = internal::by_owner(
      parameters, [](std::size_t i) { return absl::StrFormat("parameter %d", i); });
  std::vector<Future<double>> asked;
  for (const OwnedTensors& owner : owners) {
    asked.push_back(owner.tensors.front().peer().with(options).async<&internal::gradient_power_sum>(
        context.id(), owner.tensors, how.norm_type));
  }
  const bool is_largest = std::isinf(how.norm_type);
  double sum = 0;
  for (const Future<double>& part : asked) {
    const double value = part.wait();
    sum = std::isnan(value) ? value : is_largest ? std::max(sum, value) : sum + value;
  }
  const double norm = is_largest ? sum : std::pow(sum, 1 / how.norm_type);
  if (how.error_if_nonfinite && !std::isfinite(norm)) {
    throw RpcError(
        ErrorCode::kOutOfRange,
        absl::StrFormat("the norm of the gradients is %g, so they cannot be clipped", norm));
  }
  // As LibTorch has it.
  const double factor = max_norm / (norm + 1e-6);
  if (factor >= 1) return norm;
  const std::uint64_t operation = random_secret();
  std::vector<Future<void>> told;
  for (const OwnedTensors& owner : owners) {
    told.push_back(owner.tensors.front().peer().with(options).async<&internal::scale_gradients_of>(
        context.id(), owner.tensors, factor, operation));
  }
  collect_all(told).wait();
  return norm;
}

}  // namespace sinew::optim
