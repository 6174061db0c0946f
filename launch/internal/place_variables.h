#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace sinew::internal {

/// A part of a job: processes that do the same.
struct JobRole {
  std::string name;
  /// On each node.
  std::size_t processes = 0;
};

/// What the processes of a job have to know of it. All nodes have as many processes, of the same
/// roles.
struct JobPlace {
  int nodes = 1;
  int node_rank = 0;
  std::vector<JobRole> roles;
  std::string master_addr;
  int master_port = 0;

  std::size_t local_processes() const;
  /// Of a process of this node; both count from 0.
  std::size_t rank(std::size_t local_rank) const;
  const JobRole& role(std::size_t local_rank) const;
};

using Variables = std::map<std::string, std::string>;

/// The environment variables that tell a process of this node its place, under torchrun's names.
/// And as torchrun does, OMP_NUM_THREADS=1 for one of several, unless this process has it set.
Variables place_variables(const JobPlace& place, std::size_t local_rank);

/// The token of a job that is this process's alone, for kJobToken; empty where others may come to
/// the same place, or where this process was given one, by the program that starts all of them.
std::string own_job_token(int nodes, int master_port);

/// This process's environment with those changes: "NAME=value".
std::vector<std::string> environment_with(const Variables& changes);

}  // namespace sinew::internal
