#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include "ATen/core/Tensor.h"
#include "sinew/autograd/context_id.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/worker.h"

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

/// Reduces the gradients of some leaves. A pass that reaches none of them counts too: the other
/// processes may be waiting for it. Thread-safe.
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

  /// What processes agree on between passes, lest two of them mean different things.
  enum class Subject : std::int32_t { kNorm = 1, kUnscaling = 2 };
  /// At most so many numbers.
  static constexpr std::size_t kMaxNumbers = 8;
  /// The largest of what all processes say, number by number. All of them call it, as they all run
  /// passes. None of the numbers is NaN. Blocks. Throws RpcError, kFailedPrecondition when
  /// processes mean different things. One that is alone has said all.
  virtual std::vector<double> largest(Subject /*subject*/, const std::vector<double>& own) {
    return own;
  }
};

/// Lets `reducer` take part in the next pass of the context that this thread works in. False when
/// it works in none, or in one that has ended.
bool reduce_in_current_context(const std::shared_ptr<LeafReducer>& reducer);
/// There will be no such pass: it has failed for those that were to take part in it. Does not
/// throw.
void fail_in_current_context(const std::exception_ptr& error);

// Of a context at this worker; where it is not here, there are none. Numbers say which ones.

/// The reducers that have had a say in it.
std::vector<std::uint64_t> reducers_in(const Worker& worker, const autograd::ContextId& context);
/// Those of them that some of these leaves belong to.
std::vector<std::uint64_t> reducers_of(const Worker& worker, const autograd::ContextId& context,
                                       const std::vector<at::Tensor>& leaves);
/// LeafReducer::largest() of each of them, in turn. Throws RpcError kInvalidArgument for a number
/// that is none.
std::vector<double> largest_of_processes(const Worker& worker, const autograd::ContextId& context,
                                         const std::vector<std::uint64_t>& reducers,
                                         LeafReducer::Subject subject, std::vector<double> own);

}  // namespace sinew::internal
