// The learner: founds the job, and learns from whatever actors come. Killed and started again, it
// goes on from its checkpoint, in the same job.

#include <chrono>
#include <exception>
#include <future>
#include <iostream>
#include <optional>
#include <variant>

#include "ATen/Parallel.h"
#include "learner/options.h"
#include "learner/seat.h"
#include "learner/training.h"
#include "sinew/examples/common/credentials.h"
#include "sinew/examples/common/stop_signal.h"

namespace {

using actor_learner::Outcome;

constexpr int kNotSolved = 1;
constexpr int kFailed = 3;
// Actors learn from the next answer to them that the training is over.
constexpr auto kFarewell = std::chrono::seconds(30);

sinew::WorkerOptions worker_options(const actor_learner::Options& options) {
  sinew::WorkerOptions worker;
  worker.name = actor_learner::kLearnerWorker;
  worker.init_method = options.init_method;
  worker.bind_address = options.bind_address;
  worker.credentials = examples::credentials_of(worker.name);
  // Workers come and go. This one begins the job, over a file too, and has its rank when it is
  // started again: so there is never a second job beside that of its actors.
  worker.world_size = 0;
  worker.rank = 0;
  worker.found_job = sinew::FoundJob::kRankZero;
  worker.lease = std::chrono::nanoseconds(static_cast<std::int64_t>(options.lease_s * 1e9));
  return worker;
}

int finish(Outcome outcome, actor_learner::Training& training, actor_learner::Seat& seat) {
  if (outcome == Outcome::kStopped) {
    seat.leave();
    training.say("Stopped");
    return examples::stopped_status();
  }
  training.service()->finish();
  seat.leave_last(kFarewell);
  if (outcome == Outcome::kSolved) {
    training.say("Solved!");
    return 0;
  }
  training.say("Not solved; try more --updates");
  return kNotSolved;
}

}  // namespace

int main(int argc, char** argv) {
  const auto parsed = actor_learner::parse_options(argc, argv);
  if (const int* status = std::get_if<int>(&parsed)) return *status;
  const auto& options = std::get<actor_learner::Options>(parsed);
  // In this order: the signal's thread is to be gone first.
  std::optional<actor_learner::Training> training;
  examples::StopSignal stop_signal;
  // The networks are too small for several threads, and actors need the cores.
  at::set_num_threads(1);
  try {
    training.emplace(options, std::cout);
    actor_learner::Seat seat(
        worker_options(options),
        [&training](const sinew::Worker& worker) { training->publish_at(worker); },
        [&training](const std::string& line) { training->say(line); });
    stop_signal.then([&training] { training->stop(); });
    // In a thread of its own: this one, and those that serve actors, have other things to do.
    const Outcome outcome =
        std::async(std::launch::async, &actor_learner::Training::run, &*training).get();
    return finish(outcome, *training, seat);
  } catch (const std::exception& error) {
    std::cerr << "learner: " << error.what() << std::endl;
    return kFailed;
  }
}
