#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include "schedule.h"
#include "sinew/examples/common/rank_options.h"

namespace image_classifier {

/// What the command line and the file of --config ask for. All processes of a job get the same one.
struct Options {
  examples::RankOptions ranks;

  // The pictures.
  /// Folder with MNIST's or CIFAR-10's files, or "imagefolder:" and a folder with one of its own
  /// for each class.
  std::string data = "mnist";
  /// Height and width of pictures of an imagefolder, and of noise.
  std::int64_t image_size = 224;
  /// Pictures of noise instead of those of `data`; 0: none.
  std::int64_t dummy_input = 0;
  /// Threads that make batches; 0: the one that trains.
  std::int64_t workers = 0;
  bool pin_memory = false;

  // The model.
  /// "single": one process, one device. "dp": one process, all its GPUs. "ddp": a process for each
  /// rank. Empty: ddp where there are several ranks, else single.
  std::string mode;
  /// One of model_names().
  std::string model = "resnet18";
  /// "imagenet": the first layers of the paper, which shrink a picture to a quarter; "cifar": those
  /// that leave small pictures as they are, which take sixteen times as long.
  std::string stem = "imagenet";
  /// Channels of the first stage; 64 in the paper.
  std::int64_t width = 64;
  /// State dict to begin with; empty: none.
  std::filesystem::path weights;
  bool reset_head = false;
  bool sync_batch_norm = false;
  bool checkpoint_activations = false;

  // The training.
  std::int64_t epochs = 5;
  /// Pictures of a pass, of each rank.
  std::int64_t batch = 64;
  /// Passes of a step.
  std::int64_t accumulate = 1;
  /// Rate for a batch of 256; it is scaled to the batch of all ranks.
  double lr = 0.1;
  /// Its text, and what it says.
  std::string lr_schedule = "cosine";
  RateSteps rate_steps;
  double momentum = 0.9;
  double weight_decay = 5e-5;
  double warmup_epochs = 0.5;
  double warmup_factor = 0.1;
  /// The optimizer's state is spread over the ranks.
  bool zero = false;
  std::int64_t seed = 1;
  bool deterministic = false;
  /// Which shares are reported, in ascending order.
  std::vector<std::int64_t> topk = {1, 5};
  /// Steps between two lines of the log.
  std::int64_t round = 20;
  /// Ends an epoch after so many steps; 0: when the pictures are through.
  std::int64_t max_steps = 0;
  /// Only evaluate.
  bool evaluate = false;

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
