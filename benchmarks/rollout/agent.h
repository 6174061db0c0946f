#pragma once

#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "sinew/benchmarks/rollout/observer.h"
#include "sinew/benchmarks/rollout/policy.h"
#include "sinew/sinew.h"

namespace sinew::bench::rollout {

struct AgentSettings {
  /// Discount of later rewards. Such episodes stay short: a policy that solved the task would play
  /// other ones than the peers'.
  double gamma = 0.1;
  std::uint64_t seed = 13;
  /// Steps of one episode, shared out among the observers.
  std::int64_t max_steps = 500;
  ActionCalls action_calls = ActionCalls::kSingle;
};

/// The agent of examples/rl, tuned: one forward pass without a graph for each answer, one with
/// gradients for each episode, and batches that are run by the thread of the last request. Between
/// episodes it learns. Thread-safe: handlers of several observers run at once.
class Agent {
 public:
  /// Makes an Observer at every other worker.
  Agent(const Worker& worker, const AgentSettings& settings);

  /// What the policy does in `state`. Called by the observer with that id. Throws
  /// std::invalid_argument for an unknown id.
  ::rl::Push select_action(std::int64_t observer, const ::rl::State& state);
  /// The same, but requests wait until every observer that plays has made one; then one forward
  /// pass answers them all. No thread is held meanwhile.
  Future<::rl::Push> select_action_batched(std::int64_t observer, const ::rl::State& state);
  void report_reward(std::int64_t observer, double reward);

  /// Lets all observers play one episode and waits for them. `self` is a reference to this agent.
  /// Returns the steps of all together. Throws what playing fails with.
  std::int64_t run_episode(const RRef<Agent>& self);
  /// One step of REINFORCE on what was collected since the last one, which is then forgotten.
  void finish_episode();

 private:
  struct Member {
    ObserverSettings settings;
    RRef<Observer> observer;
    // Of this episode. An action is followed by its reward.
    std::vector<Experience> experiences;
    std::vector<double> rewards;
    bool playing = false;
  };
  struct Request {
    std::int64_t observer = 0;
    ::rl::State state{};
    Promise<::rl::Push> action;
  };
  // A round of requests with their answers.
  struct Answers {
    std::vector<Request> requests;
    std::vector<::rl::Push> actions;
  };

  Member& member_locked(std::int64_t observer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<::rl::Push> decide_locked(const std::vector<::rl::State>& states,
                                        const std::vector<std::int64_t>& observers)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Empty unless all who play have asked.
  Answers answer_round_locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void send(const Answers& answers);
  void end_play(std::int64_t observer);

  const double gamma_;
  const std::int64_t steps_per_observer_;

  mutable absl::Mutex mutex_;
  Policy policy_ ABSL_GUARDED_BY(mutex_);
  std::vector<Member> members_ ABSL_GUARDED_BY(mutex_);
  std::vector<Decision> decisions_ ABSL_GUARDED_BY(mutex_);
  std::int64_t rows_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Request> round_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::bench::rollout

SINEW_METHOD(sinew::bench::rollout::Agent::select_action,
             sinew::bench::rollout::Agent::select_action_batched,
             sinew::bench::rollout::Agent::report_reward);
