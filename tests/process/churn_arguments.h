#pragma once

#include <chrono>
#include <map>
#include <set>
#include <string>

#include "sinew/sinew.h"

namespace churn {

/// The command line of a worker that is shaken.
struct Arguments {
  /// Name, rendezvous, rank, size of the world and lease, and two threads.
  sinew::WorkerOptions worker;
  /// Between two things that a thread of it does.
  std::chrono::milliseconds pause{50};
  /// Those that are the program's own.
  std::map<std::string, std::string> own;
};

/// From words "name=value": name, init, rank, world, lease_ms, pause_ms, and those in `own`.
/// std::invalid_argument names one that is unknown.
Arguments read_arguments(int argc, char** argv, const std::set<std::string>& own = {});

}  // namespace churn
