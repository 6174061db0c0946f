#pragma once

#include <unistd.h>

#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "sinew/benchmarks/one_thread.h"
#include "sinew/benchmarks/server_process.h"
#include "sinew/sinew.h"

namespace sinew::bench {

/// The workers of a fixed world: rank 0 is this process, the others have processes of their own,
/// which compute on one thread.
class WorkerProcesses {
 public:
  using Work = std::function<void(const Worker& worker)>;
  using Adjust = std::function<void(WorkerOptions& options)>;

  /// Starts the processes: to be made before anything that starts threads. `names` are by rank.
  /// Each process runs `work` as soon as all are there, and leaves together with the others. What
  /// its worker starts with may be adjusted, to serve methods for example.
  WorkerProcesses(std::vector<std::string> names, Work work, Adjust adjust = nullptr)
      : names_(std::move(names)),
        work_(std::move(work)),
        adjust_(std::move(adjust)),
        port_(free_loopback_port()) {
    for (std::size_t rank = 1; rank < names_.size(); ++rank) {
      processes_.emplace_back([this, rank](const ServerProcess::ReportPort& report) {
        report(port_);
        serve(static_cast<int>(rank));
      });
    }
  }

  /// What the worker of a rank starts with.
  WorkerOptions place(int rank) const {
    WorkerOptions options;
    options.name = names_.at(static_cast<std::size_t>(rank));
    options.init_method = "tcp://127.0.0.1:" + std::to_string(port_);
    options.rank = rank;
    options.world_size = static_cast<int>(names_.size());
    return options;
  }

 private:
  [[noreturn]] void serve(int rank) const {
    compute_on_one_thread();
    WorkerOptions options = place(rank);
    if (adjust_) adjust_(options);
    const Worker worker = init_rpc(std::move(options));
    work_(worker);
    worker.shutdown();
    for (;;) pause();  // The measuring process kills this one.
  }

  const std::vector<std::string> names_;
  const Work work_;
  const Adjust adjust_;
  const std::uint16_t port_;
  std::list<ServerProcess> processes_;
};

/// "actor1", "actor2" and so on after the name of rank 0.
inline std::vector<std::string> numbered_names(const std::string& first, const std::string& stem,
                                               int count) {
  std::vector<std::string> names = {first};
  for (int number = 1; number <= count; ++number) names.push_back(stem + std::to_string(number));
  return names;
}

}  // namespace sinew::bench
