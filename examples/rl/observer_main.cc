// An observer: a process with an environment. It serves the agent's calls until the agent shuts
// down.

#include <chrono>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <utility>
#include <variant>

#include "ATen/Parallel.h"
#include "agent.h"  // Observer::run_episode takes an RRef<Agent>
#include "observer.h"
#include "options.h"
#include "sinew/sinew.h"

namespace {

constexpr int kFailed = 3;

void run(const rl::Options& options) {
  at::set_num_threads(1);
  const char* rank = std::getenv("RANK");
  sinew::WorkerOptions worker_options;
  worker_options.name = std::string("observer") + (rank == nullptr ? "" : rank);
  worker_options.world_size = options.world_size;
  worker_options.num_threads = static_cast<std::size_t>(options.threads);
  worker_options.methods.add_class<rl::Observer>().add<&rl::Observer::run_episode>();
  const sinew::Worker worker = sinew::init_rpc(std::move(worker_options));

  // Returns when all workers have come here, that is, when the agent is done.
  sinew::ShutdownOptions shutdown;
  shutdown.timeout = std::chrono::hours(24 * 365);
  worker.shutdown(shutdown);
}

}  // namespace

int main(int argc, char** argv) {
  const auto options = rl::parse_observer_options(argc, argv);
  if (const int* status = std::get_if<int>(&options)) return *status;
  try {
    run(std::get<rl::Options>(options));
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "rl_observer: " << error.what() << std::endl;
    return kFailed;
  }
}
