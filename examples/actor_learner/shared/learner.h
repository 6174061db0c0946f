#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "shared/transitions.h"
#include "sinew/sinew.h"

/// What actors and the learner say to each other.
namespace actor_learner {

/// The learner's worker, and what it publishes: the object to call, and the policy to act by.
inline constexpr char kLearnerWorker[] = "learner";
inline constexpr char kLearnerName[] = "learner";
inline constexpr char kWeightsName[] = "weights";

/// Versions of weights have, above these bits, the number of the learner's start that they come
/// from: later ones are greater, also when it was started again in between.
inline constexpr int kRunBits = 32;
/// "3.57"
inline std::string version_text(std::uint64_t version) {
  return std::to_string(version >> kRunBits) + "." +
         std::to_string(version & ((std::uint64_t{1} << kRunBits) - 1));
}

/// What an actor has played since its last push.
struct Played {
  Transitions transitions;
  /// Of the episodes that ended in it.
  std::vector<double> returns;
};

/// The answer to what was played.
struct Receipt {
  /// The training is over.
  bool finished = false;
};

/// What actors call. Lives at the learner, which publishes it under its name. Thread-safe.
class Learner {
 public:
  virtual ~Learner() = default;

  /// Takes over what was played. What comes twice, since its receipt was lost, is kept twice: that
  /// does no harm. Throws std::invalid_argument for tensors that are not what Transitions says.
  virtual Receipt push(const Played& played) = 0;
};

}  // namespace actor_learner

SINEW_STRUCT(actor_learner::Transitions, observations, actions, rewards, next_observations,
             terminals);
SINEW_STRUCT(actor_learner::Played, transitions, returns);
SINEW_STRUCT(actor_learner::Receipt, finished);
SINEW_METHOD(actor_learner::Learner::push);
