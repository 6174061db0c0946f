#include "actor/options.h"

#include <iostream>
#include <map>

#include "CLI/CLI.hpp"

namespace actor_learner {
namespace {

constexpr int kUsageError = 2;

void add_job_flags(CLI::App& app, ActorOptions& options) {
  app.add_option("--name", options.name, "Of this actor, and no other one in the job")->required();
  app.add_option("--init-method", options.init_method,
                 "Where the job meets, as for the learner: tcp://HOST:PORT or file:///PATH")
      ->required();
  app.add_option("--lease", options.lease_s, "Seconds of silence after which another one is lost")
      ->check(CLI::Range(1.0, 3600.0))
      ->capture_default_str();
  app.add_option("--join-timeout", options.join_timeout_s,
                 "Seconds to look for the job at the start")
      ->check(CLI::Range(1.0, 1e6))
      ->capture_default_str();
}

void add_play_flags(CLI::App& app, ActorOptions& options) {
  app.add_option("--seed", options.seed, "Seed of all random numbers")->capture_default_str();
  app.add_option("--speed", options.speed,
                 "How many times as fast as time the pendulum is; 0: as fast as it can be")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  app.add_option("--episodes", options.episodes, "End after so many episodes; 0: with the training")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--log-interval", options.log_interval, "Episodes per line of the log")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

void add_queue_flags(CLI::App& app, ActorOptions& options) {
  app.add_option("--queue", options.queue, "Steps that may wait for the learner")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{100'000'000}))
      ->capture_default_str();
  const std::map<std::string, Overflow> policies = {{"drop-oldest", Overflow::kDropOldest},
                                                    {"block", Overflow::kBlock}};
  app.add_option(
         "--overflow", options.overflow,
         "When more would wait: drop-oldest loses the oldest ones and plays on; block waits "
         "for the learner, also while there is none")
      ->transform(CLI::CheckedTransformer(policies))
      ->default_str("drop-oldest");
}

}  // namespace

std::variant<ActorOptions, int> parse_actor_options(int argc, char** argv) {
  ActorOptions options;
  CLI::App app(
      "Plays Pendulum-v1 by the learner's policy, and pushes what it has played to it.\n\n"
      "  actor --init-method tcp://127.0.0.1:29500 --name actor1 [FLAGS]",
      "actor");
  add_job_flags(app, options);
  add_play_flags(app, options);
  add_queue_flags(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    std::cerr << "actor: " << error.what() << "\nRun it with --help for all flags.\n";
    return kUsageError;
  }
  return options;
}

}  // namespace actor_learner
