#include "agent.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "policy.h"
#include "sinew/examples/common/files.h"
#include "sinew/examples/common/stop_signal.h"
#include "torch/optim.h"

namespace rl {
namespace {

// How soon an agent that waits for observers notices that it is asked to end.
constexpr absl::Duration kStopNoticed = absl::Milliseconds(100);

// The layers draw their parameters when they are made.
Policy seeded_policy(std::uint64_t seed) {
  torch::manual_seed(seed);
  return Policy();
}

}  // namespace

struct Agent::Learner {
  explicit Learner(std::uint64_t seed)
      : policy(seeded_policy(seed)),
        optimizer(policy->parameters(), torch::optim::AdamOptions(1e-2)) {}
  Policy policy;
  torch::optim::Adam optimizer;
};

Agent::Agent(const sinew::Worker& worker, const Options& options, Tell tell)
    : worker_(worker),
      options_(options),
      tell_(std::move(tell)),
      steps_per_observer_(options.max_steps /
                          std::max<std::int64_t>(worker.workers().size() - 1, 1)),
      learner_(std::make_unique<Learner>(options.seed)) {
  if (options.batch) {
    sinew::BatcherOptions together;
    together.max_wait = std::chrono::nanoseconds(std::llround(options.max_wait_ms * 1e6));
    batcher_.emplace([this](const std::vector<Request>& requests) { return act(requests); },
                     together);
  }
  watch_ = worker.on_member([this](const sinew::MemberEvent& event) {
    if (event.kind != sinew::MemberEvent::Kind::kJoined) return;
    const absl::MutexLock lock(&mutex_);
    newcomers_.push_back(event.worker);
  });
  const absl::MutexLock lock(&mutex_);
  for (const sinew::WorkerInfo& other : worker.workers()) {
    if (other != worker.info()) take_in(other);
  }
}

Agent::~Agent() = default;

sinew::Future<Push> Agent::select_action(std::int64_t observer, const State& state) {
  {
    const absl::MutexLock lock(&mutex_);
    member(observer);
  }
  if (batcher_) return batcher_->add({observer, state});
  return sinew::make_ready_future(act({{observer, state}}).front());
}

void Agent::report_reward(std::int64_t observer, double reward) {
  const absl::MutexLock lock(&mutex_);
  member(observer).earnings.add(0, reward);
}

at::Tensor Agent::select_actions(std::int64_t observer, const at::Tensor& states) {
  if (states.scalar_type() != at::kFloat || states.dim() != 2 || states.size(1) != 4 ||
      states.numel() == 0) {
    throw std::invalid_argument("states are float, and have four numbers each");
  }
  const absl::MutexLock lock(&mutex_);
  std::vector<Decision>& decisions = member(observer).decisions;
  decisions.push_back(decide(*learner_->policy, states));
  return decisions.back().actions;
}

void Agent::report_rewards(std::int64_t observer, const Earnings& earnings) {
  const bool are_known =
      std::all_of(earnings.environments.begin(), earnings.environments.end(),
                  [this](std::int32_t number) { return number >= 0 && number < options_.envs; });
  if (!are_known || earnings.environments.size() != earnings.rewards.size()) {
    throw std::invalid_argument("rewards belong to one of " + std::to_string(options_.envs) +
                                " environments each");
  }
  const absl::MutexLock lock(&mutex_);
  member(observer).earnings = earnings;
}

std::int64_t Agent::run_episode(const sinew::RRef<Agent>& self) {
  std::int64_t steps = 0;
  while (steps == 0 && !examples::StopSignal::requested()) {  // 0: all who played are lost
    take_in_newcomers();
    steps = play(self);
  }
  return steps;
}

EpisodeResult Agent::finish_episode() {
  const absl::MutexLock lock(&mutex_);
  std::vector<at::Tensor> probabilities;
  std::vector<float> returns;
  double least = std::numeric_limits<double>::infinity();
  for (auto& [id, member] : team_) {
    if (!member.decisions.empty()) {
      member.probabilities.push_back(probabilities_of(*learner_->policy, member.decisions));
    }
    std::int64_t actions = 0;
    for (at::Tensor& some : member.probabilities) {
      actions += some.numel();
      probabilities.push_back(std::move(some));
    }
    const std::vector<float> own = discounted_returns(member.earnings, options_.gamma);
    if (static_cast<std::int64_t>(own.size()) != actions) {
      throw std::logic_error(member.worker.name + " reported " + std::to_string(own.size()) +
                             " rewards for " + std::to_string(actions) + " actions");
    }
    returns.insert(returns.end(), own.begin(), own.end());
    least = std::min(least, least_total(member.earnings));
    member.probabilities.clear();
    member.decisions.clear();
    member.earnings = {};
  }
  at::Tensor weights = torch::tensor(returns);
  weights = (weights - weights.mean()) / (weights.std() + std::numeric_limits<float>::epsilon());
  const at::Tensor loss = -(torch::cat(probabilities).log() * weights).sum();
  learner_->optimizer.zero_grad();
  loss.backward();
  learner_->optimizer.step();
  average_reward_ = 0.05 * least + 0.95 * average_reward_;
  return {least, average_reward_};
}

std::size_t Agent::observers() const {
  const absl::MutexLock lock(&mutex_);
  return team_.size();
}

double Agent::goal() const {
  const auto most = std::min<std::int64_t>(steps_per_observer_, CartPole::kMaxSteps);
  return 475.0 * static_cast<double>(most) / CartPole::kMaxSteps;
}

Agent::Member& Agent::member(std::int64_t observer) {
  const auto found = team_.find(observer);
  if (found == team_.end()) {
    throw std::invalid_argument("the agent has no observer " + std::to_string(observer));
  }
  return found->second;
}

void Agent::take_in(const sinew::WorkerInfo& worker) {
  // Each sees other starts, also one that comes back, whichever seed the user gave. With several
  // environments the seeds are those of as many observers.
  const std::int64_t id = ++last_id_;
  const auto first = static_cast<std::uint64_t>((id - 1) * options_.envs + 1);
  const ObserverSettings settings{id, options_.seed + first * kSeedStep, options_.envs};
  team_[id] = {worker, worker_.remote<Observer>(worker, settings), {}, {}, {}};
}

// False when the process is asked to end.
bool Agent::await_team() {
  const auto is_somebody_there = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return !team_.empty() || !newcomers_.empty();
  };
  const absl::Time deadline = absl::Now() + absl::Seconds(options_.patience_s);
  while (!mutex_.AwaitWithTimeout(absl::Condition(&is_somebody_there), kStopNoticed)) {
    if (examples::StopSignal::requested()) return false;
    if (absl::Now() > deadline) {
      throw std::runtime_error("all observers are lost, and none has come within " +
                               examples::number(options_.patience_s) + " s");
    }
  }
  return true;
}

void Agent::take_in_newcomers() {
  std::vector<std::string> names;
  {
    const absl::MutexLock lock(&mutex_);
    if (!await_team()) return;
    for (const sinew::WorkerInfo& newcomer : std::exchange(newcomers_, {})) {
      // Who came while the agent was made may have been seen twice.
      const auto is_it = [&](const auto& entry) { return entry.second.worker == newcomer; };
      if (std::any_of(team_.begin(), team_.end(), is_it)) continue;
      take_in(newcomer);
      names.push_back(newcomer.name);
    }
  }
  for (const std::string& name : names) tell_(name + " joins the team");
}

std::int64_t Agent::play(const sinew::RRef<Agent>& self) {
  std::map<std::int64_t, sinew::RRef<Observer>> players;
  {
    const absl::MutexLock lock(&mutex_);
    for (const auto& [id, member] : team_) players[id] = member.observer;
    playing_ = players.size();
    if (batcher_) batcher_->set_expected(playing_);
  }
  std::map<std::int64_t, sinew::Future<std::int64_t>> plays;
  for (const auto& [id, observer] : players) plays[id] = start(observer, self);
  std::int64_t steps = 0;
  for (const auto& [id, episode] : plays) {
    try {
      steps += episode.wait();
    } catch (const sinew::RpcError& error) {
      // The observer itself, not somebody whom it called.
      const bool is_lost = error.code() == sinew::ErrorCode::kUnavailable &&
                           error.origin() == sinew::ErrorOrigin::kNetwork;
      if (!is_lost) throw;
      tell_(players[id].owner_name() + " is lost; the others go on");
      const absl::MutexLock lock(&mutex_);
      team_.erase(id);
    }
  }
  return steps;
}

sinew::Future<std::int64_t> Agent::start(const sinew::RRef<Observer>& observer,
                                         const sinew::RRef<Agent>& self) {
  try {
    // What then() returns, and not the call's own future: the next episode must not begin before
    // this one is over in the books as well.
    return observer.within(sinew::kNoTimeout)
        .async<&Observer::run_episode>(self, steps_per_observer_)
        .then([this, self](const sinew::Future<std::int64_t>& steps) {
          end_play();
          return steps.value();
        });
  } catch (const sinew::RpcError&) {  // lost before
    end_play();
    return sinew::make_failed_future<std::int64_t>(std::current_exception());
  }
}

// One asks no more; perhaps the others have waited for that one alone.
void Agent::end_play() {
  const absl::MutexLock lock(&mutex_);
  --playing_;
  if (batcher_) batcher_->set_expected(playing_);
}

std::vector<Push> Agent::act(const std::vector<Request>& requests) {
  // The order of arrival must not decide who gets which random numbers.
  std::vector<std::size_t> order(requests.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return requests[a].observer < requests[b].observer;
  });
  std::vector<State> states;
  for (const std::size_t i : order) states.push_back(requests[i].state);
  const auto rows = static_cast<std::int64_t>(states.size());

  const absl::MutexLock lock(&mutex_);
  const at::Tensor probabilities = learner_->policy->forward(
      torch::from_blob(states.data(), {rows, 4}, torch::kDouble).to(torch::kFloat));
  const at::Tensor actions = probabilities.multinomial(1);
  const at::Tensor chosen = probabilities.gather(1, actions);
  std::vector<Push> pushes(requests.size());
  for (std::size_t row = 0; row < order.size(); ++row) {
    pushes[order[row]] = static_cast<Push>(actions.data_ptr<std::int64_t>()[row]);
    // Whoever was lost meanwhile leaves nothing to learn from.
    const auto found = team_.find(requests[order[row]].observer);
    if (found != team_.end()) found->second.probabilities.push_back(chosen[row]);
  }
  return pushes;
}

}  // namespace rl
