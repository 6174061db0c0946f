#pragma once

#include <string>
#include <vector>

#include "sinew/examples/common/job.h"
#include "sinew/examples/common/rank_options.h"
#include "sinew/groups/process_group.h"
#include "sinew/launch/spawn.h"

/// What programs have in common whose processes are the ranks of one process group.
namespace examples {

/// The command line of a program, which its ranks get too.
struct CommandLine {
  std::string program;
  std::vector<std::string> words;

  static CommandLine of(const std::string& program, int argc, char** argv);
};

/// What one rank does; returns what its process ends with.
using RankMain = int (*)(const CommandLine& line);

/// `main(line)`, or kFailed when it throws; then says so in the name of the program.
int guarded(RankMain main, const CommandLine& line);
/// The same as a function for spawn(), which takes a status other than 0 for a failure.
void run_spawned(RankMain main, const CommandLine& line);
template <RankMain kMain>
void spawned_rank(int, const std::string& program, const std::vector<std::string>& words) {
  run_spawned(kMain, {program, words});
}

/// Waits for the ranks; returns what the program ends with.
int wait_for_ranks(const sinew::ProcessContext& ranks, const std::string& program);
/// Whether sinew-run, mpirun or the like has started this process, and given it a place. Throws
/// RpcError for half a place.
bool was_launched();
/// Whether nothing tells this process of other ranks.
bool is_alone(const RankOptions& options);
/// Says that a process which was launched starts no others; returns what it ends with.
int refuse_nproc(const std::string& program);

/// The rest of main(), which has called sinew::init_launch() and read its flags: does kMain in this
/// process, or in `nproc` that it starts and waits for.
template <RankMain kMain>
int run_ranks(const CommandLine& line, int nproc) {
  if (nproc == 0) return guarded(kMain, line);
  if (was_launched()) return refuse_nproc(line.program);
  return wait_for_ranks(
      sinew::start_processes(&spawned_rank<kMain>, nproc, {}, line.program, line.words),
      line.program);
}

/// Meets the other ranks as `options` say; a process that nobody has told of others is alone in its
/// group. Also sets the number of threads that compute. Throws as init_process_group().
sinew::ProcessGroup join_ranks(const RankOptions& options);

/// This process's number among those of its host; 0 where nobody says.
int local_rank();

}  // namespace examples
