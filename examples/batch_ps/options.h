#pragma once

#include <cstdint>
#include <filesystem>
#include <variant>

namespace batch_ps {

/// What the command line asks for; the same for all processes of a job.
struct Options {
  /// Steps of the model.
  std::int64_t steps = 600;
  /// Points that each trainer sees in a step.
  std::int64_t batch = 60;
  double lr = 0.3;
  std::int64_t seed = 1;
  /// Where all write what they have asked for, and what became of it
  /// (examples/common/history_file.h); empty: nowhere.
  std::filesystem::path history;
};

/// A mistake (or --help) is answered on the terminal; the result is then the exit status of the
/// program: 2 (or 0).
std::variant<Options, int> parse_options(int argc, char** argv);

}  // namespace batch_ps
