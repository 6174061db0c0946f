#include "options.h"

#include "sinew/examples/common/flags.h"

namespace batch_ps {

std::variant<Options, int> parse_options(int argc, char** argv) {
  using examples::add_number;
  using examples::add_whole;
  Options options;
  CLI::App app(
      "Trainers whose gradients a server collects, and applies as one: one server, and as many "
      "trainers as there are other processes.\n\n  sinew-run --nproc 4 batch_ps [FLAGS]",
      "batch_ps");
  add_whole(app, "--steps", options.steps, 1, 1'000'000, "Steps of the model");
  add_whole(app, "--batch", options.batch, 1, 1'000'000, "Points that each trainer sees in a step");
  add_number(app, "--lr", options.lr, 1e-9, 1000, "1e-9 to 1000", "Learning rate");
  examples::add_seed(app, options.seed);
  app.add_option("--history", options.history,
                 "File to which trainers append which gradients they have sent, and the server "
                 "which ones are in the model, one JSON object a line");
  const examples::Parsed parsed = examples::parse(app, argc, argv);
  if (!parsed.go_on) return parsed.status;
  return options;
}

}  // namespace batch_ps
