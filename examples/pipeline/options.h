#pragma once

#include <cstdint>
#include <variant>

namespace pipeline {

/// Rank 0 drives, ranks 1 to 3 are the stages.
inline constexpr int kStages = 3;

/// What the command line asks for; the same for all processes of a job.
struct Options {
  /// Parts of a batch that are under way at once.
  std::int64_t micro_batches = 4;
  std::int64_t steps = 150;
  std::int64_t batch = 240;
  /// Of the layers, and how many a stage has.
  std::int64_t width = 64;
  std::int64_t layers = 2;
  double lr = 3e-3;
  std::int64_t seed = 1;
};

/// A mistake (or --help) is answered on the terminal; the result is then the exit status of the
/// program: 2 (or 0).
std::variant<Options, int> parse_options(int argc, char** argv);

}  // namespace pipeline
