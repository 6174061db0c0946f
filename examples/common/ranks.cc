#include "sinew/examples/common/ranks.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <thread>

#include "ATen/Parallel.h"
#include "sinew/groups/store.h"

namespace examples {
namespace {

/// Those of this host, as far as anybody says.
int local_ranks(int ranks) {
  return was_launched() ? sinew::launch_place().local_world_size.value_or(ranks) : ranks;
}

}  // namespace

CommandLine CommandLine::of(const std::string& program, int argc, char** argv) {
  return {program, std::vector<std::string>(argv, argv + argc)};
}

int guarded(RankMain main, const CommandLine& line) {
  try {
    return main(line);
  } catch (const std::exception& error) {
    std::cerr << line.program + ": " + error.what() + "\n" << std::flush;
    return kFailed;
  }
}

void run_spawned(RankMain main, const CommandLine& line) {
  const int status = guarded(main, line);
  if (status != 0) std::exit(status);
}

int wait_for_ranks(const sinew::ProcessContext& ranks, const std::string& program) {
  try {
    ranks.join();
    return 0;
  } catch (const sinew::SpawnError& error) {
    // Who ended by itself has said why.
    if (error.end().kind == sinew::ProcessEnd::Kind::kExited) return error.end().number;
    std::cerr << program + ": " + error.what() + "\n" << std::flush;
    return kFailed;
  }
}

bool was_launched() {
  try {
    sinew::launch_place();
    return true;
  } catch (const sinew::RpcError& error) {
    const bool half = std::getenv("RANK") != nullptr || std::getenv("WORLD_SIZE") != nullptr;
    if (error.code() != sinew::ErrorCode::kNotFound || half) throw;
    return false;
  }
}

bool is_alone(const RankOptions& options) {
  // MPI knows its ranks by itself.
  return options.init_method == "env://" && options.backend != "mpi" && !was_launched();
}

int refuse_nproc(const std::string& program) {
  std::cerr << program +
                   ": --nproc starts the ranks, and this process was started as one of "
                   "several; leave it out\n"
            << std::flush;
  return kUsageError;
}

sinew::ProcessGroup join_ranks(const RankOptions& options) {
  sinew::GroupOptions group_options;
  group_options.init_method = options.init_method;
  group_options.backend = options.backend;
  if (options.init_method != "env://" && was_launched()) {
    const sinew::LaunchPlace place = sinew::launch_place();
    group_options.rank = place.rank;
    group_options.world_size = place.world_size;
  } else if (is_alone(options)) {
    group_options.store = sinew::Store::in_memory();
    group_options.rank = 0;
    group_options.world_size = 1;
  }
  sinew::ProcessGroup group = sinew::init_process_group(group_options);
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int threads =
      options.threads > 0 ? options.threads : std::max(1, cores / local_ranks(group.size()));
  at::set_num_threads(threads);
  return group;
}

int local_rank() { return was_launched() ? sinew::launch_place().local_rank.value_or(0) : 0; }

}  // namespace examples
