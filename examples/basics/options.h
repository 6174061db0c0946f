#pragma once

#include <string>
#include <variant>
#include <vector>

#include "sinew/examples/common/rank_options.h"

namespace basics {

struct Options {
  examples::RankOptions ranks;
  /// "blocking", "non-blocking", "collectives", "subgroup", "init", "ring" or "spawn-failure".
  std::string concept_name;
  /// Of the tensor that goes around the ring.
  long long bytes = 1 << 20;
  /// Where the ranks of `init` meet.
  int port = 29512;
  std::string file = "/tmp/sinew-basics-meet";
};

/// As those of the other examples: a mistake (or --help) is answered on the terminal; the result is
/// then the exit status of the program: 2 (or 0).
std::variant<Options, int> parse_options(const std::vector<std::string>& words);

}  // namespace basics
