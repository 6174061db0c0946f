#pragma once

#include <utility>

#include "sinew/sinew.h"
#include "sinew/tests/support/cluster.h"

namespace sinew::testing {

/// A cluster in open membership, which a worker "late" may join. A test that has failed ends
/// without grace: it may have left anything behind.
class OpenJobTest : public ClusterTest {
 protected:
  void TearDown() override { HasFailure() ? abandon() : finish(); }

  void start_open(int size, MethodTable methods) {
    start(size, std::move(methods), [this](int rank, WorkerOptions& options) {
      options.world_size.reset();
      if (rank == 0) options_ = options;
    });
  }
  Worker start_late() const {
    WorkerOptions options = options_;
    options.name = "late";
    options.rank.reset();
    return init_rpc(options);
  }
  /// Those of the first worker.
  WorkerOptions options_;
};

}  // namespace sinew::testing
