#include "sinew/autograd/internal/gradient_table.h"

#include <algorithm>

#include "ATen/core/grad_mode.h"

namespace sinew::internal {
namespace {

using torch::autograd::AccumulateGrad;

// Not in place: the sum so far may be needed again, and a caller may hold it.
at::Tensor sum(const at::Tensor& so_far, const at::Tensor& more) {
  if (!so_far.defined()) return more;
  return so_far.is_sparse() && !more.is_sparse() ? more + so_far : so_far + more;
}

}  // namespace

void GradientTable::add(const PassId& pass, std::vector<LocalBackward::Leaf>& leaves,
                        const PassReductions::Reduced& reduced) {
  const at::AutoGradMode no_grad(false);
  settle_those_before(pass);
  unsettled_.push_back(pass);
  for (LocalBackward::Leaf& leaf : leaves) {
    if (!leaf.gradient.defined()) continue;
    const at::Tensor& variable = leaf.node->variable;
    Entry& entry = entries_[variable.unsafeGetTensorImpl()];
    entry.leaf = variable;
    if (entry.parts.empty() && entry.gradient.defined()) {
      add_part(entry, pass, std::move(leaf.gradient));
      continue;
    }
    at::Tensor none;
    AccumulateGrad::accumulateGrad(variable, none, leaf.gradient, 1, [&](at::Tensor&& taken) {
      add_part(entry, pass, std::move(taken));
    });
  }
  for (const auto& [leaf, gradient] : reduced) {
    Entry& entry = entries_[leaf.unsafeGetTensorImpl()];
    entry.leaf = leaf;
    settle(entry);
    entry.parts.push_back({pass, gradient});
    entry.gradient = gradient;
  }
}

void GradientTable::add_part(Entry& entry, const PassId& pass, at::Tensor gradient) {
  if (entry.parts.empty()) entry.settled = entry.gradient;
  entry.gradient = sum(entry.gradient, gradient);
  entry.parts.push_back({pass, entry.parts.empty() ? entry.gradient : std::move(gradient)});
}

void GradientTable::take_out(Entry& entry, std::size_t number) {
  entry.parts.erase(entry.parts.begin() + static_cast<std::ptrdiff_t>(number));
  if (number == 0 && !entry.parts.empty()) {
    entry.parts.front().gradient = sum(entry.settled, entry.parts.front().gradient);
  }
  entry.gradient = entry.parts.empty() ? entry.settled : entry.parts.front().gradient;
  for (std::size_t i = 1; i < entry.parts.size(); ++i) {
    entry.gradient = sum(entry.gradient, entry.parts[i].gradient);
  }
}

void GradientTable::settle(Entry& entry) {
  entry.parts.clear();
  entry.settled = entry.gradient;
}

// Passes of one initiator run one after the other, and those that have failed have been taken back.
void GradientTable::settle_those_before(const PassId& pass) {
  const auto is_settled = [&](const PassId& other) { return other.initiator == pass.initiator; };
  if (std::none_of(unsettled_.begin(), unsettled_.end(), is_settled)) return;
  const bool all = std::all_of(unsettled_.begin(), unsettled_.end(), is_settled);
  unsettled_.erase(std::remove_if(unsettled_.begin(), unsettled_.end(), is_settled),
                   unsettled_.end());
  for (auto& [key, entry] : entries_) {
    if (all) {
      settle(entry);
      continue;
    }
    for (std::size_t i = 0; i < entry.parts.size(); ++i) {
      if (!is_settled(entry.parts[i].pass)) continue;
      if (i == 0) {
        entry.settled = entry.parts[0].gradient;
      } else {
        entry.settled = sum(entry.settled, entry.parts[i].gradient);
        entry.parts[0].gradient = sum(entry.parts[0].gradient, entry.parts[i].gradient);
      }
      take_out(entry, i--);
    }
  }
}

bool GradientTable::undo(const PassId& pass) {
  const auto found = std::find(unsettled_.begin(), unsettled_.end(), pass);
  if (found == unsettled_.end()) return false;
  unsettled_.erase(found);
  const at::AutoGradMode no_grad(false);
  for (auto at = entries_.begin(); at != entries_.end();) {
    const auto next = std::next(at);
    Entry& entry = at->second;
    for (std::size_t i = 0; i < entry.parts.size(); ++i) {
      if (entry.parts[i].pass == pass) take_out(entry, i--);
    }
    if (!entry.gradient.defined()) entries_.erase(at);
    at = next;
  }
  return true;
}

void GradientTable::scale(const std::vector<at::Tensor>& leaves, double factor,
                          std::uint64_t operation) {
  if (!scaled_.insert(operation).second) return;
  const at::AutoGradMode no_grad(false);
  unsettled_.clear();
  for (auto& [key, entry] : entries_) settle(entry);
  for (const at::Tensor& leaf : leaves) {
    const auto found = entries_.find(leaf.unsafeGetTensorImpl());
    if (found == entries_.end()) continue;
    // Not in place: a caller may hold it.
    Entry& entry = found->second;
    entry.settled = entry.gradient = entry.gradient * factor;
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
  unsettled_.clear();
}

}  // namespace sinew::internal
