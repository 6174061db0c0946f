#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "actor/transition_queue.h"

namespace actor_learner {

/// What an actor's command line asks for.
struct ActorOptions {
  /// Of its worker; who comes back has it again.
  std::string name;
  std::string init_method;
  double lease_s = 15;
  /// How long it looks for the job at its start.
  double join_timeout_s = 600;

  std::uint64_t seed = 1;
  /// How many times as fast as time its pendulum is; 0: as fast as it can be.
  double speed = 10;
  /// Ends after so many episodes; 0: with the training.
  std::int64_t episodes = 0;
  /// Episodes from one line of the log to the next.
  std::int64_t log_interval = 10;

  /// Steps that wait for the learner.
  std::int64_t queue = 10'000;
  Overflow overflow = Overflow::kDropOldest;
};

/// A mistake (or --help) is answered on the terminal; the result is then the exit status of the
/// program: 2 (or 0).
std::variant<ActorOptions, int> parse_actor_options(int argc, char** argv);

}  // namespace actor_learner
