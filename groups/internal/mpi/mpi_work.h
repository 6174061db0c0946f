#pragma once

#include <chrono>
#include <exception>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "sinew/groups/internal/mpi/mpi_operation.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "torch/csrc/distributed/c10d/Work.hpp"

namespace sinew::internal {

/// An operation of MPI as c10d sees it. It has no thread of its own: the thread that waits for it
/// polls MPI meanwhile. With getFuture(), and when it is destroyed before its end, the runtime's
/// thread takes it over. Thread-safe.
class MpiWork final : public c10d::Work {
 public:
  /// `outputs`: the value of its future. `operation` need not have them among its tensors.
  MpiWork(c10d::OpType type, MpiOperation operation, std::vector<at::Tensor> outputs);
  ~MpiWork() override;

  bool isCompleted() override;
  bool isSuccess() const override;
  /// Null unless it has failed.
  std::exception_ptr exception() const override;
  /// Of a receive that is done.
  int sourceRank() const override;
  std::vector<at::Tensor> result() override { return outputs_; }
  void synchronize() override {}
  /// Throws RpcError: the operation's error; kDeadlineExceeded after `timeout`, unless that is 0,
  /// which leaves the operation as it is.
  bool wait(std::chrono::milliseconds timeout) override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  using Clock = std::chrono::steady_clock;

  /// Asks MPI `times` times if that is this object's part; true if it is done.
  bool poll_locked(int times) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_mutex_);
  /// Gives the operation away, with all that MPI uses.
  MpiOperation take_locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_mutex_);
  void on_done(MpiOutcome outcome);

  const std::vector<at::Tensor> outputs_;

  mutable Mutex state_mutex_;
  CondVar changed_;
  /// Until it is done or the runtime has it.
  std::optional<MpiOperation> operation_ ABSL_GUARDED_BY(state_mutex_);
  std::optional<MpiOutcome> outcome_ ABSL_GUARDED_BY(state_mutex_);
  c10::intrusive_ptr<c10::ivalue::Future> future_ ABSL_GUARDED_BY(state_mutex_);
};

}  // namespace sinew::internal
