#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cart_pole.h"
#include "client_observers.h"
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

/// Who asks for an action, and where its pole is.
struct Request {
  std::int64_t observer = 0;
  State state{};
};

/// Owns the policy. Observers on other workers ask it for actions and report rewards; between
/// episodes it learns from them. Is called by one at a time, through references: agent_methods().
class Agent {
 public:
  /// `self`: the reference by which it is called.
  Agent(const Options& options, std::weak_ptr<const sinew::RRef<Agent>> self);
  ~Agent();

  /// For an observer that is to be made at this worker.
  ObserverSettings admit(const sinew::WorkerInfo& worker);
  /// What the observer of a worker that is lost has left is not learned from.
  void forget(const sinew::WorkerInfo& worker);
  /// So many observers ask for actions from now on; with `batch`, all of them before one is
  /// answered.
  void expect(std::size_t observers);

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
  /// By one forward pass.
  std::vector<Push> act(const std::vector<Request>& requests);

  /// For a client (client_observers.h): gives it an id. Its actions and rewards go by
  /// select_action() and report_reward(). Throws std::invalid_argument with `batch`, and when there
  /// are too many.
  std::int64_t enter(const std::string& name);
  sinew::Future<std::int64_t> next_episode(std::int64_t client);
  void end_episode(std::int64_t client);
  ClientNews begin_clients(std::int64_t max_steps);
  sinew::Future<void> clients_played();
  ClientNews drop_silent_clients();
  void dismiss_clients();

  /// One step of REINFORCE on the episode of all that have played.
  EpisodeResult finish_episode();

 private:
  struct Learner;
  struct Member {
    sinew::WorkerInfo worker;
    // Of this episode: how probable each action was, with its graph. With several environments,
    // what tells that again.
    std::vector<at::Tensor> probabilities;
    std::vector<Decision> decisions;
    Earnings earnings;
  };

  Member& member(std::int64_t observer);
  ClientNews without_lost(ClientNews news);

  const Options options_;
  /// The policy and its optimizer.
  const std::unique_ptr<Learner> learner_;
  /// By their ids, which are used once.
  std::map<std::int64_t, Member> members_;
  std::int64_t last_id_ = 0;
  ClientObservers clients_;
  double average_reward_ = 0;
  std::optional<sinew::Batcher<Request, Push>> batcher_;
};

/// What the worker of an agent serves.
sinew::MethodTable agent_methods();

}  // namespace rl

SINEW_STRUCT(rl::EpisodeResult, last_reward, average_reward);
SINEW_STRUCT(rl::Request, observer, state);
SINEW_METHOD(rl::Agent::admit, rl::Agent::forget, rl::Agent::expect, rl::Agent::select_action,
             rl::Agent::report_reward, rl::Agent::select_actions, rl::Agent::report_rewards,
             rl::Agent::act, rl::Agent::enter, rl::Agent::next_episode, rl::Agent::end_episode,
             rl::Agent::begin_clients, rl::Agent::clients_played, rl::Agent::drop_silent_clients,
             rl::Agent::dismiss_clients, rl::Agent::finish_episode);
