#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "sinew/rpc/base/error.h"
#include "sinew/testing/eventually.h"
#include "sinew/testing/messages.h"

namespace sinew {
struct WorkerOptions;
namespace internal {
class FaultTable;
}
}  // namespace sinew

namespace sinew::testing {

/// One fault that was ordered of Faults. A handle, also for counts after the fault was removed.
/// Thread-safe.
class Fault {
 public:
  /// Messages that it has hit so far. One that is held counts once it can be let go.
  int hits() const;
  /// Waits until it has hit so many, for `patience` at most; throws Failure then.
  void wait_for_hits(int count, std::chrono::nanoseconds patience = kPatience) const;
  /// Lets messages that hold() holds go on, the oldest first: all, or `most`. Later ones are held
  /// as before. Returns how many there were.
  int release(int most = std::numeric_limits<int>::max()) const;
  /// Ends the fault. What it holds or delays goes on now; what it has dropped stays so.
  void remove() const;

 private:
  friend class Faults;
  Fault(std::shared_ptr<internal::FaultTable> table, std::uint64_t number)
      : table_(std::move(table)), number_(number) {}

  std::shared_ptr<internal::FaultTable> table_;
  std::uint64_t number_;
};

/// Faults of the calls that workers serve: of all of a Cluster (Cluster::faults()), or of those
/// that were started with install(). A message is shown to the faults in the order in which they
/// were ordered; the first one that it is counted for hits it, and no other. Thread-safe.
///
/// Faults happen where a call is served. The messages themselves travel, so callers see what they
/// see of true faults: time limits, cancellation, retries, references and the quiescence of a
/// shutdown work. Sinew loses no message while both workers live, so there is none to be lost of
/// what it says of references: what breaks on the way is break_connection()'s.
///
///     cluster.faults().fail(calls<&app::mean>().at("learner").first(2));
///     EXPECT_EQ(actor.peer("learner").retrying().call<&app::mean>(x), 2.0);
class Faults {
 public:
  Faults();
  /// As clear().
  ~Faults();
  Faults(const Faults&) = delete;
  Faults& operator=(const Faults&) = delete;

  /// calls(): they fail with `code` before they run (Execution::kDidNotRun). replies(): the calls
  /// have run, and fail with `code` all the same (kMayHaveRun), with results dropped. The origin of
  /// both is ErrorOrigin::kCallee. Throws RpcError kInvalidArgument for kOk.
  Fault fail(const Messages& messages, ErrorCode code = ErrorCode::kUnavailable);
  /// They never arrive. Their callers wait until their time is over (kDeadlineExceeded,
  /// kMayHaveRun), they cancel, or one of the two is lost; if clear() comes first the calls fail
  /// with kUnavailable. Give calls that are to be dropped a short time: within(100ms).
  Fault drop(const Messages& messages);
  /// They arrive so much later; others may overtake them. Throws RpcError kInvalidArgument for a
  /// negative time.
  Fault delay(const Messages& messages, std::chrono::nanoseconds by);
  /// They wait until Fault::release(), so the test decides what arrives, when, and in which order.
  Fault hold(const Messages& messages);
  /// The connection between the two workers breaks just as a call has arrived, or a reply has been
  /// sent, of which its sender does not know whether it arrived. Nothing is lost by it: the workers
  /// make another connection, the call runs once and its caller gets the answer. Calls of a worker
  /// to itself have no connection.
  Fault break_connection(const Messages& messages);

  /// Ends all faults: what they hold or delay goes on, what they have dropped fails.
  void clear();

  /// For a worker that is in no Cluster, before it starts: these faults hit the calls that it
  /// serves.
  void install(WorkerOptions& options) const;

 private:
  friend class Cluster;

  const std::shared_ptr<internal::FaultTable> table_;
};

}  // namespace sinew::testing
