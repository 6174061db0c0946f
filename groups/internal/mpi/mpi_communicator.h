#pragma once

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sinew/rpc/base/internal/mutex.h"

namespace sinew::internal {

class MpiRuntime;

/// A communicator of a group's own, and whether it is still of use. Thread-safe.
class MpiCommunicator {
 public:
  /// Where its members are.
  enum class Reach { kOneHost, kSeveralHosts };

  /// Made by all of `world_ranks`, which are ranks of MPI_COMM_WORLD, in the order of the group;
  /// this process is among them. Groups that several threads make at the same time have different
  /// names. kDeadlineExceeded if not all have called it by then.
  static absl::StatusOr<std::shared_ptr<MpiCommunicator>> create(
      MpiRuntime& runtime, const std::vector<int>& world_ranks, const std::string& name,
      std::chrono::steady_clock::time_point deadline);

  /// Does not wait. A communicator that has failed stays, as MPI may still work on it.
  ~MpiCommunicator();
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;

  MpiRuntime& runtime() const { return runtime_; }
  MPI_Comm handle() const { return handle_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  Reach reach() const { return reach_; }

  /// Not OK once fail() was called, or MPI is about to end.
  absl::Status check() const;
  bool has_failed() const { return has_failed_.load(std::memory_order_acquire); }
  /// Ends its use: those that wait for operations under way give them up. Only the first call has
  /// an effect. `why` must not be OK.
  void fail(absl::Status why);

 private:
  MpiCommunicator(MpiRuntime& runtime, MPI_Comm handle, int rank, int size, Reach reach);

  MpiRuntime& runtime_;
  const MPI_Comm handle_;
  const int rank_;
  const int size_;
  const Reach reach_;
  std::atomic<bool> has_failed_{false};

  mutable Mutex mutex_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
