#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "sinew/launch/internal/place_variables.h"

namespace sinew::internal {

/// What the command line of sinew-run says.
struct RunOptions {
  struct Role {
    JobRole role;
    /// The program and its arguments.
    std::vector<std::string> command;
  };
  enum class Prefix { kNone, kRank };
  enum class Table { kOnFailure, kAlways };

  /// At least one.
  std::vector<Role> roles;
  int nodes = 1;
  int node_rank = 0;
  std::string master_addr;
  /// 0: one is picked, anew for each attempt.
  int master_port = 0;
  /// The name of a role or a rank; empty: no leader.
  std::string leader;
  int max_restarts = 0;
  std::chrono::milliseconds first_back_off{1000};
  std::chrono::milliseconds grace{10000};
  std::chrono::milliseconds leave_grace{10000};
  std::string run_id;
  /// Workers encrypt, and prove to each other that they know the job's token.
  bool tls = false;
  /// Empty: output goes to that of sinew-run.
  std::string log_dir;
  Prefix prefix = Prefix::kNone;
  Table table = Table::kOnFailure;

  /// All that the variables of the processes are made of, but for the port that is picked.
  JobPlace place() const;
  /// That other hosts do not find rank 0 at `master_addr`, since it is this host's loopback; empty
  /// if they may. Looks a name up.
  std::string warning() const;
  /// Whether one of several roles was named, or there is but the one without a name.
  bool has_named_roles() const;
};

/// What sinew-run ends with after a mistake in its command line.
inline constexpr int kUsageStatus = 2;

struct ParsedRunOptions {
  std::optional<RunOptions> options;
  /// Without options: what the program ends with; 0 after --help.
  int status = 0;
};

/// Reads the command line. The terminal has been told when there are no options.
ParsedRunOptions parse_run_options(int argc, char** argv);

}  // namespace sinew::internal
