// The agent: a process that owns the policy, has observers on other workers play with it, and
// learns from what they report.

#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "ATen/Parallel.h"
#include "options.h"
#include "players.h"
#include "sinew/examples/common/files.h"
#include "sinew/examples/common/flags.h"
#include "sinew/examples/common/job.h"
#include "sinew/examples/common/progress_bar.h"
#include "sinew/examples/common/stop_signal.h"
#include "sinew/examples/common/training_curve.h"

namespace {

constexpr int kSolved = 0;
constexpr int kNotSolved = 1;

sinew::Worker start_worker() {
  sinew::WorkerOptions worker;
  worker.name = "agent";
  // Handlers take turns at one policy: more threads would only be woken in vain.
  worker.num_threads = 1;
  worker.methods = rl::agent_methods();
  return examples::join_job(std::move(worker));  // its rank, and where to meet, are the launcher's
}

examples::TrainingCurve empty_curve(const rl::Players& players, const rl::Options& options) {
  examples::TrainingCurve curve;
  const std::size_t observers = players.observers();
  curve.title = "CartPole-v1, " + std::to_string(observers) +
                (observers == 1 ? " observer" : " observers") +
                (options.envs == 1 ? "" : " of " + std::to_string(options.envs) + " environments") +
                ", seed " + std::to_string(options.seed);
  curve.clock = "episode";
  curve.unit = "reward";
  curve.names = {"last_reward", "average_reward"};
  curve.goal = players.goal();
  return curve;
}

int finish(const examples::TrainingCurve& curve, const rl::Options& options) {
  if (!options.output.empty()) {
    examples::write_curve(curve, options.output, "reward_curve");
    std::cout << "Reward curve: " << (options.output / "reward_curve.svg").string() << "\n";
  }
  const double average = curve.points.empty() ? 0 : curve.points.back().values[1];
  const std::string after = std::to_string(curve.points.size()) + " episodes";
  if (average >= *curve.goal) {
    std::cout << "Average reward " << examples::fixed(average, 2) << " after " << after
              << ".\nSolved!" << std::endl;
    return kSolved;
  }
  if (examples::StopSignal::requested()) {
    std::cout << "Stopped after " << after << std::endl;
    return examples::stopped_status();
  }
  std::cerr << "rl_agent: not solved: the average reward is " << examples::fixed(average, 2)
            << " after " << after << ", and " << examples::number(*curve.goal)
            << " is wanted; try more --episodes or another --seed or --gamma" << std::endl;
  return kNotSolved;
}

int play_and_learn(const sinew::Worker& worker, const rl::Options& options) {
  examples::ProgressBar bar;
  rl::Players players(worker, options, [&bar](const std::string& line) {
    bar.clear();
    std::cerr << line << std::endl;
  });
  examples::TrainingCurve curve = empty_curve(players, options);
  bool over = false;
  for (int episode = 1; !over; ++episode) {
    if (players.run_episode() == 0) break;
    const rl::EpisodeResult result = players.finish_episode();
    curve.points.push_back(
        {static_cast<double>(episode), {result.last_reward, result.average_reward}});
    over = result.average_reward >= *curve.goal || episode == options.episodes ||
           examples::StopSignal::requested();
    if (over || episode % options.log_interval == 0) {
      bar.clear();
      std::cout << "Episode " << episode
                << "  Last reward: " << examples::fixed(result.last_reward, 2)
                << "  Average reward: " << examples::fixed(result.average_reward, 2) << std::endl;
    }
    bar.show(result.average_reward / *curve.goal, "episode " + std::to_string(episode) +
                                                      ", average reward " +
                                                      examples::fixed(result.average_reward, 2) +
                                                      " of " + examples::fixed(*curve.goal, 2));
  }
  bar.clear();
  return finish(curve, options);
}

}  // namespace

int main(int argc, char** argv) {
  const auto parsed = rl::parse_options(argc, argv);
  if (const int* status = std::get_if<int>(&parsed)) return *status;
  const auto& options = std::get<rl::Options>(parsed);
  const auto found = examples::find_place({"rl_agent", rl::kCommand});
  if (const int* status = std::get_if<int>(&found)) return *status;
  const auto& place = std::get<sinew::LaunchPlace>(found);
  const std::string problem = place.rank != 0
                                  ? "the agent's role must be the first one: it is rank 0"
                                  : rl::problem_with(options, place.world_size - 1);
  if (!problem.empty()) {
    std::cerr << "rl_agent: " << problem << std::endl;
    return examples::kUsageError;
  }
  // The network is too small for several threads, and the observers need the cores.
  at::set_num_threads(1);
  return examples::run_job("rl_agent", &start_worker, [&](const sinew::Worker& worker) {
    return play_and_learn(worker, options);
  });
}
