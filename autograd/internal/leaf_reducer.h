#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <vector>

#include "ATen/core/Tensor.h"
#include "sinew/rpc/base/future.h"

namespace sinew::internal {

/// One backward pass's part in combining the gradients of leaves of this worker with those that
/// other processes have, before the context gets them. Thread-safe.
class LeafReduction {
 public:
  virtual ~LeafReduction() = default;

  /// The pass has all of its gradient of a leaf, by its number in LeafReducer::leaves(); undefined:
  /// zeros. Once for each leaf that the pass reaches. Runs within a node of LibTorch's engine where
  /// the rest of the pass goes on meanwhile; does not block. What it throws makes the pass fail.
  virtual void on_gradient(std::size_t leaf, at::Tensor gradient) = 0;

  /// Nothing else is left of the pass at this worker. The value has for each leaf what the context
  /// is to have from now on; undefined: what it has. With an error the pass fails.
  virtual Future<std::vector<at::Tensor>> finish() = 0;

  /// The pass has failed, at any time since begin(), also long after finish(): then what it has
  /// added is taken back. Does not block, does not throw.
  virtual void fail(const std::exception_ptr& error) = 0;
};

/// Has a say in the gradients of some leaves. A pass that reaches none of them counts too: the
/// other processes may be waiting for it. Thread-safe.
class LeafReducer {
 public:
  /// What a pass does with a leaf.
  struct Leaf {
    /// There will be an on_gradient().
    bool reached = false;
    /// What the context has before the pass; undefined: nothing.
    at::Tensor so_far;
  };

  virtual ~LeafReducer() = default;

  /// Constant; without duplicates.
  virtual const std::vector<at::Tensor>& leaves() const = 0;
  /// A pass begins at this worker. What it throws makes the pass fail.
  virtual std::shared_ptr<LeafReduction> begin(const std::vector<Leaf>& leaves) = 0;
};

/// Lets `reducer` take part in the next pass of the context that this thread works in. False when
/// it works in none, or in one that has ended.
bool reduce_in_current_context(const std::shared_ptr<LeafReducer>& reducer);

}  // namespace sinew::internal
