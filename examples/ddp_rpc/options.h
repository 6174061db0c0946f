#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <variant>

namespace ddp_rpc {

/// What the command line asks for; the same for all processes of a job.
struct Options {
  /// With `local`: as many see bags. Otherwise there are as many as the job has room for.
  int trainers = 2;
  /// Steps of the model, and how many there are between two lines of the log.
  std::int64_t steps = 400;
  std::int64_t round = 50;
  /// Bags of words that each trainer sees in a step.
  std::int64_t batch = 32;
  double lr = 0.5;
  std::int64_t seed = 1;
  /// Where trainers have the dense part: "cpu" or "cuda".
  std::string device = "cpu";
  /// Train the same model in this process alone, each step on what all trainers would see.
  bool local = false;
  /// Where the loss curve goes; empty: nowhere.
  std::filesystem::path output = "ddp_rpc-output";
};

/// A mistake (or --help) is answered on the terminal; the result is then the exit status of the
/// program: 2 (or 0).
std::variant<Options, int> parse_options(int argc, char** argv);

}  // namespace ddp_rpc
