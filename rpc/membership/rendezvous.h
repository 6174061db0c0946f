#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sinew/rpc/base/environment.h"
#include "sinew/rpc/base/found_job.h"

namespace sinew {

/// Where the workers of a job find each other, and this worker's place among them.
///
///     env://                          MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE, or what
///                                     Slurm, Open MPI or PMI set, say it all
///     tcp://host:port?rank=1&world_size=4
///     tcp://[::1]:29500
///     tcp://host1:port,host2:port     addresses of one worker, which serves the first
///     file:///shared/folder/job-17    a file that all workers can reach and lock, of one user
///     inproc://name                   workers of one process
///     etcd://host:2379,host:2379/prefix   servers of one etcd, and where its keys begin
struct Rendezvous {
  enum class Kind { kTcp, kFile, kInproc, kEtcd };

  Kind kind = Kind::kTcp;
  /// Where the registrar is asked. kTcp: one "host:port" or "[v6]:port" or more, each once.
  /// kInproc: the name alone. kFile: none. kEtcd: its servers.
  std::vector<std::string> seeds;
  /// kFile: the absolute path. kEtcd: the prefix, from a slash on. Otherwise empty.
  std::string path;
  /// -1: the job gives the worker its rank (open membership only).
  int rank = -1;
  /// 0: open membership, workers come and go.
  int world_size = 0;
  /// This worker begins the job if no other one has.
  bool founds = false;
};

/// Understands a rendezvous URL. Rank and world size come from the arguments or from the URL's
/// query, never from both; env:// takes from the environment what neither says
/// (LaunchEnvironment). A world size of 0, or none, means open membership; a fixed world needs a
/// rank. kInvalidArgument with a text that names the part that is wrong and what to write instead;
/// kNotFound when an environment variable is missing, with its name.
absl::StatusOr<Rendezvous> parse_rendezvous(
    std::string_view url, std::optional<int> rank, std::optional<int> world_size,
    const EnvironmentReader& environment = process_environment());

namespace internal {

/// Whether the worker with that place founds the job. Unset: kAlways in open membership over a
/// file, at etcd or within a process, where there is exactly one place to meet; kRankZero
/// otherwise. kInvalidArgument for kAlways in a fixed world, which its rank 0 alone founds.
absl::StatusOr<bool> founds_job(const Rendezvous& rendezvous, std::optional<FoundJob> found_job);

/// The seeds as Transport::connect() takes them; none for kFile.
std::vector<std::string> dial_addresses(const Rendezvous& rendezvous);

/// For texts of joins that fail: that a seed is loopback, as written, which other machines cannot
/// reach; empty where none is.
std::string loopback_hint(const Rendezvous& rendezvous);

}  // namespace internal
}  // namespace sinew
