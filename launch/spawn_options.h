#pragma once

#include <chrono>
#include <map>
#include <string>

namespace sinew {

/// How spawn() and start_processes() start processes, and end them.
struct SpawnOptions {
  enum class Kind {
    kNormal,
    /// Ended when their ProcessContext is destroyed; they may not start processes themselves.
    kDaemon,
  };
  enum class Output {
    /// That of this process, as it comes.
    kShared,
    /// This process's too, in whole lines, with "[rank 3] " in front of each.
    kPrefixed,
  };

  Kind kind = Kind::kNormal;
  Output output = Output::kShared;
  /// From being told to end to being killed.
  std::chrono::milliseconds grace = std::chrono::seconds(10);
  /// More variables of their environment; these win over those that tell a process its place.
  std::map<std::string, std::string> environment;

  /// For jobs of several hosts, on each of which as many processes are spawned.
  int nodes = 1;
  /// Which host this is, from 0.
  int node_rank = 0;
  /// Where rank 0 is, for MASTER_ADDR.
  std::string master_addr = "127.0.0.1";
  /// For MASTER_PORT; 0 picks a free one. Not 0 for several hosts.
  int master_port = 0;
};

}  // namespace sinew
