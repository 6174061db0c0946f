#include "options.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "models/model_names.h"
#include "sinew/examples/common/yaml_config.h"

namespace image_classifier {
namespace {

using examples::add_number;
using examples::add_whole;

void add_data_flags(CLI::App& app, Options& options) {
  app.add_option("--data", options.data,
                 "Folder with MNIST's IDX files or CIFAR-10's binary ones, gzipped or not "
                 "(tools/fetch-mnist); imagefolder:DIR: JPEG and PNG files in DIR/train and "
                 "DIR/val, in a folder for each class")
      ->capture_default_str();
  add_whole(app, "--image-size", options.image_size, 8, 4096,
            "Height and width to which pictures of an imagefolder are cut and shrunk");
  add_whole(app, "--dummy-input", options.dummy_input, 0, 1'000'000'000,
            "So many pictures of noise, of a thousand classes, instead of --data; 0: none");
  add_whole(
      app, "--workers", options.workers, 0, 1024,
      "Threads of a rank that read pictures beforehand; 0: they are read when they are needed");
  app.add_flag("--pin-memory", options.pin_memory,
               "Batches in memory from which they go to a GPU while it computes");
}

void add_model_flags(CLI::App& app, Options& options) {
  app.add_option("--mode", options.mode,
                 "single: one process and one device; dp: one process and all its GPUs; ddp: a "
                 "process for each rank. Without it: ddp where there are several ranks")
      ->check(CLI::IsMember({"single", "dp", "ddp"}));
  app.add_option("--model", options.model, "The network")
      ->check(CLI::IsMember(model_names()))
      ->capture_default_str();
  app.add_option("--stem", options.stem,
                 "First layers: imagenet, those of the paper; cifar, for small pictures, which "
                 "take sixteen times as long")
      ->check(CLI::IsMember({"imagenet", "cifar"}))
      ->capture_default_str();
  add_whole(app, "--width", options.width, 1, 1024, "Channels of the first of ResNet's stages");
  app.add_option("--weights", options.weights,
                 "State dict to begin with, as torch.save() writes it, with torchvision's names");
  app.add_flag("--reset-head", options.reset_head,
               "Leave the last layer of --weights out, and train a new one");
  app.add_flag("--sync-batch-norm", options.sync_batch_norm,
               "Batch normalisation over the batches of all ranks");
  app.add_flag("--checkpoint-activations", options.checkpoint_activations,
               "Compute the activations of a block again in the backward pass instead of keeping "
               "them: less memory, more time, the same numbers");
}

void add_training_flags(CLI::App& app, Options& options) {
  add_whole(app, "--epochs", options.epochs, 1, 1'000'000, "Passes over the pictures");
  add_whole(app, "--batch", options.batch, 2, 1'000'000, "Pictures of a pass, of each rank");
  add_whole(app, "--accumulate", options.accumulate, 1, 1'000'000,
            "Passes of a step: ranks exchange their gradients after the last one");
  add_number(app, "--lr", options.lr, 1e-9, 1000, "1e-9 to 1000",
             "Learning rate for a batch of 256; it grows with the batch of all ranks");
  app.add_option(
         "--lr-schedule", options.lr_schedule,
         "cosine, or steps:30,60:0.1, a tenth of the rate from epoch 30 on and again from 60")
      ->capture_default_str();
  add_number(app, "--momentum", options.momentum, 0, 1, "0 to 1", "Momentum of SGD");
  add_number(app, "--weight-decay", options.weight_decay, 0, 1, "0 to 1", "Weight decay");
  add_number(app, "--warmup-epochs", options.warmup_epochs, 0, 1'000'000, "0 to 1e6",
             "Epochs in which the rate grows to its height");
  add_number(app, "--warmup-factor", options.warmup_factor, 0, 1, "0 to 1",
             "Share of the rate that the warm-up begins with");
  app.add_flag("--zero", options.zero, "Spread the state of the optimizer over the ranks");
  add_whole(app, "--round", options.round, 1, 1'000'000, "Steps between two lines of the log");
  add_whole(app, "--max-steps", options.max_steps, 0, 1'000'000'000,
            "End each epoch after so many steps; 0: don't");
  examples::add_seed(app, options.seed);
  app.add_flag("--deterministic", options.deterministic,
               "Only operations that give the same on each run, also on a GPU");
  app.add_flag("--evaluate", options.evaluate,
               "Only evaluate, with --weights or the checkpoint of --resume");
}

void add_file_flags(CLI::App& app, Options& options) {
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

/// "1,5"; none: it is no such list.
std::optional<std::vector<std::int64_t>> parse_topk(const std::string& text) {
  std::vector<std::int64_t> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    std::int64_t number = 0;
    const auto parsed = std::from_chars(at, end, number);
    if (parsed.ec != std::errc() || number < 1 || number > 1'000'000) return std::nullopt;
    if (!numbers.empty() && number <= numbers.back()) return std::nullopt;
    numbers.push_back(number);
    if (parsed.ptr == end) return numbers;
    if (*parsed.ptr != ',') return std::nullopt;
    at = parsed.ptr + 1;
  }
}

/// What is wrong with flags that are each right; empty: nothing.
std::string contradiction(const Options& options) {
  if (options.checkpoint.empty() && (options.resume || options.checkpoint_rounds > 0)) {
    return std::string(options.resume ? "--resume" : "--checkpoint-rounds") +
           " needs --checkpoint: the folder of the checkpoints";
  }
  if (options.warmup_epochs > static_cast<double>(options.epochs)) {
    return "--warmup-epochs is more than --epochs: it would never be warm";
  }
  if (options.reset_head && options.weights.empty()) {
    return "--reset-head needs --weights: whose last layer is left out";
  }
  if (options.evaluate && options.reset_head) {
    return "--evaluate and --reset-head: a new last layer has learnt nothing";
  }
  if (options.evaluate && options.weights.empty() && !options.resume) {
    return "--evaluate needs --weights, or --checkpoint and --resume: something that was trained";
  }
  for (const auto& [flag, given] :
       {std::pair("--sync-batch-norm", options.sync_batch_norm),
        std::pair("--checkpoint-activations", options.checkpoint_activations)}) {
    if (given && options.mode == "dp") {
      return std::string(flag) + " is not for --mode dp; --mode ddp takes any number of processes";
    }
  }
  return {};
}

}  // namespace

std::variant<Options, int> parse_options(const std::vector<std::string>& words) {
  Options options;
  std::string topk = "1,5";
  CLI::App app(
      "Trains a ResNet or a BotNet on MNIST, CIFAR-10 or a folder of pictures, on any number of "
      "ranks.\n\n  image_classifier [FLAGS]\n"
      "  sinew-run --nproc 2 image_classifier [FLAGS]",
      "image_classifier");
  examples::add_rank_flags(app, options.ranks);
  add_data_flags(app, options);
  add_file_flags(app, options);
  add_model_flags(app, options);
  add_training_flags(app, options);
  app.add_option("--topk", topk, "Which shares of right answers are reported")
      ->capture_default_str();
  examples::add_yaml_config(app);
  const examples::Parsed parsed = examples::parse(app, words);
  if (!parsed.go_on) return parsed.status;
  const std::optional<RateSteps> steps = RateSteps::parse(options.lr_schedule);
  if (!steps) {
    return refuse(
        "--lr-schedule: must be cosine, or steps with ascending epochs and a factor below 1, as "
        "steps:30,60:0.1, and '" +
        options.lr_schedule + "' is not");
  }
  options.rate_steps = *steps;
  const auto numbers = parse_topk(topk);
  if (!numbers)
    return refuse("--topk: must be ascending numbers, as 1,5, and '" + topk + "' is not");
  options.topk = *numbers;
  const std::string wrong = contradiction(options);
  if (!wrong.empty()) return refuse(wrong);
  return options;
}

}  // namespace image_classifier
