// An actor: plays by the learner's policy, and comes and goes as it likes.

#include <exception>
#include <iostream>
#include <optional>
#include <variant>

#include "ATen/Parallel.h"
#include "actor/actor.h"
#include "actor/options.h"
#include "common/stop_signal.h"

int main(int argc, char** argv) {
  const auto parsed = actor_learner::parse_actor_options(argc, argv);
  if (const int* status = std::get_if<int>(&parsed)) return *status;
  // In this order: the signal's thread is to be gone first.
  std::optional<actor_learner::Actor> actor;
  examples::StopSignal stop_signal;
  // The network is too small for several threads.
  at::set_num_threads(1);
  try {
    actor.emplace(std::get<actor_learner::ActorOptions>(parsed), std::cout);
    stop_signal.then([&actor] { actor->stop(); });
    actor->run();
  } catch (const std::exception& error) {
    std::cerr << "actor: " << error.what() << std::endl;
    return 3;
  }
  return examples::StopSignal::requested() ? examples::stopped_status() : 0;
}
