#pragma once

#include <algorithm>
#include <utility>
#include <vector>

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
    const Worker late = init_rpc(options);
    // The others hear of it a moment later.
    const auto is_known_at = [&](int rank) {
      const std::vector<WorkerInfo> known = worker(rank).workers();
      return std::find(known.begin(), known.end(), late.info()) != known.end();
    };
    EXPECT_TRUE(eventually([&] { return is_known_at(0); }));
    return late;
  }
  /// Those of the first worker.
  WorkerOptions options_;
};

}  // namespace sinew::testing
