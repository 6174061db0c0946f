#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/base/thread_annotations.h"
#include "sinew/groups/process_group.h"
#include "sinew/parallel/ddp_options.h"
#include "sinew/parallel/internal/c10d_reducer.h"
#include "sinew/parallel/internal/gradient_hooks.h"
#include "sinew/parallel/internal/module_parts.h"
#include "sinew/parallel/internal/pass_votes.h"
#include "sinew/rpc/base/internal/mutex.h"

namespace sinew::parallel::internal {

/// The backward passes that LibTorch's engine does of one replica: which calls of forward() they
/// come from, and, at the end of each, whether all ranks were in the same one and got the gradients
/// that they must have. Otherwise backward() throws RpcError on all ranks. Thread-safe.
class PassWatch : public std::enable_shared_from_this<PassWatch> {
 public:
  struct Setup {
    ProcessGroup group;
    /// Which module this is: the same on all ranks, another one for each on a group.
    std::int64_t module = 0;
    std::vector<NamedTensor> parameters;
    UnusedParameters unused = UnusedParameters::kForbidden;
    std::shared_ptr<GradientHooks> hooks;
    std::shared_ptr<C10dReducer> reducer;
  };
  explicit PassWatch(Setup setup) : setup_(std::move(setup)) {}

  /// Before the first forward() in a context. `runs`: whether a pass of one reduces the gradients
  /// at this moment.
  void watch_contexts(std::function<bool()> runs) { runs_in_context_ = std::move(runs); }
  /// A forward() whose gradients are to be reduced has returned `outputs`. `in_context`: those of
  /// the context's next pass.
  void expect(const std::vector<at::Tensor>& outputs, bool in_context);
  /// Throws RpcError kFailedPrecondition while a pass runs, which is another thread's then.
  void check_idle() const;
  /// Returns when all ranks have reached the end of a pass that has failed on this one. Throws
  /// RpcError.
  void settle_failed_pass();
  /// This rank's parameters may have become others than those of other ranks: the next pass
  /// compares.
  void doubt();

  /// A gradient is about to come to a parameter.
  void begin();
  /// The others have called forward(), without this rank, which has no inputs left.
  void skip_call();
  /// Takes part in the end of their pass. Blocks; throws RpcError.
  void shadow();

  /// This rank has left the step before its pass for that reason: takes part in the end of the
  /// others' pass. Blocks; throws RpcError.
  void leave(const std::string& reason);
  /// How many votes this has brought to all ranks.
  std::int64_t votes() const;
  /// A step that all ranks do or leave together. In a context a pass of LibTorch's engine is an
  /// error meanwhile: ranks that leave the step count on one of the context.
  void begin_step(bool in_context);
  void end_step();

  // Passes of contexts bring their votes to all ranks by themselves.
  void begin_in_context();
  PassVote vote(PassVote::Kind kind) const;
  /// All ranks have heard what all say: after failures they count calls of forward() alike.
  void align(const PassVotes& votes);
  /// They have kept the gradients, and compared what one was in doubt of.
  void trust();

 private:
  struct Ending;
  struct Votes;

  /// A gradient has arrived at what a forward() has returned.
  void on_output(std::int64_t call, bool in_context);
  void reach(std::int64_t call, bool in_context);
  /// The pass brings no more gradients.
  void on_last_gradient();
  void check_is_none_of_a_context(std::size_t missing) const;
  std::shared_ptr<Votes> start_votes(PassVote::Kind kind, const std::string& reason);
  void read_votes(const Votes& votes);
  void finish_pass();
  /// If it still runs: it has failed.
  void forget_pass(std::int64_t pass);
  /// Starts what the other ranks still expect of a pass that has failed here, so that they hear of
  /// it at its end.
  void give_up();
  void reduce_rest();
  /// Also counts what passes without reduction have brought.
  void arm(const std::function<void()>& prepare);

  const Setup setup_;
  std::function<bool()> runs_in_context_;

  mutable sinew::internal::Mutex mutex_;
  std::int64_t calls_ ABSL_GUARDED_BY(mutex_) = 0;
  // Whose gradients are in the pass.
  std::set<std::int64_t> reached_ ABSL_GUARDED_BY(mutex_);
  // One of them was called in a context.
  bool may_be_contexts_ ABSL_GUARDED_BY(mutex_) = false;
  // The number of the one that runs, 0: none does.
  std::int64_t running_ ABSL_GUARDED_BY(mutex_) = 0;
  std::int64_t passes_ ABSL_GUARDED_BY(mutex_) = 0;
  // All of the one that runs has been started, and this rank has said how it went.
  bool has_voted_ ABSL_GUARDED_BY(mutex_) = false;
  // Of the latest one that has failed here.
  std::shared_ptr<const Votes> given_up_ ABSL_GUARDED_BY(mutex_);
  std::int64_t votes_ ABSL_GUARDED_BY(mutex_) = 0;
  // How many have ended well on all ranks, as far as this one knows.
  std::int64_t kept_ ABSL_GUARDED_BY(mutex_) = 0;
  bool doubts_ ABSL_GUARDED_BY(mutex_) = false;
  bool in_step_ ABSL_GUARDED_BY(mutex_) = false;
  bool expects_context_ ABSL_GUARDED_BY(mutex_) = false;
};

/// What follows from what all ranks say, on all of them: throws RpcError when a pass has failed
/// (`reason`: this rank's own, if it did) or ranks are in different ones, and compares parameters
/// when one is in doubt of them. Blocks then.
void obey(const ProcessGroup& group, const PassVotes& votes, const std::string& reason,
          const std::vector<NamedTensor>& parameters);

}  // namespace sinew::parallel::internal
