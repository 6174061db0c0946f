#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "shared/transitions.h"
#include "sinew/sinew.h"

/// What actors and the learner say to each other.
namespace actor_learner {

/// The learner's worker, and what it publishes.
inline constexpr char kLearnerWorker[] = "learner";
inline constexpr char kLearnerName[] = "learner";

/// Which weights. Later ones are greater, also when the learner was started again in between.
struct Version {
  /// Which start of the learner they come from.
  std::int64_t run = 0;
  /// Of those that it has published.
  std::int64_t number = 0;

  friend bool operator==(const Version& a, const Version& b) {
    return a.run == b.run && a.number == b.number;
  }
  friend bool operator!=(const Version& a, const Version& b) { return !(a == b); }
};
/// "3.57"
inline std::string to_string(const Version& version) {
  return std::to_string(version.run) + "." + std::to_string(version.number);
}

/// The policy to act by.
struct Weights {
  Version version;
  /// As Policy::parameters() has them.
  std::vector<at::Tensor> parameters;
};

/// What an actor has played since its last push.
struct Played {
  Transitions transitions;
  /// Of the episodes that ended in it.
  std::vector<double> returns;
};

/// The answer to what was played.
struct Receipt {
  /// The weights that there are now.
  Version newest;
  /// The training is over: there will be no others.
  bool finished = false;
};

/// What actors call. Lives at the learner, which publishes it under its name. Thread-safe.
class Learner {
 public:
  virtual ~Learner() = default;

  /// Takes over what was played. What comes twice, since its receipt was lost, is kept twice: that
  /// does no harm. Throws std::invalid_argument for tensors that are not what Transitions says.
  virtual Receipt push(const Played& played) = 0;
  virtual Weights weights() const = 0;
};

}  // namespace actor_learner

SINEW_STRUCT(actor_learner::Transitions, observations, actions, rewards, next_observations,
             terminals);
SINEW_STRUCT(actor_learner::Version, run, number);
SINEW_STRUCT(actor_learner::Weights, version, parameters);
SINEW_STRUCT(actor_learner::Played, transitions, returns);
SINEW_STRUCT(actor_learner::Receipt, newest, finished);
SINEW_METHOD(actor_learner::Learner::push, actor_learner::Learner::weights);
