#include "sinew/benchmarks/rollout/agent.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "sinew/benchmarks/rollout/returns.h"

namespace sinew::bench::rollout {

using ::rl::Push;
using ::rl::State;

Agent::Agent(const Worker& worker, const AgentSettings& settings)
    : gamma_(settings.gamma),
      steps_per_observer_(settings.max_steps /
                          (static_cast<std::int64_t>(worker.workers().size()) - 1)),
      policy_(settings.seed) {
  const absl::MutexLock lock(&mutex_);
  for (const WorkerInfo& info : worker.workers()) {
    if (info == worker.info()) continue;
    Member member;
    member.settings.id = info.rank;
    // Each observer sees other starts, whichever seed the user gave.
    member.settings.seed = settings.seed + static_cast<std::uint64_t>(info.rank) * 1'000'003;
    member.settings.action_calls = settings.action_calls;
    member.observer = worker.peer(info).remote<Observer>(member.settings);
    members_.push_back(std::move(member));
  }
}

Push Agent::select_action(std::int64_t observer, const State& state) {
  const absl::MutexLock lock(&mutex_);
  return decide_locked({state}, {observer}).front();
}

Future<Push> Agent::select_action_batched(std::int64_t observer, const State& state) {
  // Without an executor, so that the thread which ran the forward pass also sends all answers.
  Request request{observer, state, Promise<Push>(nullptr)};
  Future<Push> action = request.action.future();
  Answers answers;
  {
    const absl::MutexLock lock(&mutex_);
    member_locked(observer);
    round_.push_back(std::move(request));
    answers = answer_round_locked();
  }
  send(answers);
  return action;
}

void Agent::report_reward(std::int64_t observer, double reward) {
  const absl::MutexLock lock(&mutex_);
  member_locked(observer).rewards.push_back(reward);
}

std::int64_t Agent::run_episode(const RRef<Agent>& self) {
  std::vector<std::pair<std::int64_t, RRef<Observer>>> players;
  {
    const absl::MutexLock lock(&mutex_);
    for (Member& member : members_) {
      member.playing = true;
      players.emplace_back(member.settings.id, member.observer);
    }
  }
  std::vector<Future<std::int64_t>> episodes;
  episodes.reserve(players.size());
  for (const auto& [id, observer] : players) {
    // The future that then() returns, and not the call's own: the next episode must not begin
    // before this one is over in the books as well.
    episodes.push_back(observer.async<&Observer::run_episode>(self, steps_per_observer_)
                           .then([this, id = id](const Future<std::int64_t>& steps) {
                             end_play(id);
                             return steps.value();
                           }));
  }
  std::int64_t steps = 0;
  for (const Future<std::int64_t>& episode : episodes) steps += episode.wait();
  return steps;
}

void Agent::finish_episode() {
  const absl::MutexLock lock(&mutex_);
  std::vector<Experience> experiences;
  std::vector<double> returns;
  for (Member& member : members_) {
    const auto own = discounted_returns(member.rewards, gamma_);
    experiences.insert(experiences.end(), member.experiences.begin(), member.experiences.end());
    returns.insert(returns.end(), own.begin(), own.end());
    member.experiences.clear();
    member.rewards.clear();
  }
  if (experiences.size() != returns.size()) {
    throw std::logic_error("observers reported " + std::to_string(returns.size()) +
                           " rewards for " + std::to_string(experiences.size()) + " actions");
  }
  const std::vector<double> advantages = normalized(std::move(returns));
  for (std::size_t i = 0; i < experiences.size(); ++i) experiences[i].advantage = advantages[i];
  policy_.learn(decisions_, experiences);
  decisions_.clear();
  rows_ = 0;
}

Agent::Member& Agent::member_locked(std::int64_t observer) {
  const auto found = std::find_if(members_.begin(), members_.end(), [&](const Member& member) {
    return member.settings.id == observer;
  });
  if (found == members_.end()) {
    throw std::invalid_argument("the agent has no observer " + std::to_string(observer));
  }
  return *found;
}

std::vector<Push> Agent::decide_locked(const std::vector<State>& states,
                                       const std::vector<std::int64_t>& observers) {
  for (const std::int64_t observer : observers) member_locked(observer);
  Decision decision = policy_.decide(states);
  for (std::size_t i = 0; i < observers.size(); ++i) {
    member_locked(observers[i]).experiences.push_back({rows_++, decision.actions[i], 0.0});
  }
  std::vector<Push> actions = decision.actions;
  decisions_.push_back(std::move(decision));
  return actions;
}

Agent::Answers Agent::answer_round_locked() {
  const auto playing = std::count_if(members_.begin(), members_.end(),
                                     [](const Member& member) { return member.playing; });
  if (round_.empty() || static_cast<std::ptrdiff_t>(round_.size()) < playing) return {};
  Answers answers;
  answers.requests.swap(round_);
  // The order of arrival must not decide who gets which random numbers.
  std::sort(answers.requests.begin(), answers.requests.end(),
            [](const Request& a, const Request& b) { return a.observer < b.observer; });
  std::vector<State> states;
  std::vector<std::int64_t> observers;
  for (const Request& request : answers.requests) {
    states.push_back(request.state);
    observers.push_back(request.observer);
  }
  answers.actions = decide_locked(states, observers);
  return answers;
}

void Agent::send(const Answers& answers) {
  for (std::size_t i = 0; i < answers.requests.size(); ++i) {
    answers.requests[i].action.set_value(answers.actions[i]);
  }
}

// It will ask no more; perhaps the others have waited for it alone.
void Agent::end_play(std::int64_t observer) {
  Answers answers;
  {
    const absl::MutexLock lock(&mutex_);
    member_locked(observer).playing = false;
    answers = answer_round_locked();
  }
  send(answers);
}

}  // namespace sinew::bench::rollout
