#pragma once

#include <optional>
#include <string>

namespace sinew {

/// The place of this process among those that a launcher has started together.
struct LaunchPlace {
  /// 0 to world_size - 1.
  int rank = 0;
  int world_size = 1;
  /// 0 to local_world_size - 1, among the processes of this node: what picks a GPU. Unset, as the
  /// following ones, when the launcher does not say.
  std::optional<int> local_rank;
  std::optional<int> local_world_size;
  /// 0 for the first node.
  std::optional<int> node_rank;
  /// Where the processes meet: host name or address (IPv6 without brackets), and port, of rank 0.
  std::optional<std::string> master_address;
  std::optional<int> master_port;
};

/// That place as the environment has it: the variables of sinew-run and torchrun (RANK,
/// WORLD_SIZE, ...) or those of Slurm, Open MPI or PMI; docs/launch.md has the table. Throws
/// RpcError: kNotFound names the variable that is missing, kInvalidArgument the one that is wrong
/// or that contradicts another.
///
///     const int local_rank = sinew::launch_place().local_rank.value_or(0);
///     const torch::Device device(torch::kCUDA, local_rank % torch::cuda::device_count());
LaunchPlace launch_place();

/// The same for programs that also run alone: nullopt when nothing in the environment says a rank
/// or a world size. Throws for half a place as launch_place() does.
std::optional<LaunchPlace> find_launch_place();

}  // namespace sinew
