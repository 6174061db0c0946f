#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "actor/player.h"
#include "learner/learner_service.h"
#include "shared/learner.h"
#include "shared/pendulum.h"
#include "sinew/benchmarks/apart.h"
#include "sinew/benchmarks/measure.h"
#include "sinew/benchmarks/one_thread.h"
#include "sinew/benchmarks/worker_processes.h"
#include "sinew/sinew.h"

/// The learner and the actors of examples/actor_learner, whose actors do not compute: what is left
/// is the way of the transitions. The same work as peers/torch_actor_learner.py.
namespace sinew::bench {

inline constexpr char kActorLearnerFigure[] = "actor_learner_transitions_per_s";

class ActorLearner {
 public:
  static constexpr int kActors = 4;
  static constexpr int kStepsPerPush = 20;
  static constexpr std::int64_t kCapacity = 100'000;

  /// Starts the actors' processes: to be made before anything that starts threads.
  ActorLearner()
      : processes_(numbered_names(actor_learner::kLearnerWorker, "actor", kActors),
                   &push_until_finished) {}

  /// Transitions that the learner, in this process, takes in a second.
  double transitions_per_s(const Options& options) const {
    compute_on_one_thread();
    const auto service = std::make_shared<actor_learner::LearnerService>(kCapacity);
    WorkerOptions worker_options = processes_.place(0);
    worker_options.methods.add<&actor_learner::Learner::push>();
    const Worker worker = init_rpc(std::move(worker_options));
    worker.publish<actor_learner::Learner>(actor_learner::kLearnerName, service);
    std::this_thread::sleep_for(2 * options.rate_warm_up());
    const Clock::time_point start = Clock::now();
    const std::int64_t before = service->transitions();
    std::this_thread::sleep_for(options.rate_window());
    const std::int64_t taken = service->transitions() - before;
    const double rate =
        static_cast<double>(taken) / std::chrono::duration<double>(Clock::now() - start).count();
    // The actors are told by the answers to their next pushes, and leave together with this worker.
    service->finish();
    worker.shutdown();
    return rate;
  }

 private:
  /// Pumps the pendulum, and pushes each 20 steps when those before have arrived.
  static void push_until_finished(const Worker& worker) {
    const auto learner = worker.find<actor_learner::Learner>(
        std::string(actor_learner::kLearnerWorker) + "/" + actor_learner::kLearnerName);
    actor_learner::Pendulum pendulum(static_cast<std::uint64_t>(worker.rank()));
    actor_learner::Pendulum::Observation observation = pendulum.reset();
    std::vector<actor_learner::Step> steps(kStepsPerPush);
    actor_learner::Receipt receipt;
    while (!receipt.finished) {
      for (actor_learner::Step& step : steps) {
        step.observation = observation;
        step.action = pendulum.velocity() >= 0 ? 1.0F : -1.0F;
        const auto result = pendulum.step(actor_learner::Pendulum::kMaxTorque * step.action);
        step.reward = static_cast<float>(result.reward);
        step.next_observation = observation = result.observation;
      }
      receipt = learner.call<&actor_learner::Learner::push>(actor_learner::to_played(steps));
    }
  }

  const WorkerProcesses processes_;
};

inline void measure_actor_learner(const Options& options) {
  if (!options.wants(kActorLearnerFigure)) return;
  const auto measure = [&options] {
    return std::vector<double>{ActorLearner().transitions_per_s(options)};
  };
  options.report(kActorLearnerFigure, measure_apart(measure).at(0));
}

}  // namespace sinew::bench
