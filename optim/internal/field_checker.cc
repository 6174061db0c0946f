#include "sinew/optim/internal/field_checker.h"

#include "absl/strings/str_format.h"
#include "sinew/optim/optimizer.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {

void FieldChecker::require(bool right, const char* field, double value, const char* want) const {
  if (right) return;
  throw RpcError(
      ErrorCode::kInvalidArgument,
      absl::StrFormat("optimizer %s: %s is %g, but it must be %s", optimizer_, field, value, want));
}

void FieldChecker::not_switched_on(const char* field, double now, double next) const {
  if (now != 0 || next == 0) return;
  throw RpcError(ErrorCode::kInvalidArgument,
                 absl::StrFormat("optimizer %s: %s cannot be switched on once the optimizer is "
                                 "made, since its state has no room for it: make it anew",
                                 optimizer_, field));
}

void check_learning_rate(std::string_view optimizer, double lr) {
  FieldChecker(optimizer).not_negative("lr", lr);
}

}  // namespace sinew::internal
