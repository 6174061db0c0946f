#include "sinew/examples/common/ranks.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <future>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <thread>

#include "ATen/Parallel.h"
#include "sinew/examples/common/credentials.h"
#include "sinew/examples/common/stop_signal.h"
#include "sinew/groups/store.h"

namespace examples {
namespace {

// LibTorch's number is that of OpenMP. Debian's OpenBLAS has threads of its own, and their number
// changes the last digits of sums: the same flags would give other losses where a launcher has not
// set OMP_NUM_THREADS.
void compute_on(int threads) {
  at::set_num_threads(threads);
  using SetThreads = void (*)(int count);
  const auto set = reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "openblas_set_num_threads"));
  if (set != nullptr) set(threads);
}

/// Whether nothing tells this process of other ranks. MPI knows them by itself.
bool is_alone(const RankOptions& options) {
  return options.init_method == "env://" && options.backend != "mpi" && !sinew::find_launch_place();
}

/// Those of this host, as far as anybody says.
int local_ranks(int ranks) {
  const auto place = sinew::find_launch_place();
  return place ? place->local_world_size.value_or(ranks) : ranks;
}

}  // namespace

CommandLine CommandLine::of(const std::string& program, int argc, char** argv) {
  return {program, std::vector<std::string>(argv, argv + argc)};
}

int guarded(const std::string& program, const std::function<int()>& body) {
  const auto fail = [&program](const std::exception& error, int status) {
    std::cerr << program + ": " + error.what() + "\n" << std::flush;
    return status;
  };
  try {
    return body();
  } catch (const std::invalid_argument& error) {
    return fail(error, kUsageError);
  } catch (const std::exception& error) {
    return fail(error, kFailed);
  }
}

int ranks_to_start(const RankOptions& options, int usual) {
  const bool was_launched = sinew::find_launch_place().has_value();
  if (options.nproc > 0 && was_launched) {
    throw std::invalid_argument(
        "--nproc starts the ranks, and this process was started as one of several; leave it out");
  }
  if (options.nproc > 0) return options.nproc;
  return is_alone(options) ? usual : 0;
}

int run_rank(RankMain main, const CommandLine& line) {
  std::promise<void> over;
  StopSignal stop;
  stop.then([ended = over.get_future().share()] {
    if (ended.wait_for(kStopPatience) == std::future_status::ready) return;
    std::_Exit(stopped_status());
  });
  const int status = guarded(line.program, [&] {
    try {
      return main(line);
    } catch (const sinew::RpcError& error) {
      if (is_end_of_others(error) && StopSignal::requested()) return stopped_status();
      throw;
    }
  });
  over.set_value();
  return status;
}

int start_ranks(const std::string& program, const std::function<sinew::ProcessContext()>& start) {
  // In this order: the signal's thread is to be gone first.
  std::optional<sinew::ProcessContext> ranks;
  StopSignal stop;
  ranks = start();
  stop.then([&ranks] { ranks->terminate(); });
  try {
    ranks->join();
    return StopSignal::requested() ? stopped_status() : 0;
  } catch (const sinew::SpawnError& error) {
    // Who ended by itself has said why.
    if (error.end().kind == sinew::ProcessEnd::Kind::kExited) return error.end().number;
    std::cerr << program + ": " + error.what() + "\n" << std::flush;
    return kFailed;
  }
}

sinew::ProcessGroup join_ranks(const RankOptions& options) {
  sinew::GroupOptions group_options;
  group_options.init_method = options.init_method;
  group_options.backend = options.backend;
  group_options.allow_unencrypted = is_network_trusted();
  const auto place = sinew::find_launch_place();
  if (options.init_method != "env://" && place) {
    group_options.rank = place->rank;
    group_options.world_size = place->world_size;
  } else if (is_alone(options)) {
    group_options.store = sinew::Store::in_memory();
    group_options.rank = 0;
    group_options.world_size = 1;
  }
  sinew::ProcessGroup group = sinew::init_process_group(group_options);
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int threads =
      options.threads > 0 ? options.threads : std::max(1, cores / local_ranks(group.size()));
  compute_on(threads);
  return group;
}

void say_rank(int global_rank) {
  // As one piece, which the lines of other ranks come before or after.
  std::cout << "[init] == local rank: " + std::to_string(local_rank()) +
                   ", global rank: " + std::to_string(global_rank) + " ==\n"
            << std::flush;
}

}  // namespace examples
