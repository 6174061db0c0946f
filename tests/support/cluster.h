#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "absl/base/thread_annotations.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/transport/inproc/inproc_network.h"
#include "sinew/rpc/transport/transport.h"
#include "sinew/sinew.h"
#include "sinew/tests/support/eventually.h"

namespace sinew::testing {

/// What carries the frames of a cluster.
enum class ClusterTransport { kInproc, kGrpc };

/// How a cluster starts.
struct ClusterOptions {
  int size = 2;
  ClusterTransport transport = ClusterTransport::kInproc;
  MethodTable methods;
  /// Changes the options of the worker of this rank before it starts. May be empty.
  std::function<void(int rank, WorkerOptions& options)> tweak;
  /// Wraps the transport of the worker of this rank, for faults. May be empty.
  std::function<std::unique_ptr<internal::Transport>(int rank,
                                                     std::unique_ptr<internal::Transport>)>
      wrap_transport;
};

/// Workers worker0, worker1, ... of a job of their own, all in this process. Not thread-safe, but
/// its workers are.
class Cluster {
 public:
  /// Starts all workers at once; throws what the first of them failed with.
  explicit Cluster(ClusterOptions options);
  /// Ends what still runs, without grace.
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  int size() const { return static_cast<int>(workers_.size()); }
  const Worker& worker(int rank) const { return workers_.at(static_cast<std::size_t>(rank)); }
  /// That worker has come back as another one.
  void replace(int rank, Worker worker) {
    workers_.at(static_cast<std::size_t>(rank)) = std::move(worker);
  }

  /// Shuts all workers down at once. Returns one line for each failure, leaked reference and
  /// counter that is not zero afterwards: none means that nothing is left anywhere.
  std::vector<std::string> shutdown(const ShutdownOptions& options);

 private:
  std::vector<Worker> workers_;
  std::string meeting_file_;
};

/// A test with a cluster, over each transport. It ends with a graceful shutdown which fails the
/// test when a reference is leaked or a counter is not back at zero.
class ClusterTest : public ::testing::TestWithParam<ClusterTransport> {
 protected:
  void TearDown() override { finish(); }

  /// Starts the cluster; ends the one that was there before.
  Cluster& start(int size, MethodTable methods,
                 std::function<void(int rank, WorkerOptions& options)> tweak = nullptr);
  Cluster& start(ClusterOptions options);
  const Worker& worker(int rank) const { return cluster_->worker(rank); }
  void replace(int rank, Worker worker) { cluster_->replace(rank, std::move(worker)); }
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

/// A door that handlers of a test block at. Thread-safe.
class Gate {
 public:
  /// Blocks its thread (Sinew knows nothing of it) until open(), for a minute at most.
  void pass();
  /// Waits until so many threads have come to pass(), for half a minute at most. False if they have
  /// not.
  bool wait_for_arrivals(int count);
  void open();
  void close();
  int arrivals() const;

 private:
  // ThreadSanitizer sees nothing of absl::Mutex.
  mutable internal::Mutex mutex_;
  internal::CondVar changed_;
  int arrivals_ ABSL_GUARDED_BY(mutex_) = 0;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
};

/// The RpcError that `call` throws. Fails the test, and returns an error without a text, if it
/// throws none.
RpcError error_of(const std::function<void()>& call);

}  // namespace sinew::testing
