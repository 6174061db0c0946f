#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sinew/autograd/internal/leaf_reducer.h"

namespace sinew::internal {

/// What takes part in one backward pass at one worker to reduce gradients of leaves. Constant after
/// construction, and thread-safe as the reductions are; copies share them.
class PassReductions {
 public:
  /// Leaves, and what the context is to have for each.
  using Reduced = std::vector<std::pair<at::Tensor, at::Tensor>>;

  /// None.
  PassReductions() = default;
  /// Begins those of `reducers`, of which each leaf belongs to one. Throws what begin() throws,
  /// when those that had begun have failed.
  PassReductions(std::vector<std::shared_ptr<LeafReducer>> reducers,
                 const std::function<LeafReducer::Leaf(const at::Tensor&)>& look_up);

  /// Of a pass that never began: the other processes of `reducers` must not wait for it.
  static void fail_all(std::vector<std::shared_ptr<LeafReducer>> reducers,
                       const std::exception_ptr& error);

  bool empty() const { return parts_.empty(); }
  std::vector<std::shared_ptr<LeafReducer>> reducers() const;
  bool has(const at::Tensor& leaf) const { return places_.contains(leaf.unsafeGetTensorImpl()); }
  /// `leaf` is one that it has.
  void on_gradient(const at::Tensor& leaf, at::Tensor gradient) const;
  Future<Reduced> finish() const;
  void fail(const std::exception_ptr& error) const;

 private:
  struct Part {
    std::shared_ptr<LeafReducer> reducer;
    std::shared_ptr<LeafReduction> reduction;
  };
  struct Place {
    std::size_t part = 0;
    std::size_t leaf = 0;
  };
  std::vector<Part> parts_;
  absl::flat_hash_map<const c10::TensorImpl*, Place> places_;
};

}  // namespace sinew::internal
