#include "agent.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "policy.h"
#include "torch/optim.h"

namespace rl {
namespace {

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

// The batcher's thread has no turn of its own.
Agent::Agent(const Options& options, std::weak_ptr<const sinew::RRef<Agent>> self)
    : options_(options), learner_(std::make_unique<Learner>(options.seed)) {
  if (!options.batch) return;
  sinew::BatcherOptions together;
  together.max_wait = std::chrono::nanoseconds(std::llround(options.max_wait_ms * 1e6));
  batcher_.emplace(
      [weak = std::move(self)](const std::vector<Request>& requests) {
        const auto agent = weak.lock();
        if (agent == nullptr) throw std::runtime_error("the agent has ended");
        return agent->call<&Agent::act>(requests);
      },
      together);
}
Agent::~Agent() = default;

// Each sees other starts, also one that comes back, whichever seed the user gave. With several
// environments the seeds are those of as many observers.
ObserverSettings Agent::admit(const sinew::WorkerInfo& worker) {
  const std::int64_t id = ++last_id_;
  members_[id].worker = worker;
  const auto first = static_cast<std::uint64_t>((id - 1) * options_.envs + 1);
  return {id, options_.seed + first * kSeedStep, options_.envs};
}

void Agent::forget(const sinew::WorkerInfo& worker) {
  for (auto member = members_.begin(); member != members_.end();) {
    member = member->second.worker == worker ? members_.erase(member) : std::next(member);
  }
}

void Agent::expect(std::size_t observers) {
  if (batcher_) batcher_->set_expected(observers);
}

sinew::Future<Push> Agent::select_action(std::int64_t observer, const State& state) {
  { member(observer); }
  if (batcher_) return batcher_->add({observer, state});
  return sinew::make_ready_future(act({{observer, state}}).front());
}

void Agent::report_reward(std::int64_t observer, double reward) {
  member(observer).earnings.add(0, reward);
  clients_.step(observer);
}

at::Tensor Agent::select_actions(std::int64_t observer, const at::Tensor& states) {
  if (states.scalar_type() != at::kFloat || states.dim() != 2 || states.size(1) != 4 ||
      states.numel() == 0) {
    throw std::invalid_argument("states are float, and have four numbers each");
  }
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
  member(observer).earnings = earnings;
}

std::int64_t Agent::enter(const std::string& name) {
  if (batcher_) {
    throw std::invalid_argument(
        "with --batch all observers are workers: the agent takes no client");
  }
  clients_.add(last_id_ + 1, name);
  members_[++last_id_].worker.name = name;
  return last_id_;
}

sinew::Future<std::int64_t> Agent::next_episode(std::int64_t client) {
  return clients_.next_episode(client);
}

void Agent::end_episode(std::int64_t client) { clients_.end_episode(client); }

ClientNews Agent::begin_clients(std::int64_t max_steps) {
  return without_lost(clients_.begin(max_steps));
}

sinew::Future<void> Agent::clients_played() { return clients_.played(); }

ClientNews Agent::drop_silent_clients() { return without_lost(clients_.drop_silent()); }

void Agent::dismiss_clients() { clients_.dismiss(); }

ClientNews Agent::without_lost(ClientNews news) {
  for (const std::int64_t id : clients_.take_lost()) members_.erase(id);
  return news;
}

EpisodeResult Agent::finish_episode() {
  std::vector<at::Tensor> probabilities;
  std::vector<float> returns;
  double least = std::numeric_limits<double>::infinity();
  for (auto& [id, member] : members_) {
    if (!member.decisions.empty()) {
      member.probabilities.push_back(probabilities_of(*learner_->policy, member.decisions));
    }
    std::int64_t actions = 0;
    for (at::Tensor& some : member.probabilities) {
      actions += some.numel();
      probabilities.push_back(std::move(some));
    }
    const std::vector<float> own = discounted_returns(member.earnings, options_.gamma);
    if (own.empty() && actions == 0) continue;  // has come since
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

Agent::Member& Agent::member(std::int64_t observer) {
  const auto found = members_.find(observer);
  if (found == members_.end()) {
    throw std::invalid_argument("the agent has no observer " + std::to_string(observer));
  }
  return found->second;
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

  const at::Tensor probabilities = learner_->policy->forward(
      torch::from_blob(states.data(), {rows, 4}, torch::kDouble).to(torch::kFloat));
  const at::Tensor actions = probabilities.multinomial(1);
  const at::Tensor chosen = probabilities.gather(1, actions);
  std::vector<Push> pushes(requests.size());
  for (std::size_t row = 0; row < order.size(); ++row) {
    pushes[order[row]] = static_cast<Push>(actions.data_ptr<std::int64_t>()[row]);
    // Whoever was lost meanwhile leaves nothing to learn from.
    const auto found = members_.find(requests[order[row]].observer);
    if (found != members_.end()) found->second.probabilities.push_back(chosen[row]);
  }
  return pushes;
}

sinew::MethodTable agent_methods() {
  sinew::MethodTable methods;
  methods.add<&Agent::admit, &Agent::forget, &Agent::expect, &Agent::select_action,
              &Agent::report_reward, &Agent::select_actions, &Agent::report_rewards, &Agent::act,
              &Agent::enter, &Agent::next_episode, &Agent::end_episode, &Agent::begin_clients,
              &Agent::clients_played, &Agent::drop_silent_clients, &Agent::dismiss_clients,
              &Agent::finish_episode>(
      // Those whose request waits for others must let them in.
      sinew::one_at_a_time(sinew::OneAtATime::kGivesUpTurn));
  return methods;
}

}  // namespace rl
