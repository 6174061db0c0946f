#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sinew/sinew.h"
#include "sinew/testing/eventually.h"
#include "sinew/testing/faults.h"
#include "sinew/testing/stepped_network.h"

namespace sinew::testing {

/// What carries the messages of a cluster.
enum class ClusterTransport {
  /// Memory of the process: fast, no ports. Tensors share memory between caller and callee.
  kInproc,
  /// gRPC over loopback, as between processes.
  kGrpc,
};

/// Who belongs to the job of a cluster; see docs/membership.md.
enum class ClusterWorld {
  /// Those that it began with.
  kFixed,
  /// Others may join.
  kOpen,
};

/// When the calls and answers of a cluster arrive.
enum class ClusterNetwork {
  /// As soon as they can.
  kFree,
  /// When the test says so: Cluster::network().
  kStepped,
};

/// How a cluster starts.
struct ClusterOptions {
  /// Of the workers, by rank.
  std::vector<std::string> names = {"worker0", "worker1"};
  /// What each of them serves.
  MethodTable methods;
  ClusterWorld world = ClusterWorld::kFixed;
  ClusterTransport transport = ClusterTransport::kInproc;
  ClusterNetwork network = ClusterNetwork::kFree;
  /// Changes the options of a worker before it starts: other methods for one of them, a shorter
  /// lease (theirs is 2 minutes, since a busy machine may let a worker wait), on_rejoined. May be
  /// empty; runs on several threads at once.
  std::function<void(int rank, WorkerOptions& options)> tweak;
  /// Bound of Cluster::shutdown(). Only a test that fails uses it up.
  std::chrono::nanoseconds shutdown_timeout = kPatience;
};

/// "worker0", "worker1", ...
std::vector<std::string> worker_names(int count);

/// The workers of a job of their own, all in this process, and the faults of their calls. Not
/// thread-safe, but its workers and faults are.
///
///     sinew::testing::Cluster cluster({"learner", "actor"}, sinew::serve<app::Learner>());
///     cluster.faults().fail(calls<&app::Learner::act>().first(1));
///     ...
///     cluster.kill("learner");
///     ...
///     cluster.shutdown();
///
/// Functions that take a worker's name throw RpcError kInvalidArgument for one that the cluster has
/// not.
class Cluster {
 public:
  Cluster(std::vector<std::string> names, MethodTable methods);
  /// Starts all workers, those of a fixed world at once; throws what the first of them failed with,
  /// once those that have started have ended.
  explicit Cluster(ClusterOptions options);
  /// Ends what still runs, without grace, and checks nothing.
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  int size() const;
  /// The worker of that name or rank. What is returned is another one once that has been started
  /// again, or replaced: copy it to keep the first.
  const Worker& worker(std::string_view name) const;
  const Worker& worker(int rank) const;
  /// Of all calls between its workers.
  Faults& faults();
  /// Says which message arrives next, from the end of the constructor to the beginning of
  /// shutdown(). Throws RpcError kFailedPrecondition unless the options say
  /// ClusterNetwork::kStepped.
  SteppedNetwork& network();

  /// Ends a worker as if its process had been killed, but that methods which it runs come to their
  /// end first: the others lose it, their calls to it fail with kUnavailable, and what it owned is
  /// gone. Returns when all others know. Throws Failure if they do not learn it.
  void kill(std::string_view name);
  /// Starts a worker: in a fixed world one under the name of one that has ended, in an open one
  /// any. Returns when all others know it. Throws what init_rpc() throws, and Failure if they do
  /// not learn it.
  const Worker& start(const std::string& name);
  /// Has the others take a worker for lost, as if it had been stopped for longer than its lease, so
  /// that it is evicted when it goes on (MembershipState::kEvicted); see Worker::rejoin() and
  /// WorkerOptions::on_rejoined. Returns when it knows. Throws RpcError kInvalidArgument where
  /// fewer than two others run, Failure if it does not learn it.
  void evict(std::string_view name);
  /// An evicted worker has joined again as a new one.
  void replace(std::string_view name, Worker worker);
  /// Breaks the connection between two workers, as the network would; they make another one, and
  /// nothing is lost. False: they have none.
  bool break_connection(std::string_view one, std::string_view other);

  /// What the workers that run still have of calls, references, names and contexts: see
  /// testing::leftovers().
  std::vector<std::string> leftovers() const;
  /// Waits until that is nothing, for `patience` at most; throws Failure with what is left. For
  /// tests whose references, contexts and names must be gone before the workers are.
  void wait_until_at_rest(std::chrono::nanoseconds patience = kPatience) const;

  /// Ends the faults and the steps, shuts all workers down at once, with grace, and looks for what
  /// is left: throws Failure with one line for each reference that was leaked, for each counter
  /// that is not back at zero, and for each worker that could not be shut down. Call it last in a
  /// test.
  void shutdown();
  /// The same, and returns the lines: none means that nothing is left anywhere.
  std::vector<std::string> try_shutdown();

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace sinew::testing
