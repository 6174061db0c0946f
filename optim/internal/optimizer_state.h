#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/core/grad_mode.h"
#include "absl/base/thread_annotations.h"
#include "sinew/optim/internal/checkpoint_folder.h"
#include "sinew/optim/internal/local_optimizer.h"
#include "sinew/optim/internal/mirror.h"
#include "sinew/optim/internal/optim_manager.h"
#include "sinew/optim/internal/optimized_parameter.h"
#include "sinew/optim/internal/pending_saves.h"
#include "sinew/optim/internal/standby_messages.h"
#include "sinew/optim/internal/step_answers.h"
#include "sinew/optim/internal/torch_optimizer.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/call_context.h"

namespace sinew::internal {

/// What a LocalOptimizer has. Used by the holder of the gate of its parameters.
class OptimizerState : public std::enable_shared_from_this<OptimizerState> {
 public:
  OptimizerState(const Worker& worker, const std::vector<OptimizerGroup>& groups);
  ~OptimizerState();

  // ---- Thread-safe.

  const std::vector<double>& initial_learning_rates() const { return initial_rates_; }
  /// By which the parts of checkpoints are found: of this worker, or of the first owner whose
  /// standby this is.
  std::string name() const;
  PendingSaves& pending_saves() { return pending_saves_; }
  /// Runs `work(*this, worker, deadline)` when nothing else works on the parameters. It returns the
  /// result, or a future of it, for which the parameters are not held.
  template <class Result, class Work>
  Future<Result> when_free(Work work);

  // ---- While the gate is held.

  /// The future of a step: done when the standby has it too, if there is one.
  Future<StepAnswer> step(const Worker& worker, const StepRequest& request,
                          Clock::TimePoint deadline);
  const Binding& binding() const { return binding_; }
  /// `groups`: nothing when the parameters are the same for certain.
  void bind(const Binding& binding, const std::optional<ParametersByGroup>& groups);
  /// Done when the standby has it too.
  Future<void> set_learning_rate(std::size_t group, double lr);
  Future<void> set_options(std::size_t group, const optim::Options& options);
  std::vector<at::Tensor> parameters() const;
  const optim::Options& options(std::size_t group) const { return options_.at(group); }
  void keep(const std::vector<at::Tensor>& tensors);
  CheckpointManifest manifest() const;
  std::string serialize() const;
  void prepare_load(const CheckpointFolder& folder, const CheckpointManifest& manifest,
                    std::uint64_t load);
  Future<void> apply_load(std::uint64_t load);
  void drop_load(std::uint64_t load);

  /// What a standby has to be made of.
  OwnerMake make() const;
  /// Makes room for another one: done when the standby that there is knows that it is none any
  /// more. Neither this nor the next changes anything after a step that failed half-way: they throw
  /// RpcError kFailedPrecondition.
  Future<void> dismiss_standby();
  /// Done when it has caught up.
  Future<void> add_standby(const Worker& worker, const RRef<LocalOptimizer>& standby,
                           std::uint64_t stream, Clock::TimePoint deadline);

  // Of a standby.

  /// Throws RpcError kInvalidArgument unless this is made of the same.
  void check_fits(const OwnerMake& make) const;
  FollowOutcome follow(const ChangeId& id, const OwnerSnapshot& snapshot);
  FollowOutcome follow(const ChangeId& id, const MirroredStep& step);
  FollowOutcome follow(const ChangeId& id, std::size_t group, const optim::Options& options);
  FollowOutcome dismiss(std::uint64_t stream);
  void take_over(const Binding& binding, std::uint64_t acknowledged);

 private:
  /// What a load will change.
  struct Prepared {
    std::uint64_t load = 0;
    std::uint64_t version = 0;
    std::vector<optim::Options> options;
    std::vector<at::Tensor> values;
    std::vector<at::Tensor> kept;
    std::unique_ptr<TorchOptimizer> optimizer;
  };
  /// What a standby has been.
  struct Following {
    std::uint64_t stream = 0;
    /// Why it cannot take over; empty: it can.
    std::string fault;
    bool has_taken_over = false;
  };
  using Stepped = std::vector<std::pair<std::size_t, at::Tensor>>;

  template <class Result>
  static void settle(const Promise<Result>& promise, const Future<Result>& done);
  /// A file, or a snapshot, which has nothing that is kept.
  Prepared read(torch::serialize::InputArchive& archive, const std::vector<at::Tensor>& kept) const;
  void apply(Prepared prepared);
  StepAnswer apply(const Worker& worker, const StepRequest& request);
  /// What went wrong; empty: nothing.
  std::string apply(const Stepped& gradients);
  void check_same(const ParametersByGroup& groups) const;
  void change_options(std::size_t group, const optim::Options& options);
  std::unique_ptr<TorchOptimizer> make_optimizer(const std::vector<optim::Options>& options) const;
  std::vector<optim::Options> read_options(torch::serialize::InputArchive& archive) const;
  StepAnswer step_once(const Worker& worker, const StepRequest& request, Clock::TimePoint deadline);
  std::string serialize(const std::vector<at::Tensor>& kept) const;

  bool has_standby() const { return mirror_ != nullptr && mirror_->is_followed(); }
  void count_answers(std::size_t before);
  OwnerSnapshot snapshot() const;
  /// Nothing without a standby.
  Stepped copies_for_standby(const Stepped& gradients) const;
  void mirror(const StepRequest& request, const StepAnswer& answer, Stepped gradients);
  Future<void> mirrored() const;
  void check_is_whole() const;
  /// Throws RpcError kAborted for a change that is not of the stream that is followed.
  Following& following(std::uint64_t stream);
  Stepped checked(const MirroredStep& step) const;
  void follow_order(std::uint64_t order);
  void check_fits(const OwnerSnapshot& snapshot) const;

  const std::shared_ptr<OptimManager> manager_;
  std::vector<double> initial_rates_;
  PendingSaves pending_saves_;
  mutable Mutex mutex_;
  std::string name_ ABSL_GUARDED_BY(mutex_);
  // Everything below is for the holder of the gate for keys_.
  std::vector<const void*> keys_;
  std::vector<OptimizedParameter> parameters_;
  // Of checkpoints only, and shared with the program.
  std::vector<at::Tensor> kept_;
  std::vector<optim::Options> options_;
  std::unique_ptr<TorchOptimizer> optimizer_;
  std::optional<Prepared> prepared_;
  Binding binding_;
  std::uint64_t version_ = 0;
  // Of the last step: the owner's, where this is a standby.
  std::uint64_t order_ = 0;
  StepAnswers answers_;
  // What went wrong in the middle of a step; empty: nothing.
  std::string broken_;
  // Null: it never had a standby.
  std::shared_ptr<Mirror> mirror_;
  // Nothing: it never was a standby.
  std::optional<Following> following_;
};

template <class Result>
void OptimizerState::settle(const Promise<Result>& promise, const Future<Result>& done) {
  if (const std::exception_ptr error = done.error()) {
    promise.set_error(error);
  } else if constexpr (std::is_void_v<Result>) {
    promise.set_value();
  } else {
    promise.set_value(done.value());
  }
}

template <class Result, class Work>
Future<Result> OptimizerState::when_free(Work work) {
  Promise<Result> promise;
  Future<Result> future = promise.future();
  manager_->gate()->run(
      keys_, [self = shared_from_this(), promise, worker = current_worker(),
              deadline = CallContext::current().deadline(), work = std::move(work)] {
        try {
          const at::AutoGradMode no_grad(false);
          using Outcome = decltype(work(*self, worker, deadline));
          if constexpr (std::is_same_v<Outcome, Future<Result>>) {
            const Future<Result> outcome = work(*self, worker, deadline);
            // Without the way over another thread, if possible.
            if (outcome.done()) {
              settle(promise, outcome);
            } else {
              outcome.on_done([promise](const Future<Result>& done) { settle(promise, done); });
            }
          } else if constexpr (std::is_void_v<Result>) {
            work(*self, worker, deadline);
            promise.set_value();
          } else {
            promise.set_value(work(*self, worker, deadline));
          }
        } catch (...) {
          promise.set_error(std::current_exception());
        }
      });
  return future;
}

}  // namespace sinew::internal
