#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sinew/rpc/base/error.h"
#include "sinew/rpc/membership/peer_gather.h"
#include "sinew/tests/support/fake_control_plane.h"
#include "sinew/tests/support/manual_clock.h"

namespace sinew::internal {

template <class T>
std::string error_of(const Future<T>& future) {
  if (!future.done()) return "pending";
  return future.error() == nullptr ? "ok" : std::string(to_status(future.error()).message());
}

/// One member, as far as gathers go.
struct GatherWorker {
  GatherWorker(testing::FakeControlNetwork& network, Scheduler& scheduler, WorkerInfo info)
      : self(info), plane(network, info, "at:" + info.name) {
    gather = std::make_unique<PeerGather>(plane, directory, self.name, scheduler);
  }
  WorkerInfo self;
  Directory directory;
  testing::FakeControlPlane plane;
  std::unique_ptr<PeerGather> gather;
};

/// Members that gather, on one thread and a clock of the test.
class GatherWorld {
 public:
  explicit GatherWorld(const std::vector<std::string>& names)
      : GatherWorld(names, std::make_shared<testing::StepRunner>()) {}
  GatherWorld(const std::vector<std::string>& names, std::uint32_t seed)
      : GatherWorld(names, std::make_shared<testing::StepRunner>(seed)) {}

  GatherWorker& operator[](std::size_t index) { return *workers[index]; }
  // Tasks that never run would keep their strands, which keep the runner.
  ~GatherWorld() { run(); }

  void run() { runner->run_until_idle(); }
  void advance(std::chrono::nanoseconds time) {
    testing::advance_in_steps(*runner, clock, time, std::chrono::milliseconds(10));
  }
  void tell_lost(const WorkerInfo& lost, Departure how = Departure::kLost) {
    for (const auto& worker : workers) {
      if (worker->gather && worker->self != lost) worker->gather->on_worker_lost(lost, how);
    }
  }
  void lose(std::size_t index) {
    GatherWorker& lost = *workers[index];
    network.kill(lost.plane.address());
    lost.gather.reset();
    tell_lost(lost.self);
  }

  std::shared_ptr<testing::StepRunner> runner;
  testing::ManualClock clock;
  Scheduler scheduler;
  testing::FakeControlNetwork network;
  std::vector<std::unique_ptr<GatherWorker>> workers;

 private:
  GatherWorld(const std::vector<std::string>& names,
              std::shared_ptr<testing::StepRunner> step_runner)
      : runner(std::move(step_runner)),
        scheduler(runner, clock, clock),
        network(runner, clock, clock) {
    std::vector<Member> members;
    for (std::size_t i = 0; i < names.size(); ++i) {
      const WorkerInfo info{names[i], static_cast<int>(i), {i + 1}};
      workers.push_back(std::make_unique<GatherWorker>(network, scheduler, info));
      members.push_back({info, "at:" + names[i], 0});
    }
    for (const auto& worker : workers) worker->directory.replace(1, members);
  }
};

inline const std::vector<std::string> kAll = {"a", "b", "c"};

}  // namespace sinew::internal
