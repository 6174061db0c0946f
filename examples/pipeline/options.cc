#include "options.h"

#include "sinew/examples/common/flags.h"

namespace pipeline {

std::variant<Options, int> parse_options(int argc, char** argv) {
  using examples::add_number;
  using examples::add_whole;
  Options options;
  CLI::App app(
      "A network whose layers lie on three workers, one behind the other.\n\n"
      "  sinew-run --nproc 4 pipeline [FLAGS]",
      "pipeline");
  add_whole(app, "--micro-batches", options.micro_batches, 1, 10'000,
            "Parts of a batch that are under way at once");
  add_whole(app, "--steps", options.steps, 1, 1'000'000, "Steps of training");
  add_whole(app, "--batch", options.batch, 1, 10'000'000, "Points of a step");
  add_whole(app, "--width", options.width, 1, 65'536, "Width of a layer");
  add_whole(app, "--layers", options.layers, 1, 1000, "Layers of a stage");
  add_number(app, "--lr", options.lr, 1e-9, 1000, "1e-9 to 1000", "Learning rate");
  examples::add_seed(app, options.seed);
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
