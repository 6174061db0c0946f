#include "sinew/parallel/internal/checkpointed.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/custom_class.h>
#include <torch/nn/module.h>
#include <torch/version.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>

#include "ATen/core/grad_mode.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sinew/autograd/internal/recv_node.h"
#include "sinew/parallel/internal/forward_surroundings.h"
#include "sinew/rpc/base/error.h"

namespace sinew::parallel::internal {
namespace {

using torch::autograd::AccumulateGrad;
using torch::autograd::AutogradContext;
using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;

std::string sizes_text(const at::Tensor& tensor) {
  return absl::StrCat("[", absl::StrJoin(tensor.sizes(), ", "), "]");
}

/// What both runs of a part must have alike.
struct OutputForm {
  explicit OutputForm(const at::Tensor& output) : is_defined(output.defined()) {
    if (!is_defined) return;
    sizes = output.sizes().vec();
    type = output.scalar_type();
  }
  bool operator==(const OutputForm& other) const {
    return is_defined == other.is_defined && sizes == other.sizes && type == other.type;
  }

  bool is_defined;
  std::vector<std::int64_t> sizes;
  at::ScalarType type = at::ScalarType::Undefined;
};

std::vector<OutputForm> forms_of(const variable_list& outputs) {
  return {outputs.begin(), outputs.end()};
}

[[noreturn]] void refuse(const std::string& why) {
  throw RpcError(ErrorCode::kFailedPrecondition, absl::StrCat("a checkpointed part ", why));
}

/// Sees whether a part changes its inputs or parameters in place: the second run would begin with
/// what the first one has left.
class InPlaceChanges {
 public:
  InPlaceChanges(const variable_list& inputs, const variable_list& parameters)
      : tensors_(inputs), inputs_(inputs.size()) {
    tensors_.insert(tensors_.end(), parameters.begin(), parameters.end());
    for (const at::Tensor& tensor : tensors_) versions_.push_back(version_of(tensor));
  }

  void check() const {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      if (version_of(tensors_[i]) == versions_[i]) continue;
      throw RpcError(
          ErrorCode::kInvalidArgument,
          absl::StrFormat("a checkpointed part changes %s %d in place (sizes %s), and backward() "
                          "would compute it again from the changed one: let it work on a copy",
                          i < inputs_ ? "input" : "parameter", i < inputs_ ? i : i - inputs_,
                          sizes_text(tensors_[i])));
    }
  }

 private:
  static std::int64_t version_of(const at::Tensor& tensor) {
    return tensor.defined() && !tensor.is_inference() ? tensor._version() : 0;
  }

  variable_list tensors_;
  const std::size_t inputs_;
  std::vector<std::int64_t> versions_;
};

/// Refuses a graph that leads to anything else than `known`: its gradients would be lost.
void check_leads_to(const variable_list& roots, const variable_list& known) {
  std::set<std::pair<const Node*, std::uint32_t>> ends;
  for (const at::Tensor& tensor : known) {
    const Edge edge = torch::autograd::impl::gradient_edge(tensor);
    ends.emplace(edge.function.get(), edge.input_nr);
  }
  std::unordered_set<const Node*> seen;
  std::vector<Edge> open;
  for (const at::Tensor& root : roots) {
    open.push_back(torch::autograd::impl::gradient_edge(root));
  }
  while (!open.empty()) {
    const Edge edge = open.back();
    open.pop_back();
    Node* node = edge.function.get();
    if (!edge.is_valid() || ends.count({node, edge.input_nr}) > 0) continue;
    if (!seen.insert(node).second) continue;
    if (const auto* leaf = dynamic_cast<const AccumulateGrad*>(node)) {
      refuse(absl::StrCat("uses a tensor of sizes ", sizes_text(leaf->variable),
                          " that requires gradients and that is neither an input nor a parameter "
                          "of it, so it would get none: give it to checkpoint() in "
                          "CheckpointOptions::parameters"));
    }
    if (dynamic_cast<const sinew::internal::RecvNode*>(node) != nullptr) {
      refuse(
          "uses the result of a remote call, which its second run would make again in the middle "
          "of the backward pass: make the call before it, and give it the result as an input");
    }
    for (const Edge& next : node->next_edges()) open.push_back(next);
  }
}

/// Hooks of tensors run when the engine hands a gradient out, since LibTorch 2.0: once for the part
/// and once for the tensor.
void check_hooks(const variable_list& parameters) {
#if TORCH_VERSION_MAJOR >= 2
  for (const at::Tensor& parameter : parameters) {
    if (torch::autograd::impl::hooks(parameter).empty()) continue;
    refuse(absl::StrCat("has a parameter of sizes ", sizes_text(parameter),
                        " with a hook, which would run twice: put the hook on a tensor that is "
                        "computed from it outside of the part"));
  }
#else
  static_cast<void>(parameters);
#endif
}

/// A part, and what it found when it ran first.
class Checkpointed final : public torch::CustomClassHolder {
 public:
  Checkpointed(CheckpointedFunction function, std::vector<at::Tensor> buffers, RandomNumbers random)
      : function_(std::move(function)), buffers_(std::move(buffers)), random_(random) {}

  variable_list run_first(const variable_list& inputs, const variable_list& parameters) {
    const InPlaceChanges changes(inputs, parameters);
    values_ = copies_of(buffers_);
    if (random_ == RandomNumbers::kRepeated) before_ = states_of(inputs, parameters);
    const AutocastSettings::Scope scope(autocast_);
    variable_list outputs = function_(inputs);
    if (before_) after_ = before_->now();
    changes.check();
    forms_ = forms_of(outputs);
    return outputs;
  }

  /// The gradients of inputs and parameters; undefined for those that need none.
  variable_list run_again(const variable_list& inputs, const variable_list& parameters,
                          const variable_list& gradients) const {
    variable_list detached;
    for (const at::Tensor& input : inputs) {
      if (!input.defined()) {
        detached.emplace_back();
        continue;
      }
      detached.push_back(input.detach().set_requires_grad(input.requires_grad()));
    }
    // Until the gradients are there: these look at buffers too.
    const BufferScope values(buffers_, values_);
    const variable_list outputs = outputs_again(detached);

    variable_list roots;
    variable_list of_roots;
    std::size_t next = 0;
    for (const at::Tensor& output : outputs) {
      if (!output.defined()) continue;
      const at::Tensor& gradient = gradients.at(next++);
      if (!output.requires_grad() || !gradient.defined()) continue;
      roots.push_back(output);
      of_roots.push_back(gradient);
    }
    return gradients_of(roots, of_roots, detached, parameters);
  }

  /// `outputs`: those of the first run, without undefined ones, in whose places these come back.
  variable_list with_undefined(const variable_list& outputs) const {
    variable_list all;
    std::size_t next = 0;
    for (const OutputForm& form : forms_) {
      all.push_back(form.is_defined ? outputs.at(next++) : at::Tensor());
    }
    return all;
  }

 private:
  static RandomStates states_of(const variable_list& inputs, const variable_list& parameters) {
    variable_list tensors = inputs;
    tensors.insert(tensors.end(), parameters.begin(), parameters.end());
    return RandomStates::of(tensors);
  }

  variable_list outputs_again(const variable_list& inputs) const {
    struct Restore {
      ~Restore() {
        if (states) states->restore();
      }
      std::optional<RandomStates> states;
    };
    Restore restore;
    if (before_) {
      restore.states = before_->now();
      before_->restore();
    }
    const AutocastSettings::Scope scope(autocast_);
    const at::AutoGradMode with_gradients(true);
    variable_list outputs = function_(inputs);
    if (forms_of(outputs) != forms_) {
      refuse(
          "has computed other outputs in its second run than in its first one (their number, sizes "
          "or types): it must depend on nothing but its inputs, parameters and buffers");
    }
    if (before_ && !after_->is_same_as(before_->now())) {
      refuse(
          "has drawn other random numbers in its second run than in its first one, or another "
          "thread draws from the default generator: where the part draws none, say "
          "RandomNumbers::kIgnored");
    }
    return outputs;
  }

  static variable_list gradients_of(const variable_list& roots, const variable_list& of_roots,
                                    const variable_list& inputs, const variable_list& parameters) {
    variable_list result(inputs.size() + parameters.size());
    if (roots.empty()) return result;
    variable_list wanted;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < result.size(); ++i) {
      const at::Tensor& tensor = i < inputs.size() ? inputs[i] : parameters[i - inputs.size()];
      if (!tensor.defined() || !tensor.requires_grad()) continue;
      wanted.push_back(tensor);
      places.push_back(i);
    }
    check_leads_to(roots, wanted);
    check_hooks(parameters);
    const variable_list found =
        torch::autograd::grad(roots, wanted, of_roots, /*retain_graph=*/false,
                              /*create_graph=*/false, /*allow_unused=*/true);
    for (std::size_t i = 0; i < places.size(); ++i) result[places[i]] = found[i];
    return result;
  }

  const CheckpointedFunction function_;
  const std::vector<at::Tensor> buffers_;
  const RandomNumbers random_;
  const AutocastSettings autocast_ = AutocastSettings::current();
  /// Of the buffers, when the first run began.
  std::vector<at::Tensor> values_;
  /// When the first run began and ended; nullopt: not needed.
  std::optional<RandomStates> before_;
  std::optional<RandomStates> after_;
  std::vector<OutputForm> forms_;
};

/// Inputs and parameters are inputs of the function, so that the graph, and code that follows it,
/// knows where gradients go.
class CheckpointFunction final : public torch::autograd::Function<CheckpointFunction> {
 public:
  // LibTorch knows the tensors of a TensorList, and not those of a vector.
  static variable_list forward(AutogradContext* context,
                               const c10::intrusive_ptr<Checkpointed>& part, at::TensorList inputs,
                               at::TensorList parameters) {
    variable_list saved = inputs.vec();
    saved.insert(saved.end(), parameters.begin(), parameters.end());
    variable_list outputs = part->run_first(inputs.vec(), parameters.vec());
    context->save_for_backward(std::move(saved));
    context->saved_data["part"] = c10::IValue::make_capsule(part);
    context->saved_data["inputs"] = static_cast<std::int64_t>(inputs.size());
    context->set_materialize_grads(false);
    outputs.erase(std::remove_if(outputs.begin(), outputs.end(),
                                 [](const at::Tensor& output) { return !output.defined(); }),
                  outputs.end());
    return outputs;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    if (at::GradMode::is_enabled()) {
      throw RpcError(ErrorCode::kUnimplemented,
                     "gradients of gradients (create_graph) do not pass through a checkpointed "
                     "part: call it without checkpoint()");
    }
    const variable_list saved = context->get_saved_variables();
    const auto inputs = saved.begin() + context->saved_data["inputs"].toInt();
    const auto part =
        c10::static_intrusive_pointer_cast<Checkpointed>(context->saved_data["part"].toCapsule());
    variable_list result =
        part->run_again({saved.begin(), inputs}, {inputs, saved.end()}, gradients);
    // The part itself.
    result.insert(result.begin(), at::Tensor());
    return result;
  }
};

/// Those that get gradients, each once.
variable_list trained(const std::vector<at::Tensor>& parameters) {
  variable_list found;
  for (const at::Tensor& parameter : parameters) {
    if (!parameter.defined() || !parameter.requires_grad()) continue;
    const auto is_it = [&](const at::Tensor& other) { return other.is_same(parameter); };
    if (std::none_of(found.begin(), found.end(), is_it)) found.push_back(parameter);
  }
  return found;
}

bool needs_gradients(const variable_list& tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) {
    return tensor.defined() && tensor.requires_grad();
  });
}

}  // namespace

void add_tensors_of(const torch::nn::Module& module, CheckpointOptions& options) {
  for (const at::Tensor& parameter : module.parameters()) options.parameters.push_back(parameter);
  for (const at::Tensor& buffer : module.buffers()) {
    if (buffer.defined()) options.buffers.push_back(buffer);
  }
}

std::vector<at::Tensor> run_checkpointed(CheckpointedFunction function,
                                         std::vector<at::Tensor> inputs,
                                         CheckpointOptions options) {
  const variable_list parameters = trained(options.parameters);
  if (!at::GradMode::is_enabled() || !(needs_gradients(inputs) || !parameters.empty())) {
    return function(inputs);
  }
  const auto part = c10::make_intrusive<Checkpointed>(std::move(function),
                                                      std::move(options.buffers), options.random);
  const variable_list outputs =
      CheckpointFunction::apply(part, at::TensorList(inputs), at::TensorList(parameters));
  return part->with_undefined(outputs);
}

}  // namespace sinew::parallel::internal
