#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "sinew/rpc/transport/transport.h"
#include "sinew/sinew.h"
#include "sinew/testing/cluster.h"
#include "sinew/testing/error_of.h"
#include "sinew/testing/gate.h"
#include "sinew/tests/support/eventual_value.h"

namespace sinew::testing {

/// Wraps the transport of the worker of each rank, for faults of frames; once more when it rejoins.
/// Comes before the tweak that is set.
void wrap_transports(ClusterOptions& options, std::function<std::unique_ptr<internal::Transport>(
                                                  int rank, std::unique_ptr<internal::Transport>)>
                                                  wrap);

/// A test with a cluster worker0, worker1, ..., over each transport. It ends with a graceful
/// shutdown which fails the test when a reference is leaked or a counter is not back at zero.
class ClusterTest : public ::testing::TestWithParam<ClusterTransport> {
 protected:
  void TearDown() override { finish(); }

  /// Starts the cluster; ends the one that was there before.
  Cluster& start(int size, MethodTable methods,
                 std::function<void(int rank, WorkerOptions& options)> tweak = nullptr);
  Cluster& start(ClusterOptions options);
  const Worker& worker(int rank) const { return cluster_->worker(rank); }
  void replace(int rank, Worker worker);
  /// See Cluster::evict().
  void evict(int rank) { cluster_->evict(worker(rank).name()); }
  /// The graceful shutdown that also asserts. Does nothing when there is no cluster.
  void finish();
  /// Drops the cluster without grace and without asserting anything.
  void abandon() { cluster_.reset(); }

 private:
  std::unique_ptr<Cluster> cluster_;
};

/// gRPC is left out under ThreadSanitizer, which knows nothing of the packaged library's
/// synchronisation.
std::vector<ClusterTransport> cluster_transports();
std::string cluster_transport_name(const ::testing::TestParamInfo<ClusterTransport>& info);

/// Runs the suite's tests over each transport.
#define SINEW_INSTANTIATE_CLUSTER_TEST(Suite)                                           \
  INSTANTIATE_TEST_SUITE_P(Over, Suite,                                                 \
                           ::testing::ValuesIn(::sinew::testing::cluster_transports()), \
                           ::sinew::testing::cluster_transport_name)

}  // namespace sinew::testing
