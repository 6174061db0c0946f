// An observer: a process with an environment. It serves the agent's calls until the agent shuts
// down.

#include <string>
#include <utility>
#include <variant>

#include "ATen/Parallel.h"
#include "agent.h"  // Observer::run_episode takes an RRef<Agent>
#include "observer.h"
#include "options.h"
#include "sinew/examples/common/flags.h"
#include "sinew/examples/common/job.h"

namespace {

sinew::Worker start_worker(int rank) {
  sinew::WorkerOptions worker;
  worker.name = "observer" + std::to_string(rank);
  worker.num_threads = 1;  // it plays one episode at a time
  worker.methods = sinew::serve<rl::Observer>();
  return examples::join_job(std::move(worker));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Plays episodes of CartPole-v1 for the agent; rl_agent --help says how to start.",
               "rl_observer");
  const examples::Parsed parsed = examples::parse(app, argc, argv);
  if (!parsed.go_on) return parsed.status;
  const auto found = examples::find_place({"rl_observer", rl::kCommand});
  if (const int* status = std::get_if<int>(&found)) return *status;
  const int rank = std::get<sinew::LaunchPlace>(found).rank;
  at::set_num_threads(1);
  // All work is to answer the agent's calls.
  return examples::serve_job("rl_observer", [&] { return start_worker(rank); });
}
