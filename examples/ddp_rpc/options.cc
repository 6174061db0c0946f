#include "options.h"

#include "sinew/examples/common/device_flag.h"

namespace ddp_rpc {

std::variant<Options, int> parse_options(int argc, char** argv) {
  using examples::add_number;
  using examples::add_whole;
  Options options;
  CLI::App app(
      "A model whose embedding lives on a parameter server, while its dense part is trained by "
      "several\ntrainers that keep equal copies of it: one process leads, one is the server, and "
      "the "
      "others train.\n\n  sinew-run --nproc 4 ddp_rpc [FLAGS]",
      "ddp_rpc");
  add_whole(app, "--steps", options.steps, 1, 1'000'000, "Steps of the model");
  add_whole(app, "--round", options.round, 1, 1'000'000, "Steps between two lines of the log");
  add_whole(app, "--batch", options.batch, 1, 1'000'000,
            "Bags of words that each trainer sees in a step");
  add_number(app, "--lr", options.lr, 1e-9, 1000, "1e-9 to 1000", "Learning rate");
  examples::add_seed(app, options.seed);
  examples::add_device_flag(app, options.device, "trainers have the dense part");
  CLI::Option* local = app.add_flag(
      "--local", options.local,
      "Train the same in this process alone, each step on what all trainers would see");
  add_whole(app, "--trainers", options.trainers, 1, 256, "With --local: how many that would be")
      ->needs(local);
  app.add_option("--output", options.output, "Folder for loss_curve.csv and loss_curve.svg")
      ->capture_default_str();
  const examples::Parsed parsed = examples::parse(app, argc, argv);
  if (!parsed.go_on) return parsed.status;
  return options;
}

}  // namespace ddp_rpc
