#pragma once

#include <cstdint>
#include <vector>

#include "sinew/optim/distributed_optimizer.h"
#include "sinew/optim/lr_schedule.h"
#include "sinew/rpc/call_options.h"

namespace sinew::optim {

/// Sets the learning rates of an optimizer step by step, at all owners.
///
///     sinew::optim::LrScheduler scheduler(
///         optimizer, sinew::optim::warm_up(500, sinew::optim::cosine_annealing_lr(9'500)));
///     ...
///     optimizer.step(context);
///     scheduler.step();
///
/// Initial rates are those of the options that the optimizer was made with, by group. Training that
/// goes on from a checkpoint makes its optimizer with the same options and says at which step it
/// is. Of trainers that share an optimizer one has a scheduler. Not thread-safe.
class LrScheduler {
 public:
  /// Sets the rates of `step`. Blocks. Throws RpcError as set_learning_rate() does, and
  /// kInvalidArgument for an empty schedule or a step below 0.
  LrScheduler(DistributedOptimizer optimizer, LrSchedule schedule, std::int64_t step = 0,
              const CallOptions& options = {});

  /// Goes to the next step and sets its rates; where they are the same, nothing is sent. When it
  /// throws, it may be called again, and counts once. Blocks.
  void step(const CallOptions& options = {});
  /// The rates that hold now, by group.
  std::vector<double> learning_rates() const;
  std::int64_t step_count() const { return step_; }

 private:
  std::vector<double> rates_at(std::int64_t step) const;
  void set(const std::vector<double>& rates, const CallOptions& options);

  DistributedOptimizer optimizer_;
  LrSchedule schedule_;
  std::vector<double> initial_;
  /// What the owners have been told; empty: not known.
  std::vector<double> told_;
  std::int64_t step_;
};

}  // namespace sinew::optim
