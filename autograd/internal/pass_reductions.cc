#include "sinew/autograd/internal/pass_reductions.h"

namespace sinew::internal {

PassReductions::PassReductions(std::vector<std::shared_ptr<LeafReducer>> reducers,
                               const std::function<LeafReducer::Leaf(const at::Tensor&)>& look_up) {
  for (std::shared_ptr<LeafReducer>& reducer : reducers) {
    std::vector<LeafReducer::Leaf> leaves;
    for (const at::Tensor& leaf : reducer->leaves()) {
      places_.emplace(leaf.unsafeGetTensorImpl(), Place{parts_.size(), leaves.size()});
      leaves.push_back(look_up(leaf));
    }
    try {
      std::shared_ptr<LeafReduction> reduction = reducer->begin(leaves);
      parts_.push_back({std::move(reducer), std::move(reduction)});
    } catch (...) {
      fail(std::current_exception());
      throw;
    }
  }
}

void PassReductions::fail_all(std::vector<std::shared_ptr<LeafReducer>> reducers,
                              const std::exception_ptr& error) {
  try {
    const PassReductions none(std::move(reducers),
                              [](const at::Tensor&) { return LeafReducer::Leaf(); });
    none.fail(error);
  } catch (const std::exception&) {
    return;  // They could not begin, and have told so those that had.
  }
}

std::vector<std::shared_ptr<LeafReducer>> PassReductions::reducers() const {
  std::vector<std::shared_ptr<LeafReducer>> reducers;
  for (const Part& part : parts_) reducers.push_back(part.reducer);
  return reducers;
}

void PassReductions::on_gradient(const at::Tensor& leaf, at::Tensor gradient) const {
  const Place& place = places_.at(leaf.unsafeGetTensorImpl());
  parts_[place.part].reduction->on_gradient(place.leaf, std::move(gradient));
}

Future<PassReductions::Reduced> PassReductions::finish() const {
  std::vector<Future<std::vector<at::Tensor>>> all;
  all.reserve(parts_.size());
  for (const Part& part : parts_) all.push_back(part.reduction->finish());
  return collect_all(std::move(all))
      .then([parts = parts_](const std::vector<std::vector<at::Tensor>>& gradients) {
        Reduced reduced;
        for (std::size_t i = 0; i < parts.size(); ++i) {
          const std::vector<at::Tensor>& leaves = parts[i].reducer->leaves();
          for (std::size_t leaf = 0; leaf < leaves.size(); ++leaf) {
            const at::Tensor& gradient = gradients[i].at(leaf);
            if (gradient.defined()) reduced.emplace_back(leaves[leaf], gradient);
          }
        }
        return reduced;
      });
}

void PassReductions::fail(const std::exception_ptr& error) const {
  for (const Part& part : parts_) part.reduction->fail(error);
}

}  // namespace sinew::internal
