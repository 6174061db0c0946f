#include "options.h"

#include "sinew/examples/common/flags.h"

namespace rl {
namespace {

using examples::add_number;
using examples::add_whole;

void add_worker_flags(CLI::App& app, Options& options) {
  add_whole(app, "--threads", options.threads, 0, 1024,
            "Threads that run handlers; 0: one per core, at least 4");
}

void add_agent_flags(CLI::App& app, Options& options) {
  add_number(app, "--gamma", options.gamma, 0, 1, "0 to 1", "Discount of later rewards");
  examples::add_seed(app, options.seed);
  add_whole(app, "--log-interval", options.log_interval, 1, 1'000'000,
            "Episodes per line of the log");
  add_whole(app, "--max-steps", options.max_steps, 1, 1'000'000,
            "Steps of an episode, shared out among the observers");
  add_whole(app, "--episodes", options.episodes, 1, 100'000'000, "Give up after so many episodes");
  app.add_option("--output", options.output,
                 "Folder for the reward curve (reward_curve.csv, reward_curve.svg)")
      ->capture_default_str();
  app.add_flag("--batch", options.batch,
               "Answer the requests of all observers with one forward pass");
  app.add_flag("--sync-rewards", options.sync_rewards,
               "Wait for each reward to arrive before the next action is asked for");
  auto* bench = app.add_flag("--bench", options.bench,
                             "Measure steps per second: play all episodes, write no curve");
  add_whole(app, "--bench-steps", options.bench_steps, 1, 1'000'000'000,
            "With --bench: end after so many timed steps")
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
  CLI::App app(
      std::string("Learns to balance a pole (CartPole-v1) with observers on other workers.\n\n  ") +
          kCommand + "\n\nEach has flags of its own.",
      "rl_agent");
  add_worker_flags(app, options);
  add_agent_flags(app, options);
  return parse(app, options, argc, argv);
}

std::variant<Options, int> parse_observer_options(int argc, char** argv) {
  Options options;
  CLI::App app("Plays episodes of CartPole-v1 for the agent; rl_agent --help says how to start.",
               "rl_observer");
  add_worker_flags(app, options);
  return parse(app, options, argc, argv);
}

std::string problem_with(const Options& options, int observers) {
  if (options.max_steps >= 2 * observers) return {};
  return "--max-steps " + std::to_string(options.max_steps) +
         " leaves fewer than 2 steps for each of " + std::to_string(observers) +
         " observers: raise it, or start fewer";
}

}  // namespace rl
