#include "sinew/groups/internal/mpi/mpi_work.h"

#include <sched.h>

#include <thread>
#include <utility>

#include "ATen/core/ivalue.h"
#include "absl/strings/str_cat.h"
#include "sinew/groups/internal/mpi/mpi_patience.h"
#include "sinew/groups/internal/mpi/mpi_runtime.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {
namespace {

// Between two looks at the clock: microseconds.
constexpr int kPollsAtOnce = 50;

}  // namespace

MpiWork::MpiWork(c10d::OpType type, MpiOperation operation, std::vector<at::Tensor> outputs)
    : Work(-1, type), outputs_(std::move(outputs)), operation_(std::move(operation)) {}

MpiWork::~MpiWork() {
  MutexLock lock(state_mutex_);
  if (!operation_) return;
  MpiRuntime& runtime = operation_->communicator->runtime();
  runtime.adopt(take_locked(), nullptr);
}

MpiOperation MpiWork::take_locked() {
  MpiOperation operation = *std::move(operation_);
  operation_.reset();
  operation.tensors.insert(operation.tensors.end(), outputs_.begin(), outputs_.end());
  return operation;
}

bool MpiWork::poll_locked(int times) {
  if (outcome_) return true;
  if (!operation_) return false;
  outcome_ = operation_->poll(times);
  if (!outcome_ && operation_->communicator->has_failed()) {
    outcome_ = take_locked().give_up();
  }
  if (!outcome_) return false;
  operation_.reset();
  changed_.notify_all();
  return true;
}

bool MpiWork::isCompleted() {
  MutexLock lock(state_mutex_);
  return poll_locked(1);
}

bool MpiWork::isSuccess() const {
  MutexLock lock(state_mutex_);
  return outcome_ && outcome_->status.ok();
}

std::exception_ptr MpiWork::exception() const {
  MutexLock lock(state_mutex_);
  return outcome_ && !outcome_->status.ok() ? make_error(outcome_->status) : nullptr;
}

int MpiWork::sourceRank() const {
  MutexLock lock(state_mutex_);
  return outcome_ ? outcome_->source : -1;
}

bool MpiWork::wait(std::chrono::milliseconds timeout) {
  MutexLock lock(state_mutex_);
  if (!poll_locked(kPollsAtOnce)) {
    MpiPatience patience;
    const Clock::time_point begun = Clock::now();
    while (!poll_locked(kPollsAtOnce)) {
      const Clock::time_point now = Clock::now();
      if (timeout > std::chrono::milliseconds::zero() && now - begun >= timeout) {
        throw RpcError(
            ErrorCode::kDeadlineExceeded,
            absl::StrCat("an operation over MPI was not done within ", timeout.count(), " ms"));
      }
      const Clock::duration nap = patience.nap(now);
      if (!operation_) {
        // The runtime has it. A limit that is missing is looked for once in a while.
        changed_.wait_until(state_mutex_, timeout > std::chrono::milliseconds::zero()
                                              ? begun + timeout
                                              : now + std::chrono::hours(1));
      } else if (nap == Clock::duration::zero()) {
        lock.unlock();
        ::sched_yield();
        lock.lock();
      } else {
        changed_.wait_until(state_mutex_, now + nap);
      }
    }
  }
  if (!outcome_->status.ok()) throw_error(outcome_->status);
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> MpiWork::getFuture() {
  std::optional<MpiOperation> running;
  std::optional<MpiOutcome> outcome;
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    MutexLock lock(state_mutex_);
    if (future_) return future_;
    future_ =
        c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    future = future_;
    poll_locked(1);
    outcome = outcome_;
    if (operation_) running = take_locked();
  }
  if (running) {
    MpiRuntime& runtime = running->communicator->runtime();
    auto self = c10::intrusive_ptr<MpiWork>::unsafe_reclaim_from_nonowning(this);
    runtime.adopt(*std::move(running),
                  [self = std::move(self)](MpiOutcome ended) { self->on_done(std::move(ended)); });
  } else {
    on_done(*std::move(outcome));
  }
  return future;
}

// Completes the future, which runs others' callbacks, under no lock.
void MpiWork::on_done(MpiOutcome outcome) {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    MutexLock lock(state_mutex_);
    outcome_ = outcome;
    future = future_;
    changed_.notify_all();
  }
  if (outcome.status.ok()) {
    future->markCompleted(c10::IValue(outputs_));
  } else {
    future->setError(make_error(outcome.status));
  }
}

}  // namespace sinew::internal
