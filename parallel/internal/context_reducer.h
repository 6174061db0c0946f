#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "sinew/autograd/internal/leaf_reducer.h"
#include "sinew/groups/process_group.h"
#include "sinew/parallel/comm_hook.h"
#include "sinew/parallel/ddp_options.h"
#include "sinew/parallel/internal/module_parts.h"
#include "sinew/parallel/internal/pass_watch.h"
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
    /// Not used by other code, so that no other operation comes in between.
    ProcessGroup group;
    std::vector<NamedTensor> parameters;
    /// Numbers of parameters, in the order in which buckets are reduced.
    std::vector<std::vector<std::size_t>> buckets;
    CommHook hook;
    UnusedParameters unused = UnusedParameters::kForbidden;
    /// Knows what this rank says of a pass. It may be gone before the last pass has ended.
    std::weak_ptr<PassWatch> watch;
  };
  explicit ContextReducer(Setup setup);

  const std::vector<at::Tensor>& leaves() const override { return leaves_; }
  std::shared_ptr<sinew::internal::LeafReduction> begin(const std::vector<Leaf>& leaves) override;
  std::vector<double> largest(Subject subject, const std::vector<double>& own) override;

  /// Takes part in a pass of the other ranks, without gradients. Blocks; throws RpcError.
  void shadow();
  /// This rank has left the step before its pass: takes part in that of the others, which fails on
  /// all ranks. Does not block.
  void leave(const std::exception_ptr& error);
  /// Blocks until the others have heard of the last pass, if that has failed here.
  void await_end() const;
  /// This rank has left the step behind its pass: a largest() in which others are, or come to
  /// before their next pass, fails there. Does not block.
  void leave_behind_pass();
  /// Passes whose gradients this rank has kept.
  std::int64_t kept() const;
  /// For largest(), the first time that all ranks call either. Before steps that ranks may leave,
  /// so that who leaves before the first largest() is heard there. Blocks.
  void meet();
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
  /// The running pass needs the group no more.
  void end();
  /// The ranks have kept the gradients of a pass, or taken them back.
  void count_kept(int difference);
  JoinDivision division() const;
  at::Tensor nothing_said() const;
  /// The elementwise maximum over all ranks. For one thread at a time. kAborted when a rank has
  /// left this step.
  at::Tensor exchange(const at::Tensor& words);
  bool have_left(const at::Tensor& words) const;

  const Setup setup_;
  const std::vector<at::Tensor> leaves_;

  mutable sinew::internal::Mutex mutex_;
  // The one whose operations run.
  std::shared_ptr<ContextReduction> running_ ABSL_GUARDED_BY(mutex_);
  // Those after it. All but the last one have failed.
  std::deque<std::shared_ptr<ContextReduction>> waiting_ ABSL_GUARDED_BY(mutex_);
  JoinDivision division_ ABSL_GUARDED_BY(mutex_) = JoinDivision::kInitialWorldSize;
  JoinSession* session_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool agreeing_ ABSL_GUARDED_BY(mutex_) = false;
  // Of the thread that is agreeing. Not the group of passes: what one rank leaves out must not pair
  // with a bucket. Made by meet().
  ProcessGroup agreement_;
  // Passes whose gradients this rank has kept. The same on all ranks, or they have parted.
  std::int64_t kept_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sinew::parallel::internal
