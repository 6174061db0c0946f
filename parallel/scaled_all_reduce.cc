#include "sinew/parallel/scaled_all_reduce.h"

#include <map>
#include <string>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/from_blob.h"
#include "absl/strings/str_format.h"
#include "sinew/parallel/internal/group_tensor.h"
#include "sinew/rpc/base/error.h"

namespace sinew::parallel {

void scaled_all_reduce(const ProcessGroup& group, const std::vector<at::Tensor>& tensors,
                       std::optional<double> scale) {
  // By name, since ranks must come to them in the same order.
  std::map<std::pair<std::string, std::string>, std::vector<at::Tensor>> parts;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    if (!tensor.defined() || !tensor.is_floating_point() || tensor.is_sparse()) {
      throw RpcError(
          ErrorCode::kInvalidArgument,
          absl::StrFormat("tensor %d of scaled_all_reduce is %s, but it must be dense and "
                          "of floating point",
                          i,
                          !tensor.defined()    ? "undefined"
                          : tensor.is_sparse() ? "sparse"
                                               : c10::toString(tensor.scalar_type())));
    }
    parts[{c10::toString(tensor.scalar_type()), tensor.device().str()}].push_back(tensor);
  }
  const at::AutoGradMode no_grad(false);
  for (const auto& [kind, members] : parts) {
    std::vector<at::Tensor> flat;
    flat.reserve(members.size());
    for (const at::Tensor& member : members) flat.push_back(member.detach().reshape({-1}));
    const at::Tensor all = at::cat(flat);
    group.all_reduce(all);
    all.mul_(scale.value_or(1.0 / group.size()));
    std::int64_t offset = 0;
    for (const at::Tensor& member : members) {
      member.detach().copy_(all.narrow(0, offset, member.numel()).view(member.sizes()));
      offset += member.numel();
    }
  }
}

std::vector<double> scaled_all_reduce(const ProcessGroup& group, const std::vector<double>& values,
                                      std::optional<double> scale) {
  std::vector<double> result = values;
  const at::Tensor host =
      at::from_blob(result.data(), {static_cast<std::int64_t>(result.size())}, at::kDouble);
  const at::Tensor sent = internal::group_tensor(group, host);
  scaled_all_reduce(group, {sent}, scale);
  host.copy_(sent);
  return result;
}

}  // namespace sinew::parallel
