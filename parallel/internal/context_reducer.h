#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "sinew/autograd/internal/leaf_reducer.h"
#include "sinew/groups/process_group.h"
#include "sinew/parallel/comm_hook.h"
#include "sinew/parallel/ddp_options.h"
#include "sinew/parallel/internal/module_parts.h"
#include "sinew/parallel/internal/pass_votes.h"
#include "sinew/parallel/join.h"
#include "sinew/rpc/base/internal/mutex.h"

namespace sinew::parallel::internal {

class ContextReduction;

/// Reduces the gradients that passes of autograd contexts bring to a module's parameters, bucket by
/// bucket while the pass runs. At its end the ranks say to each other whether their passes have
/// gone well: all keep the reduced gradients, or none does. Thread-safe; one pass at a time.
class ContextReducer final : public sinew::internal::LeafReducer,
                             public std::enable_shared_from_this<ContextReducer> {
 public:
  struct Setup {
    /// Used by nobody else, so that what others do meanwhile does not come in between.
    ProcessGroup group;
    std::vector<NamedTensor> parameters;
    /// Numbers of parameters, in the order in which buckets are reduced.
    std::vector<std::vector<std::size_t>> buckets;
    CommHook hook;
    UnusedParameters unused = UnusedParameters::kForbidden;
    /// Runs at the beginning of each pass.
    std::function<void()> on_begin;
    /// What this rank says of the pass that runs.
    std::function<PassVote(PassVote::Kind kind)> vote;
  };
  explicit ContextReducer(Setup setup);

  const std::vector<at::Tensor>& leaves() const override { return leaves_; }
  std::shared_ptr<sinew::internal::LeafReduction> begin(const std::vector<Leaf>& leaves) override;
  std::vector<double> largest(Subject subject, const std::vector<double>& own) override;

  /// Takes part in a pass of the other ranks, without gradients. Blocks; throws RpcError.
  void shadow();
  /// Takes part in a largest() of the other ranks, and says nothing.
  void shadow_largest();
  /// Not null: each largest() is announced there first, to ranks that have run out of inputs.
  void set_session(JoinSession* session);
  /// A pass reduces at this moment.
  bool runs() const;
  /// What means are over while some ranks have run out of inputs.
  void set_division(JoinDivision division);

 private:
  friend class ContextReduction;

  /// Lets `reduction` start its operations, after those of one that has failed.
  void start(const std::shared_ptr<ContextReduction>& reduction);
  /// All operations of the running pass have been started.
  void end();
  /// The ranks have kept the gradients of a pass, or taken them back.
  void count_kept(int difference);
  std::int64_t kept() const;
  JoinDivision division() const;
  /// The elementwise maximum over all ranks. For one thread at a time.
  void exchange(at::Tensor& words);

  const Setup setup_;
  const std::vector<at::Tensor> leaves_;

  mutable sinew::internal::Mutex mutex_;
  // The one that starts its operations.
  std::shared_ptr<ContextReduction> running_ ABSL_GUARDED_BY(mutex_);
  // The one after it, which waits with its own.
  std::shared_ptr<ContextReduction> next_ ABSL_GUARDED_BY(mutex_);
  JoinDivision division_ ABSL_GUARDED_BY(mutex_) = JoinDivision::kInitialWorldSize;
  JoinSession* session_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool agreeing_ ABSL_GUARDED_BY(mutex_) = false;
  // Of whoever is agreeing. Not the group of passes: what one rank leaves out must not pair with a
  // bucket. Made at the first time, which all ranks do together.
  ProcessGroup agreement_;
  // Passes whose gradients this rank has kept. The same on all ranks, or they have parted.
  std::int64_t kept_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sinew::parallel::internal
