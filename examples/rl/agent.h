#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "cart_pole.h"
#include "decision.h"
#include "earnings.h"
#include "observer.h"
#include "options.h"
#include "sinew/rpc/batcher.h"
#include "sinew/rpc/rpc.h"
#include "sinew/rref/remote.h"

namespace rl {

struct EpisodeResult {
  /// Sum of the rewards of the environment that got least.
  double last_reward = 0;
  /// Running average of the above: 0.05 parts of it, 0.95 of what there was.
  double average_reward = 0;
};

/// Owns the policy. Observers on other workers ask it for actions and report rewards; between
/// episodes it learns from them. Can be neither copied nor sent: observers hold an RRef to it.
/// Thread-safe: handlers of several observers run at once. Only one thread runs episodes.
class Agent {
 public:
  /// Takes a line for people about the team.
  using Tell = std::function<void(const std::string& line)>;

  /// Makes an Observer at every other worker, and later at those that join. `tell` is called by
  /// run_episode().
  Agent(const sinew::Worker& worker, const Options& options, Tell tell);
  ~Agent();

  /// What the policy does in `state`. Called by the observer with that id. With `batch` a request
  /// waits until all who play have made one, but no longer than `max_wait_ms`; then one forward
  /// pass answers them all. No thread is held meanwhile. Throws std::invalid_argument for an id
  /// that nobody has.
  sinew::Future<Push> select_action(std::int64_t observer, const State& state);
  /// What the last action has earned. Throws as select_action.
  void report_reward(std::int64_t observer, double reward);
  /// The same for an observer with several environments (`envs`), which asks by one call at a time.
  /// `states` is float, {n, 4}, and the result int64, {n}. Throws std::invalid_argument for other
  /// tensors too.
  at::Tensor select_actions(std::int64_t observer, const at::Tensor& states);
  /// What all actions have earned, in the order in which select_actions() gave them.
  void report_rewards(std::int64_t observer, const Earnings& earnings);

  /// Lets all observers play one episode and waits for them, however long they take. `self` is a
  /// reference to this agent. Returns the steps of those that have come to the end.
  ///
  /// An observer whose worker is lost leaves the team. One that has joined since the last episode,
  /// also again under its name, plays from now on; when there is nobody, the agent waits for one.
  /// Throws std::runtime_error when none comes within `patience_s`, RpcError when playing fails
  /// otherwise. 0: the process was asked to end, and nobody has played.
  std::int64_t run_episode(const sinew::RRef<Agent>& self);
  /// One step of REINFORCE on that episode.
  EpisodeResult finish_episode();

  std::size_t observers() const;
  /// Average reward at which the task counts as solved. The usual mark is 475 for episodes of 500
  /// steps; when observers share the steps, each can get only its part of both.
  double goal() const;

 private:
  struct Learner;
  struct Request {
    std::int64_t observer = 0;
    State state{};
  };
  struct Member {
    sinew::WorkerInfo worker;
    sinew::RRef<Observer> observer;
    // Of this episode: how probable each action was, with its graph. With several environments,
    // what tells that again.
    std::vector<at::Tensor> probabilities;
    std::vector<Decision> decisions;
    Earnings earnings;
  };

  void take_in(const sinew::WorkerInfo& worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool await_team() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void take_in_newcomers();
  std::int64_t play(const sinew::RRef<Agent>& self);
  sinew::Future<std::int64_t> start(const sinew::RRef<Observer>& observer,
                                    const sinew::RRef<Agent>& self);
  void end_play();
  Member& member(std::int64_t observer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<Push> act(const std::vector<Request>& requests);

  // Constant after construction.
  const sinew::Worker worker_;
  const Options options_;
  const Tell tell_;
  const std::int64_t steps_per_observer_;

  mutable absl::Mutex mutex_;
  /// The policy and its optimizer.
  const std::unique_ptr<Learner> learner_ ABSL_PT_GUARDED_BY(mutex_);
  /// By their ids, which are used once.
  std::map<std::int64_t, Member> team_ ABSL_GUARDED_BY(mutex_);
  std::vector<sinew::WorkerInfo> newcomers_ ABSL_GUARDED_BY(mutex_);
  std::int64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  std::size_t playing_ ABSL_GUARDED_BY(mutex_) = 0;
  double average_reward_ ABSL_GUARDED_BY(mutex_) = 0;
  // Behind all that they use.
  std::optional<sinew::Batcher<Request, Push>> batcher_;
  sinew::MemberWatch watch_;
};

}  // namespace rl

SINEW_METHOD(rl::Agent::select_action, rl::Agent::report_reward, rl::Agent::select_actions,
             rl::Agent::report_rewards);
