#include "options.h"

#include "sinew/examples/common/device_flag.h"

namespace mnist_sgd {

std::variant<Options, int> parse_options(const std::vector<std::string>& words) {
  using examples::add_number;
  using examples::add_whole;
  Options options;
  // The network is so small that several would mostly wait for each other.
  options.ranks.threads = 1;
  CLI::App app(
      "Trains a small network on MNIST by synchronous SGD: each rank has a part of the pictures, "
      "and all "
      "step along\nthe mean of their gradients.\n\n  mnist_sgd [FLAGS]\n  sinew-run --nproc 2 "
      "mnist_sgd "
      "[FLAGS]",
      "mnist_sgd");
  examples::add_rank_flags(app, options.ranks);
  examples::add_device_flag(app, options.device, "the network is");
  app.add_option("--data", options.data,
                 "Folder with MNIST's four IDX files, gzipped or not (tools/fetch-mnist)")
      ->capture_default_str();
  add_whole(app, "--epochs", options.epochs, 1, 1'000'000, "Passes over the pictures");
  add_whole(app, "--batch", options.batch, 1, 1'000'000,
            "Pictures of a step, of all ranks together");
  add_number(app, "--lr", options.lr, 1e-9, 1000, "1e-9 to 1000", "Learning rate");
  add_number(app, "--momentum", options.momentum, 0, 1, "0 to 1", "Momentum of SGD");
  add_whole(app, "--max-steps", options.max_steps, 0, 1'000'000'000,
            "End each epoch after so many steps; 0: don't");
  examples::add_seed(app, options.seed);
  app.add_option("--output", options.output, "Folder for training_curve.csv and training_curve.svg")
      ->capture_default_str();
  const examples::Parsed parsed = examples::parse(app, words);
  if (!parsed.go_on) return parsed.status;
  return options;
}

}  // namespace mnist_sgd
