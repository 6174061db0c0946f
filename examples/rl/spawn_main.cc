// The agent and its observers as one program, as PyTorch's tutorial has them: it spawns its
// workers, of which rank 0 is the agent, and waits for their end.

#include <cstdint>
#include <iostream>
#include <string>

#include "ATen/Parallel.h"
#include "players.h"
#include "sinew/examples/common/files.h"
#include "sinew/examples/common/flags.h"
#include "sinew/examples/common/job.h"
#include "sinew/launch/spawn.h"

namespace {

void run_agent(const sinew::Worker& worker, const rl::Options& options) {
  rl::Players players(worker, options, [](const std::string& line) { std::cerr << line + "\n"; });
  for (int episode = 1; episode <= options.episodes; ++episode) {
    players.run_episode();
    const rl::EpisodeResult result = players.finish_episode();
    const bool is_solved = result.average_reward >= players.goal();
    if (is_solved || episode % options.log_interval == 0) {
      std::cout << "Episode " << episode
                << "  Last reward: " << examples::fixed(result.last_reward, 2)
                << "  Average reward: " << examples::fixed(result.average_reward, 2) << std::endl;
    }
    if (is_solved) {
      std::cout << "Solved!" << std::endl;
      return;
    }
  }
  std::cout << "Not solved within " << options.episodes << " episodes" << std::endl;
}

/// What each process does. Its rank, and where all meet, stand in its environment.
void run_worker(int rank, int episodes, int log_interval, std::uint64_t seed) {
  at::set_num_threads(1);
  sinew::WorkerOptions worker_options;
  worker_options.name = rank == 0 ? "agent" : "observer" + std::to_string(rank);
  worker_options.num_threads = 1;
  worker_options.methods = rank == 0 ? rl::agent_methods() : sinew::serve<rl::Observer>();
  const sinew::Worker worker = sinew::init_rpc(worker_options);
  if (rank != 0) {
    worker.serve_until_done();
    return;
  }
  rl::Options options;
  options.episodes = episodes;
  options.log_interval = log_interval;
  options.seed = seed;
  run_agent(worker, options);
  worker.shutdown();  // the job is over
}

}  // namespace

int main(int argc, char** argv) {
  sinew::init_launch(argc, argv);
  rl::Options options;
  int observers = 2;
  CLI::App app("Spawns an agent and its observers, which learn to balance a pole.", "rl_spawn");
  examples::add_whole(app, "--observers", observers, 1, 64, "Processes that play");
  examples::add_whole(app, "--episodes", options.episodes, 1, 100'000'000,
                      "Give up after so many episodes");
  examples::add_whole(app, "--log-interval", options.log_interval, 1, 1'000'000,
                      "Episodes per line of the log");
  examples::add_seed(app, options.seed);
  const examples::Parsed parsed = examples::parse(app, argc, argv);
  if (!parsed.go_on) return parsed.status;
  try {
    sinew::spawn(&run_worker, 1 + observers, {}, options.episodes, options.log_interval,
                 options.seed);
  } catch (const sinew::RpcError& error) {
    std::cerr << "rl_spawn: " << error.what() << std::endl;
    return examples::kFailed;
  }
  return 0;
}
