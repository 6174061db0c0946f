#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "sinew/autograd/internal/local_backward.h"
#include "sinew/autograd/internal/pass_id.h"
#include "sinew/autograd/internal/pass_reductions.h"

namespace sinew::internal {

/// The gradients that the passes of one context have brought to the leaves of one worker. `.grad`
/// of the leaves is never touched. Not thread-safe.
///
/// What a pass has added can be taken back until a later one of its initiator adds something, which
/// says that it was done everywhere.
class GradientTable {
 public:
  /// Adds what a pass has brought. Takes a gradient's memory where nothing else holds it. `reduced`
  /// are leaves with gradients that take the place of what is there.
  void add(const PassId& pass, std::vector<LocalBackward::Leaf>& leaves,
           const PassReductions::Reduced& reduced = {});
  /// Takes back what the pass has added, if that still can be; otherwise returns false.
  bool undo(const PassId& pass);

  /// Multiplies the gradients of these leaves, once for each operation. From then on what the
  /// passes so far have added cannot be taken back.
  void scale(const std::vector<at::Tensor>& leaves, double factor, std::uint64_t operation);

  /// Undefined when there is none.
  at::Tensor find(const at::Tensor& leaf) const;
  /// Pairs of leaf and gradient.
  std::vector<std::pair<at::Tensor, at::Tensor>> all() const;
  void clear();

 private:
  /// What a pass that can be taken back has added. The first one's includes what was there before.
  struct Part {
    PassId pass;
    at::Tensor gradient;
  };
  struct Entry {
    at::Tensor leaf;
    /// What there is.
    at::Tensor gradient;
    /// Of the passes that cannot be taken back; undefined: nothing.
    at::Tensor settled;
    absl::InlinedVector<Part, 1> parts;
  };

  static void add_part(Entry& entry, const PassId& pass, at::Tensor gradient);
  static void take_out(Entry& entry, std::size_t number);
  static void settle(Entry& entry);
  void settle_those_before(const PassId& pass);

  absl::flat_hash_map<const c10::TensorImpl*, Entry> entries_;
  // Passes that have parts.
  std::vector<PassId> unsettled_;
  absl::flat_hash_set<std::uint64_t> scaled_;
};

}  // namespace sinew::internal
