#include "sinew/parallel/zero_redundancy_optimizer.h"

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include "ATen/Functions.h"
#include "ATen/core/grad_mode.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sinew/parallel/internal/c10d_bridge.h"
#include "sinew/parallel/internal/group_tensor.h"
#include "sinew/parallel/internal/module_parts.h"
#include "sinew/parallel/internal/optimizer_shard.h"
#include "sinew/rpc/base/error.h"

namespace sinew::parallel {
namespace {

[[noreturn]] void refuse_optimizer(const std::string& text) {
  throw RpcError(ErrorCode::kInvalidArgument, absl::StrCat("ZeroRedundancyOptimizer: ", text));
}

ProcessGroup require_valid(ProcessGroup group) {
  if (!group.valid())
    refuse_optimizer("the process group is empty: this process is not among its ranks");
  return group;
}

at::Tensor gradient_of(const at::Tensor& parameter) { return parameter.grad(); }

}  // namespace

struct ZeroRedundancyOptimizer::Impl {
  Impl(ProcessGroup a_group, const std::vector<ParameterGroup>& parameters)
      : group(require_valid(std::move(a_group))), shard(parameters, group.rank(), group.size()) {
    internal::check_equal_on_all_ranks(group, "parameters", shard.descriptions());
  }

  using Gradients = std::function<at::Tensor(const at::Tensor&)>;

  void step(const Gradients& gradient) {
    const JoinRound round = session == nullptr ? JoinRound{0, group.size()} : session->announce({});
    agree_on_options(round.root, /*has_inputs=*/true);
    if (round.active < group.size()) root_gradients(round.root, gradient);
    step_all(gradient);
  }
  void agree_on_options(int root, bool has_inputs);
  void step_all(const Gradients& gradient) {
    shard.step(gradient);
    for (int rank = 0; rank < group.size(); ++rank) {
      internal::broadcast_all(group, shard.parameters_of(rank), rank);
    }
  }
  Gradients root_gradients(int root, const Gradients& own) const;

  const ProcessGroup group;
  internal::OptimizerShard shard;
  JoinSession* session = nullptr;
};

// Before anything is stepped: each rank steps a part by its own options. Those without inputs
// follow, since what sets rates in a loop has ended there.
void ZeroRedundancyOptimizer::Impl::agree_on_options(int root, bool has_inputs) {
  if (group.size() == 1) return;
  const std::vector<std::string> lines = shard.option_lines();
  const at::Tensor words = at::zeros({group.size(), 2}, at::kLong);
  words[group.rank()][0] =
      static_cast<std::int64_t>(std::hash<std::string>()(absl::StrJoin(lines, "\n")));
  words[group.rank()][1] = has_inputs ? 1 : 0;
  const at::Tensor sent = internal::group_tensor(group, words);
  group.all_reduce(sent);
  const at::Tensor all = sent.cpu();
  const auto* const word = all.data_ptr<std::int64_t>();
  bool follow = false;
  bool differ = false;
  for (int rank = 0; rank < group.size(); ++rank) {
    if (word[2 * rank] != word[2 * root]) (word[2 * rank + 1] == 0 ? follow : differ) = true;
  }
  if (follow) {
    torch::serialize::OutputArchive own = shard.begin_state();
    const std::vector<std::string> texts =
        internal::gather_texts(group, internal::OptimizerShard::finish_state(own));
    if (!has_inputs) shard.take_options(texts.at(static_cast<std::size_t>(root)));
  }
  if (!differ) return;
  internal::check_equal_on_all_ranks(
      group, "options of a ZeroRedundancyOptimizer in one step (set them alike on all ranks)",
      shard.option_lines());
}

/// Gives the gradients that a rank with inputs has to those that have none.
ZeroRedundancyOptimizer::Impl::Gradients ZeroRedundancyOptimizer::Impl::root_gradients(
    int root, const Gradients& own) const {
  const at::AutoGradMode no_grad(false);
  const std::vector<at::Tensor> parameters = shard.parameters();
  const at::Tensor host = at::zeros({static_cast<std::int64_t>(parameters.size())}, at::kByte);
  std::vector<at::Tensor> gradients(parameters.size());
  for (std::size_t i = 0; i < parameters.size() && group.rank() == root; ++i) {
    const at::Tensor gradient = own(parameters[i]);
    if (!gradient.defined()) continue;
    host[static_cast<std::int64_t>(i)] = 1;
    gradients[i] =
        at::empty_like(parameters[i]).copy_(gradient.is_sparse() ? gradient.to_dense() : gradient);
  }
  const at::Tensor sent = internal::group_tensor(group, host);
  group.broadcast(sent, root);
  const at::Tensor there = sent.cpu();
  std::vector<at::Tensor> moved;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (there[static_cast<std::int64_t>(i)].item<int>() == 0) continue;
    if (!gradients[i].defined()) gradients[i] = at::empty_like(parameters[i]);
    moved.push_back(gradients[i]);
  }
  internal::broadcast_all(group, moved, root);
  return [parameters, gradients](const at::Tensor& parameter) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (parameters[i].is_same(parameter)) return gradients[i];
    }
    return at::Tensor();
  };
}

ZeroRedundancyOptimizer::ZeroRedundancyOptimizer(ProcessGroup group,
                                                 std::vector<ParameterGroup> parameters)
    : impl_(std::make_unique<Impl>(std::move(group), parameters)) {}

ZeroRedundancyOptimizer::ZeroRedundancyOptimizer(ProcessGroup group,
                                                 std::vector<at::Tensor> parameters,
                                                 const optim::Options& options)
    : ZeroRedundancyOptimizer(std::move(group),
                              std::vector<ParameterGroup>{{std::move(parameters), options}}) {}

ZeroRedundancyOptimizer::~ZeroRedundancyOptimizer() = default;

void ZeroRedundancyOptimizer::step() { impl_->step(gradient_of); }

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
  impl_->step([&context](const at::Tensor& parameter) {
    return autograd::gradient_of(context, parameter);
  });
}

void ZeroRedundancyOptimizer::zero_grad() const {
  const at::AutoGradMode no_grad(false);
  for (const at::Tensor& parameter : impl_->shard.parameters()) {
    const at::Tensor& gradient = parameter.grad();
    if (gradient.defined()) gradient.zero_();
  }
}

void ZeroRedundancyOptimizer::set_learning_rate(double lr) {
  for (std::size_t i = 0; i < impl_->shard.group_count(); ++i) set_learning_rate(i, lr);
}

void ZeroRedundancyOptimizer::set_learning_rate(std::size_t group, double lr) {
  impl_->shard.set_learning_rate(group, lr);
}

// ---- State.

std::string ZeroRedundancyOptimizer::save(int to) const {
  const ProcessGroup& group = impl_->group;
  if (to < 0 || to >= group.size()) {
    refuse_optimizer(absl::StrFormat("there is no rank %d that could save the state", to));
  }
  const std::string own = impl_->shard.save_part();
  const auto own_bytes = static_cast<std::int64_t>(own.size());
  std::vector<at::Tensor> sizes;
  for (int rank = 0; rank < group.size(); ++rank) {
    sizes.push_back(internal::group_tensor(group, at::zeros({1}, at::kLong)));
  }
  group.all_gather(sizes, internal::group_tensor(group, at::full({1}, own_bytes, at::kLong)));
  if (group.rank() != to) {
    const at::Tensor part = at::empty({own_bytes}, at::kByte);
    std::memcpy(part.data_ptr(), own.data(), own.size());
    group.send(internal::group_tensor(group, part), to);
    return "";
  }
  torch::serialize::OutputArchive state = impl_->shard.begin_state();
  for (int rank = 0; rank < group.size(); ++rank) {
    if (rank == to) {
      impl_->shard.add_part(own, rank, state);
      continue;
    }
    const std::int64_t bytes = sizes[static_cast<std::size_t>(rank)].item<std::int64_t>();
    at::Tensor part = internal::group_tensor(group, at::empty({bytes}, at::kByte));
    group.recv(part, rank);
    part = part.cpu();
    impl_->shard.add_part(std::string(static_cast<const char*>(part.data_ptr()), part.nbytes()),
                          rank, state);
  }
  return internal::OptimizerShard::finish_state(state);
}

void ZeroRedundancyOptimizer::load(const std::string& state) { impl_->shard.load(state); }

std::size_t ZeroRedundancyOptimizer::state_bytes() const { return impl_->shard.state_bytes(); }

int ZeroRedundancyOptimizer::owner_of(std::size_t parameter) const {
  return impl_->shard.owner_of(parameter);
}

// ---- Uneven inputs.

const ProcessGroup& ZeroRedundancyOptimizer::join_group() const { return impl_->group; }
void ZeroRedundancyOptimizer::enter_join(JoinSession* session) { impl_->session = session; }
void ZeroRedundancyOptimizer::leave_join() { impl_->session = nullptr; }

void ZeroRedundancyOptimizer::shadow(const JoinRound& round) {
  impl_->agree_on_options(round.root, /*has_inputs=*/false);
  impl_->step_all(impl_->root_gradients(round.root, gradient_of));
}

void ZeroRedundancyOptimizer::finish_join(int) {
  // Every rank has stepped its part in every round, so all have the same parameters.
}

}  // namespace sinew::parallel
