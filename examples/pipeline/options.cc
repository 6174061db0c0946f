#include "options.h"

#include "sinew/examples/common/flags.h"

namespace pipeline {

std::variant<Options, int> parse_options(int argc, char** argv) {
  using examples::between;
  using examples::whole;
  Options options;
  CLI::App app("A network whose layers lie on three workers, one behind the other.", "pipeline");
  app.add_option("--micro-batches", options.micro_batches,
                 "Parts of a batch that are under way at once")
      ->check(whole(1, 10'000))
      ->capture_default_str();
  app.add_option("--steps", options.steps, "Steps of training")
      ->check(whole(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--batch", options.batch, "Points of a step")
      ->check(whole(1, 10'000'000))
      ->capture_default_str();
  app.add_option("--width", options.width, "Width of a layer")
      ->check(whole(1, 65'536))
      ->capture_default_str();
  app.add_option("--layers", options.layers, "Layers of a stage")
      ->check(whole(1, 1000))
      ->capture_default_str();
  app.add_option("--lr", options.lr, "Learning rate")
      ->check(between<double>(1e-9, 1000, "a number from 1e-9 to 1000"))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Seed of all random numbers")
      ->check(whole(0, 1'000'000'000))
      ->capture_default_str();
  const examples::Parsed parsed = examples::parse(app, argc, argv);
  if (!parsed.go_on) return parsed.status;
  if (options.micro_batches > options.batch) {
    std::cerr << "pipeline: --micro-batches " << options.micro_batches << " is more than --batch "
              << options.batch << ": some would be empty\n";
    return examples::kUsageError;
  }
  return options;
}

}  // namespace pipeline
