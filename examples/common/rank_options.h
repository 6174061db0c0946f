#pragma once

#include <string>

#include "sinew/examples/common/flags.h"

namespace examples {

/// How the processes of a program start and meet that are the ranks of one process group.
struct RankOptions {
  /// Ranks to start on this host; 0: none, this process is one.
  int nproc = 0;
  std::string init_method = "env://";
  /// As GroupOptions::backend.
  std::string backend;
  /// Threads of a rank that compute; 0: the cores of the host, shared by its ranks.
  int threads = 0;
};

inline void add_rank_flags(CLI::App& app, RankOptions& options) {
  add_whole(app, "--nproc", options.nproc, 0, 1024,
            "Ranks to start on this host; 0: none, also where sinew-run, mpirun or srun do it");
  app.add_option("--init-method", options.init_method,
                 "Where ranks meet that were started by hand: env://, tcp://HOST:PORT or "
                 "file:///PATH")
      ->capture_default_str();
  app.add_option("--backend", options.backend, "gloo, nccl or mpi; without it by the device");
  add_whole(app, "--threads", options.threads, 0, 1024,
            "Threads of a rank that compute; 0: the cores, shared by the ranks of the host");
}

}  // namespace examples
