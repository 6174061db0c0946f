#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "cart_pole.h"
#include "observer.h"
#include "policy.h"
#include "reward_curve.h"
#include "sinew/sinew.h"

namespace rl {

struct AgentSettings {
  /// Discount of later rewards.
  double gamma = 1.0;
  std::uint64_t seed = 1;
  /// Steps of one episode, shared out among the observers.
  std::int64_t max_steps = 500;
  ActionCalls action_calls = ActionCalls::kSingle;
  RewardCalls reward_calls = RewardCalls::kOverlapped;
};

/// The steps that were played in one episode, by all observers together.
struct Rollout {
  std::int64_t steps = 0;
  std::chrono::nanoseconds duration{0};
};

/// Owns the policy. Observers on other workers ask it for actions and report rewards; between
/// episodes it learns from them. Can be neither copied nor sent: observers hold an RRef to it.
/// Thread-safe: handlers of several observers run at once.
class Agent {
 public:
  /// Makes an Observer at every other worker. Throws RpcError when a worker cannot be reached.
  Agent(const sinew::Worker& worker, const AgentSettings& settings);

  /// What the policy does in `state`. Called by the observer with that id. Throws
  /// std::invalid_argument for an unknown id.
  Push select_action(std::int64_t observer, const State& state);
  /// The same, but requests wait until every observer that plays has made one; then one forward
  /// pass answers them all. No thread is held meanwhile.
  sinew::Future<Push> select_action_batched(std::int64_t observer, const State& state);
  void report_reward(std::int64_t observer, double reward);

  /// Lets all observers play one episode and waits for them. `self` is a reference to this agent.
  /// An observer whose worker is lost leaves the team for good. Throws RpcError when none is left,
  /// or when playing fails otherwise.
  Rollout run_episode(const sinew::RRef<Agent>& self);
  /// One step of REINFORCE on what was collected since the last one, which is then forgotten.
  EpisodeResult finish_episode();

  std::size_t observers() const;
  /// Steps that one observer may make in an episode.
  std::int64_t steps_per_observer() const { return steps_per_observer_; }

 private:
  struct Member {
    ObserverSettings settings;
    sinew::RRef<Observer> observer;
    // Of this episode. An action is followed by its reward.
    std::vector<Experience> experiences;
    std::vector<double> rewards;
    bool playing = false;
    bool lost = false;
  };
  struct Request {
    std::int64_t observer = 0;
    State state{};
    sinew::Promise<Push> action;
  };
  // A round of requests with their answers.
  struct Answers {
    std::vector<Request> requests;
    std::vector<Push> actions;
  };

  Member& member_locked(std::int64_t observer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<Push> decide_locked(const std::vector<State>& states,
                                  const std::vector<std::int64_t>& observers)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Empty unless all who play have asked.
  Answers answer_round_locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void send(const Answers& answers);
  std::int64_t end_of_play(std::int64_t observer, const sinew::Future<std::int64_t>& steps);

  const double gamma_;
  const std::int64_t steps_per_observer_;

  mutable absl::Mutex mutex_;
  Policy policy_ ABSL_GUARDED_BY(mutex_);
  std::vector<Member> members_ ABSL_GUARDED_BY(mutex_);
  std::vector<Decision> decisions_ ABSL_GUARDED_BY(mutex_);
  std::int64_t rows_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Request> round_ ABSL_GUARDED_BY(mutex_);
  double average_reward_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace rl

SINEW_METHOD(rl::Agent::select_action);
SINEW_METHOD(rl::Agent::select_action_batched);
SINEW_METHOD(rl::Agent::report_reward);
