#include "sinew/parallel/internal/context_reducer.h"

#include <utility>

#include "sinew/parallel/internal/context_reduction.h"
#include "sinew/rpc/base/error.h"

namespace sinew::parallel::internal {

using sinew::internal::MutexLock;

ContextReducer::ContextReducer(Setup setup)
    : setup_(std::move(setup)), leaves_(tensors_of(setup_.parameters)) {}

std::shared_ptr<sinew::internal::LeafReduction> ContextReducer::begin(
    const std::vector<Leaf>& leaves) {
  setup_.on_begin();
  auto reduction = std::make_shared<ContextReduction>(shared_from_this(),
                                                      ContextReduction::Role::kActive, leaves);
  start(reduction);
  return reduction;
}

void ContextReducer::shadow() {
  const auto reduction = std::make_shared<ContextReduction>(
      shared_from_this(), ContextReduction::Role::kShadow, std::vector<Leaf>(leaves_.size()));
  start(reduction);
  reduction->finish().wait();
}

void ContextReducer::start(const std::shared_ptr<ContextReduction>& reduction) {
  {
    MutexLock lock(mutex_);
    if (running_ != nullptr) {
      // Another thread is about to start what is left of a pass that has failed.
      if (next_ == nullptr && running_->has_failed()) {
        next_ = reduction;
        return;
      }
      throw RpcError(ErrorCode::kFailedPrecondition,
                     "another backward pass reduces the gradients of this data-parallel module "
                     "already: its passes run one after the other, also those of several contexts");
    }
    running_ = reduction;
  }
  reduction->allow_launch();
}

bool ContextReducer::runs() const {
  MutexLock lock(mutex_);
  return running_ != nullptr;
}

void ContextReducer::set_division(JoinDivision division) {
  MutexLock lock(mutex_);
  division_ = division;
}

JoinDivision ContextReducer::division() const {
  MutexLock lock(mutex_);
  return division_;
}

void ContextReducer::end() {
  std::shared_ptr<ContextReduction> next;
  {
    MutexLock lock(mutex_);
    next = std::exchange(next_, nullptr);
    running_ = next;
  }
  if (next != nullptr) next->allow_launch();
}

void ContextReducer::count_kept(int difference) {
  MutexLock lock(mutex_);
  kept_ += difference;
}

std::int64_t ContextReducer::kept() const {
  MutexLock lock(mutex_);
  return kept_;
}

}  // namespace sinew::parallel::internal
