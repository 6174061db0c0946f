#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <variant>

#include "learner/sac.h"

namespace actor_learner {

/// What the learner's command line asks for.
struct Options {
  // The job.
  std::string init_method;
  std::string bind_address;
  double lease_s = 15;

  // The training.
  SacSettings sac;
  std::uint64_t seed = 1;
  std::int64_t batch = 128;
  /// Transitions that the buffer holds.
  std::int64_t capacity = 100'000;
  /// Transitions before the first update.
  std::int64_t warm_up = 1000;
  /// The training waits for actors so as not to make more.
  double updates_per_transition = 1;
  /// It ends after so many.
  std::int64_t updates = 100'000;
  /// It has solved the task when the mean return of an evaluation is at least this.
  double goal = -200;

  // How often something happens, in updates.
  std::int64_t publish_every = 50;
  std::int64_t evaluate_every = 1000;
  std::int64_t checkpoint_every = 1000;
  std::int64_t evaluation_episodes = 20;

  // Files.
  /// Where the curve goes; empty: nowhere.
  std::filesystem::path output = "actor_learner-output";
  /// Where checkpoints go, and come from; empty: none.
  std::filesystem::path checkpoint;
};

/// A mistake (or --help) is answered on the terminal; the result is then the exit status of the
/// program: 2 (or 0).
std::variant<Options, int> parse_options(int argc, const char* const* argv);

}  // namespace actor_learner
