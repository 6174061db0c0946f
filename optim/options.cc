#include "sinew/optim/options.h"

#include "absl/strings/str_format.h"
#include "sinew/optim/internal/options_model.h"
#include "sinew/rpc/base/error.h"

namespace sinew::optim {

std::string_view Options::name() const { return model_->name(); }

double Options::learning_rate() const { return model_->learning_rate(); }

void Options::set_learning_rate(double lr) { model_ = model_->with_learning_rate(lr); }

void Options::check() const { model_->check(); }

const void* Options::find(const std::type_info& type) const {
  return model_->type() == type ? model_->fields() : nullptr;
}

void Options::throw_other(std::string_view wanted) const {
  throw RpcError(ErrorCode::kInvalidArgument,
                 absl::StrFormat("the optimizer is %s, and has no options of %s", name(), wanted));
}

}  // namespace sinew::optim
