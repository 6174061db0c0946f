#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "sinew/autograd/internal/local_backward.h"
#include "sinew/autograd/internal/pass_id.h"
#include "sinew/autograd/internal/pass_reductions.h"

namespace sinew::internal {

/// The gradients that the passes of one context have brought to the leaves of one worker. `.grad`
/// of the leaves is never touched. Not thread-safe.
class GradientTable {
 public:
  /// Adds what a pass has brought. Takes a gradient's memory where nobody else holds it. `reduced`
  /// are leaves with gradients that take the place of what is there.
  void add(const PassId& pass, std::vector<LocalBackward::Leaf>& leaves,
           const PassReductions::Reduced& reduced = {});
  /// Takes back what the last pass has added, if it was this one; otherwise returns false.
  bool undo(const PassId& pass);

  /// Multiplies the gradients of these leaves, once for each operation. From then on what the last
  /// pass has added cannot be taken back.
  void scale(const std::vector<at::Tensor>& leaves, double factor, std::uint64_t operation);

  /// Undefined when there is none.
  at::Tensor find(const at::Tensor& leaf) const;
  /// Pairs of leaf and gradient.
  std::vector<std::pair<at::Tensor, at::Tensor>> all() const;
  void clear();

 private:
  struct Entry {
    at::Tensor leaf;
    at::Tensor gradient;
  };
  absl::flat_hash_map<const c10::TensorImpl*, Entry> entries_;
  // What the leaves of the last pass had before it.
  std::optional<PassId> last_;
  std::vector<Entry> before_;
  absl::flat_hash_set<std::uint64_t> scaled_;
};

}  // namespace sinew::internal
