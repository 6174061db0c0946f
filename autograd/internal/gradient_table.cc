#include "sinew/autograd/internal/gradient_table.h"

#include "ATen/core/grad_mode.h"

namespace sinew::internal {
namespace {

using torch::autograd::AccumulateGrad;

at::Tensor sum(const at::Tensor& so_far, const at::Tensor& more) {
  return so_far.is_sparse() && !more.is_sparse() ? more + so_far : so_far + more;
}

}  // namespace

void GradientTable::add(const PassId& pass, std::vector<LocalBackward::Leaf>& leaves,
                        const PassReductions::Reduced& reduced) {
  const at::AutoGradMode no_grad(false);
  last_ = pass;
  before_.clear();
  for (LocalBackward::Leaf& leaf : leaves) {
    if (!leaf.gradient.defined()) continue;
    const at::Tensor& variable = leaf.node->variable;
    Entry& entry = entries_[variable.unsafeGetTensorImpl()];
    before_.push_back({variable, entry.gradient});
    entry.leaf = variable;
    if (entry.gradient.defined()) {
      // Not in place: the sum so far may be needed again, and somebody may have asked for it.
      entry.gradient = sum(entry.gradient, leaf.gradient);
      continue;
    }
    at::Tensor none;
    AccumulateGrad::accumulateGrad(variable, none, leaf.gradient, 1,
                                   [&](at::Tensor&& taken) { entry.gradient = std::move(taken); });
  }
  for (const auto& [leaf, gradient] : reduced) {
    Entry& entry = entries_[leaf.unsafeGetTensorImpl()];
    before_.push_back({leaf, entry.gradient});
    entry = {leaf, gradient};
  }
}

bool GradientTable::undo(const PassId& pass) {
  if (!last_.has_value() || !(*last_ == pass)) return false;
  for (Entry& entry : before_) {
    if (entry.gradient.defined()) {
      entries_[entry.leaf.unsafeGetTensorImpl()].gradient = std::move(entry.gradient);
    } else {
      entries_.erase(entry.leaf.unsafeGetTensorImpl());
    }
  }
  before_.clear();
  last_.reset();
  return true;
}

void GradientTable::scale(const std::vector<at::Tensor>& leaves, double factor,
                          std::uint64_t operation) {
  if (!scaled_.insert(operation).second) return;
  const at::AutoGradMode no_grad(false);
  before_.clear();
  last_.reset();
  for (const at::Tensor& leaf : leaves) {
    const auto found = entries_.find(leaf.unsafeGetTensorImpl());
    if (found == entries_.end() || !found->second.gradient.defined()) continue;
    // Not in place: somebody may have asked for it.
    found->second.gradient = found->second.gradient * factor;
  }
}

at::Tensor GradientTable::find(const at::Tensor& leaf) const {
  const auto found = entries_.find(leaf.unsafeGetTensorImpl());
  return found == entries_.end() ? at::Tensor() : found->second.gradient;
}

std::vector<std::pair<at::Tensor, at::Tensor>> GradientTable::all() const {
  std::vector<std::pair<at::Tensor, at::Tensor>> result;
  result.reserve(entries_.size());
  for (const auto& [key, entry] : entries_) result.emplace_back(entry.leaf, entry.gradient);
  return result;
}

void GradientTable::clear() {
  entries_.clear();
  scaled_.clear();
  before_.clear();
  last_.reset();
}

}  // namespace sinew::internal
