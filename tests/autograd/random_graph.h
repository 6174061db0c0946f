#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "sinew/sinew.h"

// Random programs over the workers of a job: a seed says what is computed, where, and what is sent.
// The same program runs on one thread without any worker, for comparison.
namespace testgrad {

/// The methods that the programs call. Each worker of a job needs them.
void add_methods(sinew::MethodTable& methods);

/// How a program is drawn.
struct GraphOptions {
  int workers = 2;
  std::uint64_t seed = 0;
  /// Backward passes over the same graph.
  int passes = 1;
};

struct GraphResult {
  /// What differs from the local run; empty: nothing.
  std::string differences;
  /// Gradients that were compared.
  int gradients = 0;
  /// Their numbers were compared too: none is so large that the order of a sum decides.
  bool tame = true;
  /// Messages with tensors that the program's own worker sent.
  std::int64_t sends = 0;
};

/// Runs the program from worker `self`, which must have rank 0, and compares all gradients of all
/// workers with those of the local run.
GraphResult check_random_graph(const sinew::Worker& self, const GraphOptions& options);

/// Runs the program several times, and says which gradients had other bits than in the first run.
std::string differences_of_runs(const sinew::Worker& self, const GraphOptions& options, int runs);

}  // namespace testgrad
