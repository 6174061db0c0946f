#include "sinew/parallel/internal/gradient_hooks.h"

#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sinew/rpc/base/error.h"

namespace sinew::parallel::internal {

using sinew::internal::MutexLock;
using torch::autograd::variable_list;

GradientHooks::GradientHooks(std::vector<NamedTensor> parameters)
    : parameters_(std::move(parameters)),
      ready_(parameters_.size()),
      unreduced_(parameters_.size()) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    auto node = torch::autograd::impl::grad_accumulator(parameters_[i].tensor);
    const std::uintptr_t key =
        node->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
            [this, i](const variable_list& outputs, const variable_list&) {
              on_gradient(i);
              return outputs;
            }));
    hooks_.emplace_back(std::move(node), key);
  }
}

GradientHooks::~GradientHooks() {
  for (auto& [node, key] : hooks_) node->del_post_hook(key);
}

// set_data(), which torch::load() calls, makes LibTorch forget a tensor's accumulator, and its
// hooks with it. Hooks on the new one would be of no use if not all ranks had loaded.
void GradientHooks::check_attached() const {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (torch::autograd::impl::try_get_grad_accumulator(parameters_[i].tensor) == hooks_[i].first) {
      continue;
    }
    throw RpcError(
        ErrorCode::kFailedPrecondition,
        absl::StrFormat("the data of parameter '%s' of a data-parallel module has been replaced "
                        "(torch::load() and set_data() do so), so its gradients would not be "
                        "reduced: make the DistributedDataParallel after loading, or copy the "
                        "values into the parameters",
                        parameters_[i].name));
  }
}

void GradientHooks::expect() {
  MutexLock lock(mutex_);
  ready_.assign(parameters_.size(), false);
}

bool GradientHooks::are_reached_by_some() const {
  const auto* nodes = torch::autograd::get_current_graph_task_exec_info();
  return std::any_of(hooks_.begin(), hooks_.end(), [nodes](const auto& hook) {
    const auto found = nodes->find(hook.first.get());
    return found != nodes->end() && found->second.should_execute();
  });
}

std::vector<std::size_t> GradientHooks::missing() const {
  MutexLock lock(mutex_);
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!ready_[i]) found.push_back(i);
  }
  return found;
}

std::string GradientHooks::names(const std::vector<std::size_t>& parameters) const {
  return absl::StrJoin(parameters, ", ", [this](std::string* out, std::size_t parameter) {
    absl::StrAppend(out, "'", parameters_[parameter].name, "'");
  });
}

std::vector<std::size_t> GradientHooks::unreduced() const {
  MutexLock lock(mutex_);
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (unreduced_[i] && parameters_[i].tensor.grad().defined()) found.push_back(i);
  }
  return found;
}

void GradientHooks::forget_unreduced() {
  MutexLock lock(mutex_);
  unreduced_.assign(parameters_.size(), false);
}

void GradientHooks::on_gradient(std::size_t parameter) {
  if (reducer_ == nullptr) return;
  const bool in_engine = torch::autograd::get_current_graph_task_exec_info() != nullptr;
  if (!reducer_->expects_gradients()) {
    MutexLock lock(mutex_);
    // A context keeps its own.
    if (in_engine) unreduced_[parameter] = true;
    return;
  }
  if (!in_engine) {
    // A pass of a context runs these without LibTorch's engine, whose reducer would look at .grad.
    throw RpcError(
        ErrorCode::kFailedPrecondition,
        "a backward pass of an autograd context has reached a data-parallel module whose "
        "forward() ran outside of the context, so its gradients would not be reduced: "
        "make the context before forward()");
  }
  on_expected_();
  MutexLock lock(mutex_);
  if (!ready_[parameter]) {
    ready_[parameter] = true;
    return;
  }
  throw RpcError(
      ErrorCode::kFailedPrecondition,
      absl::StrFormat(
          "parameter '%s' of a data-parallel module has got a gradient twice in one backward pass: "
          "backward() runs a second time before the first one has reached all parameters, or a "
          "checkpointed part uses it again. Use no_sync() for all passes but the last",
          parameters_[parameter].name));
}

}  // namespace sinew::parallel::internal
