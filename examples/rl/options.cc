#include "options.h"

#include <iostream>

#include "sinew/examples/common/flags.h"

namespace rl {
namespace {

using examples::between;
using examples::kUsageError;
using examples::whole;

void add_worker_flags(CLI::App& app, Options& options) {
  app.add_option("--world-size", options.world_size,
                 "Processes: one agent and world-size - 1 observers")
      ->envname("WORLD_SIZE")
      ->check(whole(2, 1024))
      ->capture_default_str();
  app.add_option("--threads", options.threads,
                 "Threads that run handlers; 0: one per core, at least 4")
      ->check(whole(0, 1024))
      ->capture_default_str();
}

void add_agent_flags(CLI::App& app, Options& options) {
  app.add_option("--gamma", options.gamma, "Discount of later rewards")
      ->check(between<double>(0, 1, "a number from 0 to 1"))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Seed of all random numbers")
      ->check(whole(0, 1'000'000'000'000))
      ->capture_default_str();
  app.add_option("--log-interval", options.log_interval, "Episodes per line of the log")
      ->check(whole(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--max-steps", options.max_steps,
                 "Steps of an episode, shared out among the observers")
      ->check(whole(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--episodes", options.episodes, "Give up after so many episodes")
      ->check(whole(1, 100'000'000))
      ->capture_default_str();
  app.add_option("--output", options.output,
                 "Folder for the reward curve (reward_curve.csv, reward_curve.svg)")
      ->capture_default_str();
  app.add_flag("--batch", options.batch,
               "Answer the requests of all observers with one forward pass");
  app.add_flag("--sync-rewards", options.sync_rewards,
               "Wait for each reward to arrive before the next action is asked for");
  auto* bench = app.add_flag("--bench", options.bench,
                             "Measure steps per second: play all episodes, write no curve");
  app.add_option("--bench-steps", options.bench_steps,
                 "With --bench: end after so many timed steps")
      ->check(whole(1, 1'000'000'000))
      ->needs(bench);
  app.add_flag("--json", options.json, "Print one JSON object on stdout, the rest on stderr");
}

std::variant<Options, int> parse(CLI::App& app, Options& options, int argc, char** argv) {
  const examples::Parsed parsed = examples::parse(app, argc, argv);
  if (!parsed.go_on) return parsed.status;
  return options;
}

}  // namespace

std::variant<Options, int> parse_agent_options(int argc, char** argv) {
  Options options;
  CLI::App app("Learns to balance a pole (CartPole-v1) with observers on other workers.",
               "rl_agent");
  add_worker_flags(app, options);
  add_agent_flags(app, options);
  const auto parsed = parse(app, options, argc, argv);
  if (std::holds_alternative<int>(parsed)) return parsed;
  if (const int observers = options.world_size - 1; options.max_steps < 2 * observers) {
    std::cerr << "rl_agent: --max-steps " << options.max_steps
              << " leaves fewer than 2 steps for each of " << observers
              << " observers: raise it, or lower --world-size\n";
    return kUsageError;
  }
  return options;
}

std::variant<Options, int> parse_observer_options(int argc, char** argv) {
  Options options;
  CLI::App app("Plays episodes of CartPole-v1 for the agent.", "rl_observer");
  add_worker_flags(app, options);
  return parse(app, options, argc, argv);
}

}  // namespace rl
