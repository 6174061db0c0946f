#include "options.h"

#include "sinew/examples/common/yaml_config.h"

namespace image_classifier {
namespace {

using examples::add_number;
using examples::add_whole;

void add_model_flags(CLI::App& app, Options& options) {
  app.add_option("--mode", options.mode,
                 "single: one process and one device; dp: one process and all its GPUs; ddp: a "
                 "process for each rank. Without it: ddp where there are several ranks")
      ->check(CLI::IsMember({"single", "dp", "ddp"}));
  app.add_option("--stem", options.stem,
                 "First layers: imagenet, those of the paper; cifar, for small pictures, which "
                 "take sixteen times as long")
      ->check(CLI::IsMember({"imagenet", "cifar"}))
      ->capture_default_str();
  add_whole(app, "--width", options.width, 1, 1024, "Channels of the first of ResNet's stages");
}

void add_training_flags(CLI::App& app, Options& options) {
  add_whole(app, "--epochs", options.epochs, 1, 1'000'000, "Passes over the pictures");
  add_whole(app, "--batch", options.batch, 2, 1'000'000, "Pictures of a step, of each rank");
  add_number(app, "--lr", options.lr, 1e-9, 1000, "1e-9 to 1000",
             "Learning rate for a batch of 256; it grows with the batch of all ranks");
  add_number(app, "--momentum", options.momentum, 0, 1, "0 to 1", "Momentum of SGD");
  add_number(app, "--weight-decay", options.weight_decay, 0, 1, "0 to 1", "Weight decay");
  add_number(app, "--warmup-epochs", options.warmup_epochs, 0, 1'000'000, "0 to 1e6",
             "Epochs in which the rate grows to its height");
  add_number(app, "--warmup-factor", options.warmup_factor, 0, 1, "0 to 1",
             "Share of the rate that the warm-up begins with");
  add_whole(app, "--round", options.round, 1, 1'000'000, "Steps between two lines of the log");
  add_whole(app, "--max-steps", options.max_steps, 0, 1'000'000'000,
            "End each epoch after so many steps; 0: don't");
  examples::add_seed(app, options.seed);
}

void add_file_flags(CLI::App& app, Options& options) {
  app.add_option("--data", options.data,
                 "Folder with MNIST's IDX files or CIFAR-10's binary ones, gzipped or not "
                 "(tools/fetch-mnist)")
      ->capture_default_str();
  app.add_option("--output", options.output, "Folder for training_curve.csv and training_curve.svg")
      ->capture_default_str();
  app.add_option("--checkpoint", options.checkpoint,
                 "Folder for a checkpoint after each epoch, kept by rank 0");
  add_whole(app, "--checkpoint-rounds", options.checkpoint_rounds, 0, 1'000'000'000,
            "A checkpoint after so many rounds too; 0: don't");
  app.add_flag("--resume", options.resume,
               "Go on after the checkpoint in --checkpoint, if there is one");
}

int refuse(const std::string& reason) {
  std::cerr << "image_classifier: " << reason << "\nRun it with --help for all flags.\n";
  return examples::kUsageError;
}

}  // namespace

std::variant<Options, int> parse_options(const std::vector<std::string>& words) {
  Options options;
  CLI::App app(
      "Trains ResNet-18 on MNIST or CIFAR-10, on any number of ranks.\n\n  image_classifier "
      "[FLAGS]\n"
      "  sinew-run --nproc 2 image_classifier [FLAGS]",
      "image_classifier");
  examples::add_rank_flags(app, options.ranks);
  add_file_flags(app, options);
  add_model_flags(app, options);
  add_training_flags(app, options);
  examples::add_yaml_config(app);
  const examples::Parsed parsed = examples::parse(app, words);
  if (!parsed.go_on) return parsed.status;
  if (options.checkpoint.empty() && (options.resume || options.checkpoint_rounds > 0)) {
    return refuse(std::string(options.resume ? "--resume" : "--checkpoint-rounds") +
                  " needs --checkpoint: the folder of the checkpoints");
  }
  if (options.warmup_epochs > static_cast<double>(options.epochs)) {
    return refuse("--warmup-epochs is more than --epochs: it would never be warm");
  }
  return options;
}

}  // namespace image_classifier
