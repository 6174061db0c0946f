#pragma once

#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "sinew/examples/common/device.h"
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

/// What `body` returns; kFailed when it throws, or kUsageError for std::invalid_argument: then says
/// so in the name of the program.
int guarded(const std::string& program, const std::function<int()>& body);

/// How many ranks this process is to start: those of --nproc, or `usual` where nothing tells it of
/// other ranks. 0: it is one itself. Throws std::invalid_argument for --nproc in a process that was
/// started as one of several, and RpcError for half a place.
int ranks_to_start(const RankOptions& options, int usual);
/// Waits for the end of the ranks that `start` starts, which are asked to end when this process is;
/// returns what the program ends with.
int start_ranks(const std::string& program, const std::function<sinew::ProcessContext()>& start);

/// kMain in this process, which is a rank. When it is asked to end, kMain looks at
/// StopSignal::requested() and has all ranks end together; after kStopPatience it ends alone, and
/// then the others fail. Ends with stopped_status() too when it was asked and the group has failed.
int run_rank(RankMain main, const CommandLine& line);

/// One that was started. A status other than 0 is a failure for whoever has started it.
template <RankMain kMain>
void run_spawned(int, const std::string& program, const std::vector<std::string>& words) {
  const int status = run_rank(kMain, {program, words});
  if (status != 0) std::exit(status);
}

/// The rest of main(), which has called sinew::init_launch() and read its flags: does kMain in this
/// process, or in as many as --nproc (or else `usual`) says, and waits for them.
template <RankMain kMain>
int run_ranks(const CommandLine& line, const RankOptions& options, int usual = 0) {
  return guarded(line.program, [&] {
    const int nproc = ranks_to_start(options, usual);
    if (nproc == 0) return run_rank(kMain, line);
    return start_ranks(line.program, [&] {
      return sinew::start_processes(&run_spawned<kMain>, nproc, {}, line.program, line.words);
    });
  });
}

/// Meets the other ranks as `options` say; a process that nobody has told of others is alone in its
/// group. Also sets the number of threads that compute. Throws as init_process_group().
sinew::ProcessGroup join_ranks(const RankOptions& options);

/// One line that says which process this is: `[init] == local rank: 0, global rank: 0 ==`.
void say_rank(int global_rank);

}  // namespace examples
