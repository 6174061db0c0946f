#include "sinew/parallel/zero_redundancy_optimizer.h"

#include <torch/serialize/archive.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <sstream>
#include <utility>

#include "ATen/Functions.h"
#include "ATen/core/grad_mode.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sinew/optim/internal/torch_optimizer.h"
#include "sinew/parallel/internal/c10d_bridge.h"
#include "sinew/parallel/internal/group_tensor.h"
#include "sinew/parallel/internal/module_parts.h"
#include "sinew/rpc/base/error.h"

namespace sinew::parallel {

using sinew::internal::TorchOptimizer;

namespace {

[[noreturn]] void refuse(const std::string& text) {
  throw RpcError(ErrorCode::kInvalidArgument, absl::StrCat("ZeroRedundancyOptimizer: ", text));
}

void check_parameter(const at::Tensor& parameter, std::size_t number) {
  const char* problem = nullptr;
  if (!parameter.defined()) {
    problem = "is undefined";
  } else if (!parameter.is_leaf()) {
    problem = "is no leaf";
  } else if (!parameter.is_floating_point() || parameter.is_sparse()) {
    problem = "is not dense and of floating point";
  }
  if (problem != nullptr) refuse(absl::StrFormat("parameter %d %s", number, problem));
}

/// For each parameter the rank that steps it.
std::vector<int> assign_owners(const std::vector<ParameterGroup>& groups, int ranks) {
  std::vector<std::int64_t> elements(static_cast<std::size_t>(ranks), 0);
  std::vector<int> owners;
  for (const ParameterGroup& group : groups) {
    std::vector<std::size_t> order(group.parameters.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&group](std::size_t a, std::size_t b) {
      return group.parameters[a].numel() > group.parameters[b].numel();
    });
    const std::size_t first = owners.size();
    owners.resize(first + order.size());
    for (const std::size_t number : order) {
      const auto least = std::min_element(elements.begin(), elements.end());
      *least += group.parameters[number].numel();
      owners[first + number] = static_cast<int>(least - elements.begin());
    }
  }
  return owners;
}

std::string state_key(std::size_t parameter) { return absl::StrCat("state", parameter); }
std::string parameter_key(std::size_t parameter) { return absl::StrCat("parameter", parameter); }

at::Tensor to_tensor(const std::string& text) {
  const at::Tensor bytes = at::empty({static_cast<std::int64_t>(text.size())}, at::kByte);
  std::memcpy(bytes.data_ptr(), text.data(), text.size());
  return bytes;
}

std::string to_string(const at::Tensor& bytes) {
  const at::Tensor whole = bytes.contiguous();
  return std::string(static_cast<const char*>(whole.data_ptr()), whole.nbytes());
}

std::string to_bytes(torch::serialize::OutputArchive& archive) {
  std::ostringstream stream;
  archive.save_to(stream);
  return std::move(stream).str();
}

}  // namespace

struct ZeroRedundancyOptimizer::Impl {
  struct Parameter {
    at::Tensor tensor;
    // For texts, and for what was saved.
    std::string description;
    std::size_t group = 0;
    int owner = 0;
    // The same memory with a `.grad` of its own, so that gradients of contexts can be stepped and
    // the program's are left alone. Only at the owner, as what follows.
    at::Tensor stepped;
    // One for each parameter: state can be saved and taken over by another number of ranks.
    std::unique_ptr<TorchOptimizer> optimizer;
  };

  Impl(ProcessGroup a_group, std::vector<ParameterGroup> parameter_groups);

  std::unique_ptr<TorchOptimizer> make_optimizer(const Parameter& parameter) const;
  void step(const std::function<at::Tensor(const at::Tensor&)>& gradient_of);
  void send_parameters() const;
  std::string save_own() const;
  void add_part(const std::string& part, int rank, torch::serialize::OutputArchive& all) const;
  std::vector<std::unique_ptr<TorchOptimizer>> read(torch::serialize::InputArchive& archive,
                                                    const std::vector<double>& rates) const;

  const ProcessGroup group;
  std::vector<optim::Options> options;
  std::vector<Parameter> parameters;
  JoinSession* session = nullptr;
};

// ---- The start.

ZeroRedundancyOptimizer::Impl::Impl(ProcessGroup a_group,
                                    std::vector<ParameterGroup> parameter_groups)
    : group(std::move(a_group)) {
  if (!group.valid()) refuse("the process group is empty: this process is not among its ranks");
  std::vector<std::string> lines;
  absl::flat_hash_set<const c10::TensorImpl*> seen;
  for (const ParameterGroup& one : parameter_groups) {
    optim::check(one.options);
    if (one.options.index() != parameter_groups.front().options.index()) {
      refuse(absl::StrFormat("the groups of one optimizer are of one kind, but there are %s and %s",
                             optim::name_of(parameter_groups.front().options),
                             optim::name_of(one.options)));
    }
    for (const at::Tensor& tensor : one.parameters) {
      check_parameter(tensor, parameters.size());
      if (!seen.insert(tensor.unsafeGetTensorImpl()).second) {
        refuse(absl::StrFormat("parameter %d is there twice", parameters.size()));
      }
      lines.push_back(
          internal::describe(absl::StrFormat("%s parameter", optim::name_of(one.options)).c_str(),
                             {absl::StrCat(parameters.size()), tensor}));
      parameters.push_back({tensor, lines.back(), options.size(), 0, {}, nullptr});
    }
    options.push_back(one.options);
  }
  if (parameters.empty()) refuse("there are no parameters");
  internal::check_equal_on_all_ranks(group, "parameters", lines);
  const std::vector<int> owners = assign_owners(parameter_groups, group.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    parameters[i].owner = owners[i];
    if (owners[i] != group.rank()) continue;
    parameters[i].stepped = parameters[i].tensor.detach().requires_grad_();
    parameters[i].optimizer = make_optimizer(parameters[i]);
  }
}

std::unique_ptr<TorchOptimizer> ZeroRedundancyOptimizer::Impl::make_optimizer(
    const Parameter& parameter) const {
  return std::make_unique<TorchOptimizer>(
      std::vector<TorchOptimizer::Group>{{{parameter.stepped}, options[parameter.group]}});
}

// ---- Steps.

void ZeroRedundancyOptimizer::Impl::step(
    const std::function<at::Tensor(const at::Tensor&)>& gradient_of) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    Parameter& parameter = parameters[i];
    if (parameter.optimizer == nullptr) continue;
    const at::Tensor gradient = gradient_of(parameter.tensor);
    if (!gradient.defined()) continue;
    const std::string refusal =
        TorchOptimizer::refusal(options[parameter.group], parameter.tensor, gradient);
    if (!refusal.empty()) refuse(absl::StrFormat("parameter %d: %s", i, refusal));
    parameter.stepped.mutable_grad() = gradient;
    parameter.optimizer->step();
    parameter.stepped.mutable_grad().reset();
  }
  send_parameters();
}

void ZeroRedundancyOptimizer::Impl::send_parameters() const {
  for (int rank = 0; rank < group.size(); ++rank) {
    std::vector<at::Tensor> owned;
    for (const Parameter& parameter : parameters) {
      if (parameter.owner == rank) owned.push_back(parameter.tensor);
    }
    internal::broadcast_all(group, owned, rank);
  }
}

ZeroRedundancyOptimizer::ZeroRedundancyOptimizer(ProcessGroup group,
                                                 std::vector<ParameterGroup> parameters)
    : impl_(std::make_unique<Impl>(std::move(group), std::move(parameters))) {}

ZeroRedundancyOptimizer::ZeroRedundancyOptimizer(ProcessGroup group,
                                                 std::vector<at::Tensor> parameters,
                                                 const optim::Options& options)
    : ZeroRedundancyOptimizer(std::move(group),
                              std::vector<ParameterGroup>{{std::move(parameters), options}}) {}

ZeroRedundancyOptimizer::~ZeroRedundancyOptimizer() = default;

void ZeroRedundancyOptimizer::step() {
  if (impl_->session != nullptr) impl_->session->announce({});
  impl_->step([](const at::Tensor& parameter) { return parameter.grad(); });
}

at::Tensor ZeroRedundancyOptimizer::step(const std::function<at::Tensor()>& closure) {
  at::Tensor loss;
  {
    const at::AutoGradMode grad(true);
    loss = closure();
  }
  step();
  return loss;
}

void ZeroRedundancyOptimizer::step(const autograd::Context& context) {
  if (impl_->session != nullptr) impl_->session->announce({});
  impl_->step([&context](const at::Tensor& parameter) {
    return autograd::gradient_of(context, parameter);
  });
}

void ZeroRedundancyOptimizer::zero_grad() const {
  const at::AutoGradMode no_grad(false);
  for (const Impl::Parameter& parameter : impl_->parameters) {
    const at::Tensor& gradient = parameter.tensor.grad();
    if (gradient.defined()) gradient.zero_();
  }
}

void ZeroRedundancyOptimizer::set_learning_rate(double lr) {
  for (std::size_t i = 0; i < impl_->options.size(); ++i) set_learning_rate(i, lr);
}

void ZeroRedundancyOptimizer::set_learning_rate(std::size_t group, double lr) {
  if (group >= impl_->options.size()) {
    throw RpcError(ErrorCode::kOutOfRange,
                   absl::StrFormat("ZeroRedundancyOptimizer: there is no group %d, but %d groups",
                                   group, impl_->options.size()));
  }
  optim::Options changed = impl_->options[group];
  optim::set_learning_rate(changed, lr);
  optim::check(changed);
  impl_->options[group] = changed;
  for (Impl::Parameter& parameter : impl_->parameters) {
    if (parameter.group == group && parameter.optimizer != nullptr) {
      parameter.optimizer->set_learning_rate(0, lr);
    }
  }
}

// ---- State.

// An archive with an archive for each parameter, as bytes: so the parts of several ranks can be put
// together, and each be read alone.
std::string ZeroRedundancyOptimizer::Impl::save_own() const {
  torch::serialize::OutputArchive archive;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].optimizer == nullptr) continue;
    torch::serialize::OutputArchive one;
    parameters[i].optimizer->save(one);
    archive.write(state_key(i), to_tensor(to_bytes(one)), /*is_buffer=*/true);
  }
  return to_bytes(archive);
}

void ZeroRedundancyOptimizer::Impl::add_part(const std::string& part, int rank,
                                             torch::serialize::OutputArchive& all) const {
  torch::serialize::InputArchive archive;
  archive.load_from(part.data(), part.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].owner != rank) continue;
    at::Tensor state;
    archive.read(state_key(i), state, /*is_buffer=*/true);
    all.write(state_key(i), state, /*is_buffer=*/true);
    all.write(parameter_key(i), c10::IValue(parameters[i].description));
  }
}

std::string ZeroRedundancyOptimizer::save(int to) const {
  const ProcessGroup& group = impl_->group;
  if (to < 0 || to >= group.size()) {
    refuse(absl::StrFormat("there is no rank %d that could save the state", to));
  }
  const std::string own = impl_->save_own();
  std::vector<at::Tensor> sizes;
  for (int rank = 0; rank < group.size(); ++rank) {
    sizes.push_back(internal::group_tensor(group, at::zeros({1}, at::kLong)));
  }
  const auto own_bytes = static_cast<std::int64_t>(own.size());
  group.all_gather(sizes, internal::group_tensor(group, at::full({1}, own_bytes, at::kLong)));
  if (group.rank() != to) {
    group.send(internal::group_tensor(group, to_tensor(own)), to);
    return "";
  }
  torch::serialize::OutputArchive all;
  all.write("optimizer", c10::IValue(optim::name_of(impl_->options.front())));
  all.write("parameters", c10::IValue(static_cast<std::int64_t>(impl_->parameters.size())));
  std::vector<double> rates;
  for (const optim::Options& options : impl_->options) {
    rates.push_back(optim::learning_rate(options));
  }
  all.write("rates", c10::IValue(rates));
  for (int rank = 0; rank < group.size(); ++rank) {
    if (rank == to) {
      impl_->add_part(own, rank, all);
      continue;
    }
    const std::int64_t bytes = sizes[static_cast<std::size_t>(rank)].item<std::int64_t>();
    const at::Tensor part = internal::group_tensor(group, at::empty({bytes}, at::kByte));
    group.recv(part, rank);
    impl_->add_part(to_string(part.cpu()), rank, all);
  }
  return to_bytes(all);
}

// Each part goes into an optimizer of its own first, so that nothing is changed when one does not
// fit.
std::vector<std::unique_ptr<TorchOptimizer>> ZeroRedundancyOptimizer::Impl::read(
    torch::serialize::InputArchive& archive, const std::vector<double>& rates) const {
  std::vector<std::unique_ptr<TorchOptimizer>> loaded(parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    c10::IValue description;
    archive.read(parameter_key(i), description);
    if (description.toStringRef() != parameters[i].description) {
      refuse(absl::StrFormat("the state that was saved is of %s, but there is %s",
                             description.toStringRef(), parameters[i].description));
    }
    if (parameters[i].optimizer == nullptr) continue;
    at::Tensor bytes;
    archive.read(state_key(i), bytes, /*is_buffer=*/true);
    const std::string text = to_string(bytes);
    torch::serialize::InputArchive one;
    one.load_from(text.data(), text.size());
    loaded[i] = make_optimizer(parameters[i]);
    loaded[i]->load(one);
    loaded[i]->set_learning_rate(0, rates.at(parameters[i].group));
  }
  return loaded;
}

void ZeroRedundancyOptimizer::load(const std::string& state) {
  std::vector<std::unique_ptr<TorchOptimizer>> loaded;
  std::vector<double> rates;
  try {
    torch::serialize::InputArchive archive;
    archive.load_from(state.data(), state.size());
    c10::IValue name;
    c10::IValue count;
    c10::IValue saved_rates;
    archive.read("optimizer", name);
    archive.read("parameters", count);
    archive.read("rates", saved_rates);
    rates = saved_rates.toDoubleVector();
    const std::string own_name = optim::name_of(impl_->options.front());
    if (name.toStringRef() != own_name ||
        count.toInt() != static_cast<std::int64_t>(impl_->parameters.size()) ||
        rates.size() != impl_->options.size()) {
      refuse(
          absl::StrFormat("the state that was saved is of %s with %d parameters in %d groups, "
                          "but this is %s with %d in %d",
                          name.toStringRef(), count.toInt(), rates.size(), own_name,
                          impl_->parameters.size(), impl_->options.size()));
    }
    loaded = impl_->read(archive, rates);
  } catch (const c10::Error& error) {
    refuse(absl::StrCat("the state cannot be read: ", error.what_without_backtrace()));
  }
  for (std::size_t i = 0; i < rates.size(); ++i) {
    optim::set_learning_rate(impl_->options[i], rates[i]);
  }
  for (std::size_t i = 0; i < loaded.size(); ++i) {
    if (loaded[i] != nullptr) impl_->parameters[i].optimizer = std::move(loaded[i]);
  }
}

std::size_t ZeroRedundancyOptimizer::state_bytes() const {
  std::size_t bytes = 0;
  for (const Impl::Parameter& parameter : impl_->parameters) {
    if (parameter.optimizer != nullptr) bytes += parameter.optimizer->state_bytes();
  }
  return bytes;
}

int ZeroRedundancyOptimizer::owner_of(std::size_t parameter) const {
  if (parameter < impl_->parameters.size()) return impl_->parameters[parameter].owner;
  throw RpcError(
      ErrorCode::kOutOfRange,
      absl::StrFormat("ZeroRedundancyOptimizer: there is no parameter %d, but %d of them",
                      parameter, impl_->parameters.size()));
}

// ---- Uneven inputs.

const ProcessGroup& ZeroRedundancyOptimizer::join_group() const { return impl_->group; }
void ZeroRedundancyOptimizer::enter_join(JoinSession* session) { impl_->session = session; }
void ZeroRedundancyOptimizer::leave_join() { impl_->session = nullptr; }

void ZeroRedundancyOptimizer::shadow(const JoinRound&) {
  impl_->step([](const at::Tensor& parameter) { return parameter.grad(); });
}

void ZeroRedundancyOptimizer::finish_join(int) {
  // Every rank has stepped its part in every round, so all have the same parameters.
}

}  // namespace sinew::parallel
