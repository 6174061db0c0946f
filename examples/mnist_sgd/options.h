#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include "sinew/examples/common/rank_options.h"

namespace mnist_sgd {

/// What the command line asks for. All processes of a job get the same one.
struct Options {
  examples::RankOptions ranks;

  /// Folder with MNIST's files.
  std::filesystem::path data = "mnist";
  std::int64_t epochs = 10;
  /// Where the network is: "cpu" or "cuda".
  std::string device = "cpu";
  /// Pictures of a step, of all ranks together.
  std::int64_t batch = 128;
  double lr = 0.01;
  double momentum = 0.5;
  std::int64_t seed = 1234;
  /// Ends an epoch after so many steps; 0: when the pictures are through.
  std::int64_t max_steps = 0;
  /// Where the training curve goes; empty: nowhere.
  std::filesystem::path output = "mnist_sgd-output";
};

/// `words`: the command line, with the name of the program. A mistake (or --help) is answered on
/// the terminal; the result is then the exit status of the program: 2 (or 0).
std::variant<Options, int> parse_options(const std::vector<std::string>& words);

}  // namespace mnist_sgd
