#include "sinew/parallel/internal/hook_result.h"

#include <string>

#include "absl/strings/str_format.h"
#include "sinew/rpc/base/error.h"

namespace sinew::parallel::internal {
namespace {

std::string text_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  return absl::StrFormat("%d elements of type %s", tensor.numel(),
                         c10::toString(tensor.scalar_type()));
}

}  // namespace

void check_hook_result(const at::Tensor& result, std::size_t bucket, const at::Tensor& gradients) {
  if (result.defined() && result.scalar_type() == gradients.scalar_type() &&
      result.numel() == gradients.numel()) {
    return;
  }
  throw RpcError(ErrorCode::kInvalidArgument,
                 absl::StrFormat("a communication hook has returned %s for bucket %d, which has %s",
                                 text_of(result), bucket, text_of(gradients)));
}

}  // namespace sinew::parallel::internal
