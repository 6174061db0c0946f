#include "training.h"

#include <algorithm>

#include "sinew/examples/common/files.h"
#include "sinew/examples/common/progress_bar.h"

namespace rl {
namespace {

constexpr double kSolvedShare = 475.0 / CartPole::kMaxSteps;
// With --bench: connections, caches and the allocator are as they will be after these.
constexpr std::size_t kWarmUpEpisodes = 2;

std::string two_decimals(double value) { return examples::fixed(value, 2); }

}  // namespace

double reward_goal(std::int64_t steps_per_observer) {
  const auto most = std::min<std::int64_t>(steps_per_observer, CartPole::kMaxSteps);
  return kSolvedShare * static_cast<double>(most);
}

std::string log_line(std::size_t episode, const EpisodeResult& result) {
  return "Episode " + std::to_string(episode) +
         "  Last reward: " + two_decimals(result.last_reward) +
         "  Average reward: " + two_decimals(result.average_reward);
}

TrainingResult train(Agent& agent, const sinew::RRef<Agent>& self, const Options& options,
                     std::ostream& log) {
  TrainingResult training;
  training.observers = static_cast<int>(agent.observers());
  training.curve.goal = reward_goal(agent.steps_per_observer());
  training.curve.title = "CartPole-v1, " + std::to_string(agent.observers()) +
                         (agent.observers() == 1 ? " observer" : " observers") + ", seed " +
                         std::to_string(options.seed);
  std::chrono::nanoseconds played{0};
  examples::ProgressBar bar;
  const std::size_t warm_up = options.bench ? kWarmUpEpisodes : 0;
  const auto episodes = static_cast<std::size_t>(options.episodes) + warm_up;
  for (std::size_t episode = 1; episode <= episodes; ++episode) {
    const Rollout rollout = agent.run_episode(self);
    const EpisodeResult result = agent.finish_episode();
    if (episode > warm_up) {
      training.steps += rollout.steps;
      played += rollout.duration;
    }
    training.curve.episodes.push_back(result);
    training.solved = training.solved || result.average_reward >= training.curve.goal;
    const bool last = (training.solved && !options.bench) || episode == episodes ||
                      (options.bench_steps > 0 && training.steps >= options.bench_steps);
    if (last || episode % static_cast<std::size_t>(options.log_interval) == 0) {
      bar.clear();
      log << log_line(episode, result) << std::endl;
    }
    if (last) break;
    bar.show(result.average_reward / training.curve.goal,
             "episode " + std::to_string(episode) + ", average reward " +
                 two_decimals(result.average_reward) + " of " + two_decimals(training.curve.goal));
  }
  const double seconds = std::chrono::duration<double>(played).count();
  training.steps_per_second = seconds > 0 ? static_cast<double>(training.steps) / seconds : 0;
  return training;
}

std::string to_json(const TrainingResult& result, const Options& options) {
  const EpisodeResult& last = result.curve.episodes.back();
  const auto boolean = [](bool value) { return value ? "true" : "false"; };
  return std::string("{\"observers\": ") + std::to_string(result.observers) +
         ", \"batch\": " + boolean(options.batch) +
         ", \"sync_rewards\": " + boolean(options.sync_rewards) +
         ", \"episodes\": " + std::to_string(result.curve.episodes.size()) +
         ", \"steps\": " + std::to_string(result.steps) +
         ", \"rl_steps_per_s\": " + two_decimals(result.steps_per_second) +
         ", \"average_reward\": " + two_decimals(last.average_reward) +
         ", \"solved\": " + boolean(result.solved) + "}";
}

}  // namespace rl
