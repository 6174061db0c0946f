#include "plan.h"

#include <algorithm>

namespace ps_rnn {
namespace {

Plan first_of(const Plan& plan, std::int64_t steps) {
  Plan first;
  for (Piece piece : plan) {
    piece.last = std::min(piece.last, piece.first + steps);
    if (piece.steps() > 0) first.push_back(piece);
    steps -= piece.steps();
  }
  return first;
}

}  // namespace

std::int64_t steps_of(const Plan& plan) {
  std::int64_t steps = 0;
  for (const Piece& piece : plan) steps += piece.steps();
  return steps;
}

Plan rest_of(const Plan& plan, std::int64_t done) {
  Plan rest;
  for (Piece piece : plan) {
    const std::int64_t here = std::min(done, piece.steps());
    done -= here;
    piece.first += here;
    if (piece.steps() > 0) rest.push_back(piece);
  }
  return rest;
}

std::vector<Plan> split(const Plan& plan, std::int64_t parts) {
  const std::int64_t steps = steps_of(plan);
  std::vector<Plan> plans;
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::int64_t begin = steps * part / parts;
    plans.push_back(first_of(rest_of(plan, begin), steps * (part + 1) / parts - begin));
  }
  return plans;
}

}  // namespace ps_rnn
