#include "sinew/parallel/internal/context_reducer.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "ATen/ops/full.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_format.h"
#include "sinew/parallel/internal/context_reduction.h"
#include "sinew/parallel/internal/group_tensor.h"
#include "sinew/rpc/base/error.h"

namespace sinew::parallel::internal {

using sinew::internal::MutexLock;

namespace {

// The subject and its negative, by whose largest it shows whether all mean the same.
constexpr std::size_t kSubjectWords = 2;

at::Tensor nothing_said() {
  return at::full({kSubjectWords + sinew::internal::LeafReducer::kMaxNumbers},
                  -std::numeric_limits<double>::infinity(), at::kDouble);
}

}  // namespace

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
  at::Tensor words = nothing_said();
  double* word = words.data_ptr<double>();
  word[0] = static_cast<double>(subject);
  word[1] = -word[0];
  std::copy(own.begin(), own.end(), word + kSubjectWords);
  exchange(words);
  word = words.data_ptr<double>();
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

void ContextReducer::shadow_largest() {
  at::Tensor words = nothing_said();
  exchange(words);
}

void ContextReducer::exchange(at::Tensor& words) {
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
  if (!agreement_.valid()) {
    std::vector<int> ranks(static_cast<std::size_t>(setup_.group.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    agreement_ = setup_.group.new_group(ranks);
  }
  const at::Tensor sent = group_tensor(agreement_, words);
  agreement_.all_reduce(sent, ReduceOp::kMax);
  words = sent.cpu();
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
