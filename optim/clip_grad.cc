#include "sinew/optim/clip_grad.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "sinew/optim/internal/gradient_norms.h"
#include "sinew/optim/internal/optimized_parameter.h"
#include "sinew/optim/internal/owned_tensors.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/call.h"

namespace sinew::optim {

using internal::OwnedTensors;

namespace {

/// What ranks of one module must say alike: each value and its negative, of which the largest of
/// all ranks show the range.
struct Setting {
  const char* name;
  double value;
};
using Settings = std::array<Setting, 3>;

void check_alike(const Settings& settings, const std::vector<double>& agreed, std::size_t at) {
  for (const auto& [name, value] : settings) {
    const double most = agreed[at++];
    const double least = -agreed[at++];
    if (most == least) continue;
    throw RpcError(
        ErrorCode::kInvalidArgument,
        absl::StrFormat("the ranks of a data-parallel module clip by different values: %s is %g to "
                        "%g, and %g at this trainer. Nothing is scaled",
                        name, least, most, value));
  }
}

void check(double max_norm, double norm_type) {
  if (std::isfinite(max_norm) && max_norm >= 0 && norm_type > 0) return;
  throw RpcError(ErrorCode::kInvalidArgument,
                 absl::StrFormat("gradients cannot be clipped to a norm of %g with a norm_type of "
                                 "%g: neither may be negative, and the norm must be finite",
                                 max_norm, norm_type));
}

/// Of this trainer's gradients, and of all ranks of data-parallel modules that have reduced some of
/// them.
struct Norms {
  double own = 0;
  double largest = 0;
};

Norms norms_of(const autograd::ContextId& context, const std::vector<OwnedTensors>& owners,
               double max_norm, const ClipGradOptions& how, const CallOptions& options) {
  const double norm_type = how.norm_type;
  std::vector<Future<internal::PowerSum>> asked;
  for (const OwnedTensors& owner : owners) {
    asked.push_back(owner.tensors.front().peer().with(options).async<&internal::gradient_power_sum>(
        context, owner.tensors, norm_type));
  }
  const bool is_largest = std::isinf(norm_type);
  double sum = 0;
  std::vector<internal::ModulesAt> modules;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const internal::PowerSum& part = asked[i].wait();
    if (part.twice) {
      throw RpcError(ErrorCode::kInvalidArgument,
                     absl::StrFormat("parameter %d of those to clip is there twice: %s",
                                     owners[i].positions.at(*part.twice), internal::kTiedOnce));
    }
    modules.push_back({owners[i].tensors.front().peer(), part.modules});
    sum = std::isnan(part.value) ? part.value
          : is_largest           ? std::max(sum, part.value)
                                 : sum + part.value;
  }
  Norms norms;
  norms.own = is_largest ? sum : std::pow(sum, 1 / norm_type);
  // What is no number has no place among others.
  const bool is_number = !std::isnan(norms.own);
  const Settings settings = {{{"max_norm", max_norm},
                              {"norm_type", norm_type},
                              {"error_if_nonfinite", how.error_if_nonfinite ? 1.0 : 0.0}}};
  std::vector<double> said = {is_number ? 0.0 : 1.0, is_number ? norms.own : 0.0};
  const std::size_t own_numbers = said.size();
  for (const Setting& one : settings) said.insert(said.end(), {one.value, -one.value});
  const std::vector<double> agreed =
      internal::agree(context, modules, internal::LeafReducer::Subject::kNorm, said, options);
  check_alike(settings, agreed, own_numbers);
  norms.largest = agreed[0] > 0 ? std::numeric_limits<double>::quiet_NaN() : agreed[1];
  return norms;
}

}  // namespace

double clip_grad_norm_(const autograd::Context& context,
                       const std::vector<RRef<at::Tensor>>& parameters, double max_norm,
                       const ClipGradOptions& how, const CallOptions& options) {
  check(max_norm, how.norm_type);
  const std::vector<OwnedTensors> owners = internal::by_owner(
      parameters, [](std::size_t i) { return absl::StrFormat("parameter %d", i); });
  const Norms norms = norms_of(context.id(), owners, max_norm, how, options);
  const double norm = norms.largest;
  if (how.error_if_nonfinite && !std::isfinite(norm)) {
    throw RpcError(ErrorCode::kOutOfRange,
                   absl::StrFormat("the norm of the gradients is %g, so they cannot be clipped on "
                                   "any rank (it is %g at this trainer)",
                                   norm, norms.own));
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
