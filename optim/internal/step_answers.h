#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sinew/optim/internal/standby_messages.h"
#include "sinew/optim/internal/step_messages.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/ids.h"

namespace sinew::internal {

/// Of a step that has changed nothing.
StepAnswer refused(ErrorCode code, std::string text);

/// What an owner has answered to the steps of one optimizer, so that one that comes twice is
/// applied once. It remembers of each trainer what that may repeat, however many handles on the
/// optimizer a trainer has had. Not thread-safe.
class StepAnswers {
 public:
  /// `is_lost`: whether a trainer will ask for nothing more.
  explicit StepAnswers(std::function<bool(Incarnation trainer)> is_lost);

  /// The answer to a step that is not to be applied (any more): it was, or its trainer has given it
  /// up, or gives it up by asking for it. Nothing for one that is.
  std::optional<StepAnswer> find(const StepRequest& request);
  void add(const StepId& id, const StepAnswer& answer);
  /// As find() and add(), of a step that another owner has applied.
  void follow(const MirroredStep& step);
  /// All of them, and all of another owner instead of these.
  std::vector<TrainerAnswers> snapshot() const;
  void restore(const std::vector<TrainerAnswers>& trainers);
  /// How many answers are remembered.
  std::size_t size() const;

 private:
  struct Trainer {
    std::uint64_t live_from = 0;
    // By the number of the step.
    std::map<std::uint64_t, StepAnswer> answers;
  };
  void forget_lost_trainers();
  static void give_up_before(Trainer& trainer, std::uint64_t live_from);

  const std::function<bool(Incarnation)> is_lost_;
  // By incarnation.
  std::map<std::uint64_t, Trainer> trainers_;
  std::size_t trainers_before_pruning_;
};

}  // namespace sinew::internal
