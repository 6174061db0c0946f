// An observer: a process with an environment. It serves the agent's calls until the agent shuts
// down.

#include <string>
#include <utility>
#include <variant>

#include "ATen/Parallel.h"
#include "agent.h"  // Observer::run_episode takes an RRef<Agent>
#include "observer.h"
#include "options.h"
#include "sinew/examples/common/job.h"
#include "sinew/sinew.h"

namespace {

sinew::Worker start_worker(const rl::Options& options, int rank) {
  sinew::WorkerOptions worker;
  worker.name = "observer" + std::to_string(rank);
  worker.num_threads = static_cast<std::size_t>(options.threads);
  worker.methods.serve<rl::Observer>().add<&rl::Observer::run_episode>();
  return sinew::init_rpc(std::move(worker));
}

}  // namespace

int main(int argc, char** argv) {
  const auto parsed = rl::parse_observer_options(argc, argv);
  if (const int* status = std::get_if<int>(&parsed)) return *status;
  const auto& options = std::get<rl::Options>(parsed);
  const auto found = examples::find_place({"rl_observer", rl::kCommand});
  if (const int* status = std::get_if<int>(&found)) return *status;
  const int rank = std::get<sinew::LaunchPlace>(found).rank;
  at::set_num_threads(1);
  // All work is to answer the agent's calls.
  return examples::run_job(
      "rl_observer", [&] { return start_worker(options, rank); },
      [](const sinew::Worker&) { return 0; });
}
