#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "sinew/benchmarks/apart.h"
#include "sinew/benchmarks/measure.h"
#include "sinew/benchmarks/one_thread.h"
#include "sinew/benchmarks/rollout/agent.h"
#include "sinew/benchmarks/worker_processes.h"
#include "sinew/examples/rl/players.h"
#include "sinew/sinew.h"

/// An agent and its observers on CartPole. The same work as peers/torch_rl.py: the same discount,
/// the same number of steps after two episodes that do not count, and both calls of a step waited
/// for.
namespace sinew::bench {

inline constexpr int kWarmUpEpisodes = 2;
/// Of each observer, for the figures of many environments. As in peers/torch_rl.py.
inline constexpr std::int32_t kEnvironments = 256;

/// Steps of all environments per second while episodes are played. An episode is over when the last
/// environment has ended; those that have ended before make no steps.
/// `play` returns the steps of an episode.
template <class Play, class Learn>
double steps_per_s(const Play& play, const Learn& learn, std::int64_t steps_wanted) {
  for (int episode = 0; episode < kWarmUpEpisodes; ++episode) {
    play();
    learn();
  }
  std::int64_t steps = 0;
  Clock::duration played{0};
  while (steps < steps_wanted) {
    const Clock::time_point start = Clock::now();
    steps += play();
    played += Clock::now() - start;
    learn();
  }
  return static_cast<double>(steps) / std::chrono::duration<double>(played).count();
}

inline double rollout_steps_per_s(const Worker& worker, std::int64_t steps_wanted,
                                  rollout::ActionCalls action_calls) {
  rollout::AgentSettings settings;
  settings.action_calls = action_calls;
  const auto agent = std::make_shared<rollout::Agent>(worker, settings);
  const RRef<rollout::Agent> self = share_rref(worker, agent);
  return steps_per_s([&] { return agent->run_episode(self); }, [&] { agent->finish_episode(); },
                     steps_wanted);
}

/// The same of the example's own agent and observers, with many environments each.
inline double vector_steps_per_s(const Worker& worker, std::int64_t steps_wanted) {
  ::rl::Options settings;
  settings.gamma = rollout::AgentSettings().gamma;
  settings.envs = kEnvironments;
  ::rl::Players players(worker, settings,
                        [](const std::string& line) { throw std::runtime_error(line); });
  return steps_per_s([&] { return players.run_episode(); }, [&] { players.finish_episode(); },
                     steps_wanted);
}

/// Runs `measure` with the worker of an agent, in this process. Each observer has a process of its
/// own.
template <class Measure>
double with_observers(int observers, Measure measure) {
  const WorkerProcesses processes(
      numbered_names("agent", "observer", observers),
      [](const Worker& worker) {
        ShutdownOptions with_the_agent;
        with_the_agent.timeout = std::chrono::hours(1);
        worker.shutdown(with_the_agent);
      },
      [](WorkerOptions& observer) {
        observer.methods = serve<rollout::Observer>().serve<::rl::Observer>();
        observer.num_threads = 1;  // It plays one episode at a time.
      });
  compute_on_one_thread();
  WorkerOptions agent = processes.place(0);
  agent.methods = ::rl::agent_methods();
  agent.methods.add<&rollout::Agent::select_action, &rollout::Agent::select_action_batched,
                    &rollout::Agent::report_reward>();
  agent.num_threads = 1;  // Its handlers take turns at one policy.
  const Worker worker = init_rpc(std::move(agent));
  const double rate = measure(worker);
  worker.shutdown();
  return rate;
}

inline void measure_rollouts(const Options& options) {
  struct Figure {
    const char* name;
    int observers;
    rollout::ActionCalls action_calls;
  };
  for (const Figure& figure :
       {Figure{"rl_steps_per_s_1", 1, rollout::ActionCalls::kSingle},
        Figure{"rl_steps_per_s_4", 4, rollout::ActionCalls::kSingle},
        Figure{"rl_batched_steps_per_s_4", 4, rollout::ActionCalls::kBatched}}) {
    if (!options.wants(figure.name)) continue;
    const auto measure = [&] {
      return std::vector<double>{with_observers(figure.observers, [&](const Worker& worker) {
        return rollout_steps_per_s(worker, options.quick() ? 300 : 6000, figure.action_calls);
      })};
    };
    options.report(figure.name, measure_apart(measure).at(0));
  }
  if (!options.wants("rl_vector_steps_per_s_4")) return;
  const auto measure = [&] {
    return std::vector<double>{with_observers(4, [&](const Worker& worker) {
      return vector_steps_per_s(worker, options.quick() ? 10'000 : 600'000);
    })};
  };
  options.report("rl_vector_steps_per_s_4", measure_apart(measure).at(0));
}

}  // namespace sinew::bench
