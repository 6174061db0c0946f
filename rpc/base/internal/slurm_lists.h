#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sinew::internal {

struct SlurmNodes {
  std::string first;
  /// Saturates.
  std::int64_t count = 0;
};

/// Understands a list of hosts as Slurm writes it: `n[1-3,07],rack2-host[001-010]-ib,login`. Takes
/// time and memory of the order of the text, whatever the ranges say. kInvalidArgument shows the
/// text.
absl::StatusOr<SlurmNodes> parse_slurm_nodes(absl::string_view text);

/// The entry of one node in a list as Slurm writes SLURM_TASKS_PER_NODE: `2(x3),1` is two tasks on
/// each of nodes 0 to 2 and one on node 3. kInvalidArgument shows the text.
absl::StatusOr<int> parse_slurm_tasks_of_node(absl::string_view text, int node);

}  // namespace sinew::internal
