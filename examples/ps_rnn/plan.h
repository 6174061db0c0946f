#pragma once

#include <cstdint>
#include <vector>

namespace ps_rnn {

/// Steps `first` to `last` - 1 of a share of the text.
struct Piece {
  std::int64_t share = 0;
  std::int64_t first = 0;
  std::int64_t last = 0;

  std::int64_t steps() const { return last - first; }
  friend bool operator==(const Piece& a, const Piece& b) {
    return a.share == b.share && a.first == b.first && a.last == b.last;
  }
};

/// What a trainer reads in an epoch, in this order.
using Plan = std::vector<Piece>;

/// How far a trainer is.
struct Position {
  std::int64_t epoch = 0;
  Plan plan;
  /// Steps of the plan.
  std::int64_t done = 0;
};

std::int64_t steps_of(const Plan& plan);
/// What is left of it after its first `done` steps.
Plan rest_of(const Plan& plan, std::int64_t done);
/// The same steps in `parts` plans, in order; none has more than one step more than another.
std::vector<Plan> split(const Plan& plan, std::int64_t parts);

}  // namespace ps_rnn
