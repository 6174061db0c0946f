// The agent: a process that owns the policy, has observers on other workers play with it, and
// learns from what they report.

#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "ATen/Parallel.h"
#include "agent.h"
#include "options.h"
#include "sinew/examples/common/files.h"
#include "sinew/examples/common/job.h"
#include "sinew/sinew.h"
#include "training.h"

namespace {

constexpr int kSolved = 0;
constexpr int kNotSolved = 1;
constexpr int kUsageError = 2;

sinew::Worker start_worker(const rl::Options& options) {
  sinew::WorkerOptions worker;
  worker.name = "agent";
  worker.num_threads = static_cast<std::size_t>(options.threads);
  worker.methods.add<&rl::Agent::select_action>()
      .add<&rl::Agent::select_action_batched>()
      .add<&rl::Agent::report_reward>();
  return sinew::init_rpc(std::move(worker));  // its rank, and where to meet, are the launcher's
}

rl::TrainingResult play_and_learn(const sinew::Worker& worker, const rl::Options& options,
                                  std::ostream& log) {
  rl::AgentSettings settings;
  settings.gamma = options.gamma;
  settings.seed = options.seed;
  settings.max_steps = options.max_steps;
  settings.action_calls = options.batch ? rl::ActionCalls::kBatched : rl::ActionCalls::kSingle;
  settings.reward_calls =
      options.sync_rewards ? rl::RewardCalls::kOneByOne : rl::RewardCalls::kOverlapped;
  const auto agent = std::make_shared<rl::Agent>(worker, settings);
  // Observers reach the agent through this. It is not a member of the agent, which would then keep
  // itself alive.
  const sinew::RRef<rl::Agent> self = sinew::share_rref(worker, agent);
  return rl::train(*agent, self, options, log);
}

int report(const rl::TrainingResult& result, const rl::Options& options, std::ostream& log) {
  log.precision(5);
  log << result.steps << " steps, " << result.steps_per_second << " steps/s\n";
  if (!options.output.empty() && !options.bench) {
    for (const char* name : {"reward_curve.csv", "reward_curve.svg"}) {
      const auto file = options.output / name;
      examples::write_file(
          file, file.extension() == ".csv" ? rl::to_csv(result.curve) : rl::to_svg(result.curve));
      log << "Reward curve: " << file.string() << "\n";
    }
  }
  if (options.json) std::cout << rl::to_json(result, options) << std::endl;
  if (options.bench) return kSolved;
  const double average = result.curve.episodes.back().average_reward;
  if (result.solved) {
    log << "Average reward " << average << " after " << result.curve.episodes.size()
        << " episodes.\nSolved!" << std::endl;
    return kSolved;
  }
  std::cerr << "rl_agent: not solved: the average reward is " << average << " after "
            << result.curve.episodes.size() << " episodes, and " << result.curve.goal
            << " is wanted; try more --episodes or another --seed or --gamma" << std::endl;
  return kNotSolved;
}

}  // namespace

int main(int argc, char** argv) {
  const auto parsed = rl::parse_agent_options(argc, argv);
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
    return kUsageError;
  }
  // The network is too small for several threads, and the observers need the cores.
  at::set_num_threads(1);
  std::ostream& log = options.json ? std::cerr : std::cout;
  return examples::run_job(
      "rl_agent", [&] { return start_worker(options); },
      [&](const sinew::Worker& worker) {
        return report(play_and_learn(worker, options, log), options, log);
      });
}
