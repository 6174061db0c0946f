#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "sinew/benchmarks/measure.h"

/// The figures of `tools/bench groups`. Our own program and the C++ peer share this header; it
/// needs nothing but the standard library.
namespace sinew::bench {

/// Sizes of the tensors that are reduced.
inline constexpr std::array<std::int64_t, 5> kReducedBytes = {4096, 65536, 1048576, 16777216,
                                                              67108864};
inline constexpr std::array<int, 2> kGroupRanks = {2, 4};
inline constexpr int kRingRanks = 4;
inline constexpr int kDdpRanks = 2;
inline constexpr int kMpiRanks = 2;
inline constexpr int kSpawned = 8;

inline const std::string kDdpFigure = "ddp_step_ms";
inline const std::string kSpawnFigure = "spawn_ms";

inline std::string all_reduce_figure(std::int64_t bytes, int ranks) {
  return "all_reduce_" + std::to_string(bytes) + "_" + std::to_string(ranks) + "_us";
}
inline std::string ring_figure(std::int64_t bytes) {
  return "ring_all_reduce_" + std::to_string(bytes) + "_us";
}
inline std::string mpi_figure(std::int64_t bytes) {
  return "mpi_all_reduce_" + std::to_string(bytes) + "_us";
}
inline std::vector<std::string> mpi_figures() {
  std::vector<std::string> names;
  for (const std::int64_t bytes : kReducedBytes) names.push_back(mpi_figure(bytes));
  return names;
}

/// How often a tensor is reduced for one figure over sockets: 512 MiB altogether, within limits.
inline int timed_operations(const Options& options, std::int64_t bytes) {
  if (options.quick()) return 2;
  constexpr std::int64_t kAltogether = std::int64_t{512} << 20;
  return static_cast<int>(std::clamp<std::int64_t>(kAltogether / bytes, 8, 1000));
}
/// The same over MPI, which needs microseconds for small ones.
inline int timed_mpi_operations(const Options& options, std::int64_t bytes) {
  if (options.quick()) return 10;
  constexpr std::int64_t kAltogether = std::int64_t{1} << 30;
  return static_cast<int>(std::clamp<std::int64_t>(kAltogether / bytes, 8, 100000));
}
inline int timed_steps(const Options& options) { return options.quick() ? 2 : 10; }
inline int timed_spawns(const Options& options) { return options.quick() ? 1 : 3; }

}  // namespace sinew::bench
