#include "options.h"

#include "sinew/examples/common/flags.h"

namespace batch_ps {

std::variant<Options, int> parse_options(int argc, char** argv) {
  using examples::between;
  using examples::whole;
  Options options;
  CLI::App app("Trainers whose gradients a server collects, and applies as one.", "batch_ps");
  app.add_option("--trainers", options.trainers, "Processes beside the server's")
      ->check(whole(1, 256))
      ->capture_default_str();
  app.add_option("--steps", options.steps, "Steps of the model")
      ->check(whole(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--batch", options.batch, "Points that each trainer sees in a step")
      ->check(whole(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--lr", options.lr, "Learning rate")
      ->check(between<double>(1e-9, 1000, "a number from 1e-9 to 1000"))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Seed of all random numbers")
      ->check(whole(0, 1'000'000'000))
      ->capture_default_str();
  const examples::Parsed parsed = examples::parse(app, argc, argv);
  if (!parsed.go_on) return parsed.status;
  return options;
}

}  // namespace batch_ps
