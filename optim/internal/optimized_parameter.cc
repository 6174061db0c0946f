#include "sinew/optim/internal/optimized_parameter.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {

std::string type_and_sizes(const at::Tensor& tensor) {
  return absl::StrFormat("%s [%s]", c10::toString(tensor.scalar_type()),
                         absl::StrJoin(tensor.sizes(), ", "));
}

void OptimizedParameter::check() const {
  const char* fault = nullptr;
  if (!tensor.defined()) {
    fault = "is undefined";
  } else if (!tensor.is_leaf()) {
    fault = "is no leaf: it was computed from others";
  } else if (!tensor.is_floating_point() && !tensor.is_complex()) {
    fault = "has no floating-point elements";
  } else if (tensor.layout() != at::kStrided) {
    fault = "is not dense";
  }
  if (fault == nullptr) return;
  throw RpcError(ErrorCode::kInvalidArgument,
                 absl::StrCat(label, " ", fault, ", so it cannot be optimized"));
}

void OptimizedParameter::follow() {
  if (!shadow.is_alias_of(tensor) || !shadow.sizes().equals(tensor.sizes()) ||
      !shadow.strides().equals(tensor.strides())) {
    shadow.set_data(tensor.variable_data());
  }
}

std::string OptimizedParameter::describe() const {
  return absl::StrCat(group, " ", type_and_sizes(tensor));
}

}  // namespace sinew::internal
