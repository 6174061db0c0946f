#include "options.h"

#include "sinew/examples/common/flags.h"

namespace rl {

std::variant<Options, int> parse_options(int argc, const char* const* argv) {
  using examples::add_number;
  using examples::add_whole;
  Options options;
  CLI::App app(
      std::string("Learns to balance a pole (CartPole-v1) with observers on other workers.\n\n  ") +
          kCommand,
      "rl_agent");
  add_number(app, "--gamma", options.gamma, 0, 1, "0 to 1", "Discount of later rewards");
  examples::add_seed(app, options.seed);
  add_whole(app, "--log-interval", options.log_interval, 1, 1'000'000,
            "Episodes per line of the log");
  add_whole(app, "--max-steps", options.max_steps, 1, 1'000'000,
            "Steps of an episode, shared out among the observers");
  add_whole(app, "--episodes", options.episodes, 1, 100'000'000, "Give up after so many episodes");
  auto* batch = app.add_flag("--batch", options.batch,
                             "Answer the requests of all observers with one forward pass");
  add_number(app, "--max-wait", options.max_wait_ms, 0, 60'000, "0 to 60000",
             "Milliseconds that a request waits for those of the other observers")
      ->needs(batch);
  add_whole(app, "--envs", options.envs, 1, 1024,
            "Environments of each observer, which asks for their actions together");
  add_number(app, "--patience", options.patience_s, 0, 86'400, "0 to 86400",
             "Seconds to wait for an observer when there is none left");
  app.add_option("--output", options.output,
                 "Folder for the reward curve, as .csv and .svg; '' writes none")
      ->capture_default_str();
  const examples::Parsed parsed = examples::parse(app, argc, argv);
  if (!parsed.go_on) return parsed.status;
  return options;
}

std::string problem_with(const Options& options, int observers) {
  if (options.batch && options.envs > 1) {
    return "--envs " + std::to_string(options.envs) +
           " asks for many actions in one call already: leave out --batch";
  }
  if (options.max_steps >= 2 * observers) return {};
  return "--max-steps " + std::to_string(options.max_steps) +
         " leaves fewer than 2 steps for each of " + std::to_string(observers) +
         " observers: raise it, or start fewer";
}

}  // namespace rl
