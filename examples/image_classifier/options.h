#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include "sinew/examples/common/rank_options.h"

namespace image_classifier {

/// What the command line and the file of --config ask for. All processes of a job get the same one.
struct Options {
  examples::RankOptions ranks;

  /// Folder with MNIST's or CIFAR-10's files.
  std::filesystem::path data = "mnist";
  /// "single": one process, one device. "dp": one process, all its GPUs. "ddp": a process for each
  /// rank. Empty: ddp where there are several ranks, else single.
  std::string mode;

  // The model.
  /// "imagenet": the first layers of the paper, which shrink a picture to a quarter; "cifar": those
  /// that leave small pictures as they are, which take sixteen times as long.
  std::string stem = "imagenet";
  /// Channels of the first stage; 64 in the paper.
  std::int64_t width = 64;

  // The training.
  std::int64_t epochs = 5;
  /// Pictures of a step, of each rank.
  std::int64_t batch = 64;
  /// Rate for a batch of 256; it is scaled to the batch of all ranks.
  double lr = 0.1;
  double momentum = 0.9;
  double weight_decay = 5e-5;
  double warmup_epochs = 0.5;
  double warmup_factor = 0.1;
  std::int64_t seed = 1;
  /// Steps between two lines of the log.
  std::int64_t round = 20;
  /// Ends an epoch after so many steps; 0: when the pictures are through.
  std::int64_t max_steps = 0;

  // Files.
  /// Where the curve goes; empty: nowhere.
  std::filesystem::path output = "image_classifier-output";
  /// Folder of checkpoints; empty: none.
  std::filesystem::path checkpoint;
  /// A checkpoint after so many rounds too, and not only after each epoch; 0: don't.
  std::int64_t checkpoint_rounds = 0;
  bool resume = false;
};

/// `words`: the command line, with the name of the program. A mistake (or --help) is answered on
/// the terminal; the result is then the exit status of the program: 2 (or 0).
std::variant<Options, int> parse_options(const std::vector<std::string>& words);

}  // namespace image_classifier
