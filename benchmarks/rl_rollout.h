#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "sinew/benchmarks/apart.h"
#include "sinew/benchmarks/measure.h"
#include "sinew/benchmarks/one_thread.h"
#include "sinew/benchmarks/rollout/agent.h"
#include "sinew/benchmarks/worker_processes.h"
#include "sinew/sinew.h"

/// An agent and its observers on CartPole. The same work as peers/torch_rl.py: the same discount,
/// the same number of steps after two episodes that do not count, and both calls of a step waited
/// for.
namespace sinew::bench {

inline constexpr int kWarmUpEpisodes = 2;

/// Steps of all environments per second while episodes are played.
inline double rollout_steps_per_s(const Worker& worker, std::int64_t steps_wanted,
                                  rollout::ActionCalls action_calls) {
  rollout::AgentSettings settings;
  settings.action_calls = action_calls;
  const auto agent = std::make_shared<rollout::Agent>(worker, settings);
  const RRef<rollout::Agent> self = share_rref(worker, agent);
  for (int episode = 0; episode < kWarmUpEpisodes; ++episode) {
    agent->run_episode(self);
    agent->finish_episode();
  }
  rollout::Rollout played;
  while (played.steps < steps_wanted) {
    const rollout::Rollout episode = agent->run_episode(self);
    played.steps += episode.steps;
    played.duration += episode.duration;
    agent->finish_episode();
  }
  return static_cast<double>(played.steps) / std::chrono::duration<double>(played.duration).count();
}

/// The same, with the agent in this process and each observer in one of its own.
inline double rollout_steps_per_s(const Options& options, int observers,
                                  rollout::ActionCalls action_calls) {
  const WorkerProcesses processes(
      numbered_names("agent", "observer", observers),
      [](const Worker& worker) {
        ShutdownOptions with_the_agent;
        with_the_agent.timeout = std::chrono::hours(1);
        worker.shutdown(with_the_agent);
      },
      [](WorkerOptions& observer) {
        observer.methods = serve<rollout::Observer>();
        observer.num_threads = 1;  // It plays one episode at a time.
      });
  compute_on_one_thread();
  WorkerOptions agent = processes.place(0);
  agent.methods.add<&rollout::Agent::select_action, &rollout::Agent::select_action_batched,
                    &rollout::Agent::report_reward>();
  agent.num_threads = 1;  // Its handlers take turns at one policy.
  const Worker worker = init_rpc(std::move(agent));
  const double rate = rollout_steps_per_s(worker, options.quick() ? 300 : 6000, action_calls);
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
      return std::vector<double>{
          rollout_steps_per_s(options, figure.observers, figure.action_calls)};
    };
    options.report(figure.name, measure_apart(measure).at(0));
  }
}

}  // namespace sinew::bench
