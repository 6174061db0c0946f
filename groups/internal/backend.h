#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "c10/core/Device.h"
#include "sinew/groups/internal/c10d_types.h"
#include "sinew/groups/reduce_op.h"
#include "torch/csrc/distributed/c10d/Store.hpp"

namespace sinew::internal {

/// What a group asks of a backend.
enum class Function {
  kSend,
  kRecv,
  kRecvAnySource,
  kBroadcast,
  kAllReduce,
  kReduce,
  kScatter,
  kGather,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kBarrier,
};

/// What a backend needs to start.
struct BackendRequest {
  /// The group's own keys.
  c10::intrusive_ptr<c10d::Store> store;
  int rank = 0;
  int size = 1;
  /// The ranks of the members in the job's first group, by their rank in this one.
  std::vector<int> job_ranks;
  /// For the start.
  std::chrono::milliseconds timeout{0};
  /// The local address, a literal without port, where connections are to be accepted.
  std::string listen_host;
  /// For texts.
  std::string group;
  /// How much of the others' parts a reduction of parts holds at a time, where the backend leaves
  /// that to Sinew.
  std::size_t piece_bytes = std::size_t{64} << 20;
  /// The group may leave this machine unencrypted. The others look at where they listen before.
  bool allow_unencrypted = false;
};

/// One kind of communication below a group (Gloo, NCCL, MPI): a c10d backend and what it can do.
/// The group checks tensors before (contiguous, on the right device, all ranks agree), keeps the
/// time limits, and asks for nothing that can() denies; so a backend is a thin thing. Thread-safe.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;
  virtual C10dBackend& c10d() = 0;

  /// Whether the backend itself has it, on tensors of that type. What moves data without computing
  /// (all but kAllReduce, kReduce and kReduceScatter) is asked with bytes (kByte) whatever the
  /// tensors' type. What this denies, the group makes of others where that is natural: averages of
  /// sums, kReduceScatter of kAllToAll, which every backend has.
  /// MIN and MAX of floating-point numbers: only if the result is NaN where any rank has that.
  virtual bool can(Function function) const = 0;
  virtual bool reduces(at::ScalarType type, ReduceOp op) const = 0;
  /// The same of kReduceScatter. `is_even`: all parts have one size.
  virtual bool reduces_parts(at::ScalarType type, ReduceOp op, bool is_even) const {
    return is_even && can(Function::kReduceScatter) && reduces(type, op);
  }
  /// Whether the Work of that function has getFuture(). Otherwise a thread waits for it, unless it
  /// is complete when it is returned.
  virtual bool has_future(Function function) const = 0;

  /// Runs something in its place among what the calling thread queues on a device.
  using RunOn = std::function<void(const std::function<void()>& f)>;
  /// The place is where the calling thread's own work is queued now. Null: the device has no
  /// queues.
  virtual RunOn here(c10::Device device) {
    (void)device;
    return nullptr;
  }
  /// Of an operation without a future: blocks until its data are there, runs `finish` (it may be
  /// null), and returns when the device is through with that too. Throws what the operation failed
  /// with.
  virtual void finish(c10d::Work& work, c10::Device device, const std::function<void()>& finish) {
    (void)device;
    work.wait();
    if (finish) finish();
  }
  /// Whether a caller who waits for an operation anyway should do so in Work::wait() of its own
  /// thread, without a call of getFuture(): it ends there within microseconds, where a hand-over
  /// between threads would take ten times as long. It ends with an error there too after abort().
  virtual bool is_waited_for_in_place() const { return false; }

  /// The next call of c10d() by this thread is that function. Ranks that agree about the operation
  /// have equal digests: for backends that can keep others apart. Calls of collectives come one
  /// after the other, in the group's order.
  virtual void announce(Function function, std::uint16_t digest) {
    (void)function;
    (void)digest;
  }

  /// Everything under way fails soon, and what is called from now on fails at once. Does not block.
  virtual void abort(const absl::Status& reason) = 0;
  /// Of an operation that is under way: the ranks whose data it waits for, as far as the backend
  /// can tell.
  virtual std::vector<int> awaited_ranks() const { return {}; }
  /// The ranks whose connections have broken, as far as the backend can tell, in the order in
  /// which it has noticed.
  virtual std::vector<int> broken_ranks() const { return {}; }
  /// `f` runs whenever one breaks; on a thread of the backend, which must not wait. Called once.
  virtual void watch_broken(std::function<void()> f) { (void)f; }
};

// Each throws RpcError, or what its library throws.

/// kUnimplemented in a build without Gloo's headers.
std::unique_ptr<Backend> make_gloo_backend(const BackendRequest& request);
/// kUnimplemented in a build without NCCL.
std::unique_ptr<Backend> make_nccl_backend(const BackendRequest& request);
/// kUnimplemented in a build without MPI.
std::unique_ptr<Backend> make_mpi_backend(const BackendRequest& request);

/// MPI itself says who a process is: its place in the world. kFailedPrecondition for a process that
/// mpirun has not started. Begins MPI, which waits for all processes of the job: kDeadlineExceeded
/// after `timeout`.
struct MpiPlace {
  int rank = 0;
  int size = 1;
};
MpiPlace mpi_place(std::chrono::milliseconds timeout);

}  // namespace sinew::internal
