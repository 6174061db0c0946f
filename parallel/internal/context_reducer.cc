#include "sinew/parallel/internal/context_reducer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "ATen/ops/full.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_format.h"
#include "sinew/groups/internal/c10d_access.h"
#include "sinew/parallel/internal/context_reduction.h"
#include "sinew/parallel/internal/group_tensor.h"
#include "sinew/rpc/base/error.h"

namespace sinew::parallel::internal {

using sinew::internal::MutexLock;

namespace {

// The subject and its negative, by whose largest it shows whether all mean the same.
constexpr std::size_t kSubjectWords = 2;
// Then, for each rank that has left a step behind its pass, how many passes it had kept.
constexpr std::size_t kWordsOfAll = kSubjectWords + sinew::internal::LeafReducer::kMaxNumbers;
constexpr double kNothing = -std::numeric_limits<double>::infinity();

}  // namespace

ContextReducer::ContextReducer(Setup setup)
    : setup_(std::move(setup)), leaves_(tensors_of(setup_.parameters)) {}

std::shared_ptr<sinew::internal::LeafReduction> ContextReducer::begin(
    const std::vector<Leaf>& leaves) {
  if (const auto watch = setup_.watch.lock()) watch->begin_in_context();
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

void ContextReducer::leave(const std::exception_ptr& error) {
  begin(std::vector<Leaf>(leaves_.size()))->fail(error);
}

void ContextReducer::await_end() const {
  std::shared_ptr<ContextReduction> running;
  {
    MutexLock lock(mutex_);
    running = running_;
  }
  if (running != nullptr) running->await_end();
}

// ---- What ranks agree on between passes.

std::vector<double> ContextReducer::largest(Subject subject, const std::vector<double>& own) {
  JoinSession* session = nullptr;
  {
    MutexLock lock(mutex_);
    session = session_;
  }
  if (session != nullptr) {
    JoinRound round;
    round.agrees = true;
    session->announce(round);
  }
  const at::Tensor said = nothing_said();
  said.data_ptr<double>()[0] = static_cast<double>(subject);
  said.data_ptr<double>()[1] = -static_cast<double>(subject);
  std::copy(own.begin(), own.end(), said.data_ptr<double>() + kSubjectWords);
  const at::Tensor words = exchange(said);
  const double* word = words.data_ptr<double>();
  if (word[0] != -word[1]) {
    throw RpcError(
        ErrorCode::kFailedPrecondition,
        absl::StrFormat("rank %d %s, and another rank of the data-parallel module does "
                        "something else: all ranks clip and unscale in the same order",
                        setup_.group.rank(),
                        subject == Subject::kNorm ? "clips gradients" : "unscales gradients"));
  }
  return std::vector<double>(word + kSubjectWords, word + kSubjectWords + own.size());
}

at::Tensor ContextReducer::nothing_said() const {
  return at::full({static_cast<std::int64_t>(kWordsOfAll) + setup_.group.size()}, kNothing,
                  at::kDouble);
}

void ContextReducer::shadow_largest() { exchange(nothing_said()); }

void ContextReducer::meet() {
  if (agreement_.valid()) return;
  agreement_ = sinew::internal::another_group(setup_.group);
}

// Waits in the group until the others come, in this step or in a later one.
void ContextReducer::leave_behind_pass() {
  const at::Tensor words = nothing_said();
  words.data_ptr<double>()[kWordsOfAll + static_cast<std::size_t>(setup_.group.rank())] =
      static_cast<double>(kept());
  agreement_.all_reduce_async(group_tensor(agreement_, words), ReduceOp::kMax);
}

// Of an earlier step: what the others have said now goes to those who wait there.
bool ContextReducer::have_left(const at::Tensor& words) const {
  const double* kept_by = words.data_ptr<double>() + kWordsOfAll;
  bool any = false;
  for (int rank = 0; rank < setup_.group.size(); ++rank) {
    if (kept_by[rank] == kNothing) continue;
    any = true;
    if (kept_by[rank] < static_cast<double>(kept())) continue;
    throw RpcError(ErrorCode::kAborted,
                   absl::StrFormat("rank %d of the data-parallel module has left this step behind "
                                   "its pass, so nothing is clipped or unscaled (see the error "
                                   "there)",
                                   rank));
  }
  return any;
}

at::Tensor ContextReducer::exchange(const at::Tensor& words) {
  {
    MutexLock lock(mutex_);
    if (std::exchange(agreeing_, true)) {
      throw RpcError(ErrorCode::kFailedPrecondition,
                     "another thread clips or unscales gradients of this data-parallel module");
    }
  }
  const absl::Cleanup done = [this] {
    MutexLock lock(mutex_);
    agreeing_ = false;
  };
  meet();
  for (;;) {
    const at::Tensor sent = group_tensor(agreement_, words.clone());
    agreement_.all_reduce(sent, ReduceOp::kMax);
    const at::Tensor all = sent.cpu();
    if (!have_left(all)) return all;
  }
}

void ContextReducer::set_session(JoinSession* session) {
  MutexLock lock(mutex_);
  session_ = session;
}

// ---- Passes.

void ContextReducer::start(const std::shared_ptr<ContextReduction>& reduction) {
  {
    MutexLock lock(mutex_);
    if (running_ != nullptr) {
      // The others have not come yet to the end of one that has failed here.
      if ((waiting_.empty() ? running_ : waiting_.back())->has_failed()) {
        waiting_.push_back(reduction);
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
    if (!waiting_.empty()) {
      next = std::move(waiting_.front());
      waiting_.pop_front();
    }
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
