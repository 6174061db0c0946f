#include "sinew/autograd/internal/leaf_reducer.h"

#include <algorithm>
#include <unordered_set>

#include "sinew/autograd/context.h"
#include "sinew/autograd/internal/autograd_manager.h"
#include "sinew/autograd/internal/context_thread.h"
#include "sinew/autograd/internal/pass_reductions.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/calls/worker_services.h"

namespace sinew::internal {
namespace {

using Reducers = std::vector<std::shared_ptr<LeafReducer>>;

Reducers all_in(const Worker& worker, const autograd::ContextId& context) {
  const auto manager = AutogradManager::of(*WorkerAccess::services(worker));
  const auto state = manager->find_or_null(context);
  return state == nullptr ? Reducers() : state->past_reducers();
}

using LeafSet = std::unordered_set<at::Tensor, autograd::TensorIdentity, autograd::TensorIdentity>;

bool has_any(const LeafReducer& reducer, const LeafSet& leaves) {
  return std::any_of(reducer.leaves().begin(), reducer.leaves().end(),
                     [&](const at::Tensor& leaf) { return leaves.count(leaf) > 0; });
}

}  // namespace

bool reduce_in_current_context(const std::shared_ptr<LeafReducer>& reducer) {
  const auto work = current_work();
  return work != nullptr && work->context()->add_reducer(reducer);
}

void fail_in_current_context(const std::exception_ptr& error) {
  if (const auto work = current_work())
    PassReductions::fail_all(work->context()->take_reducers(), error);
}

std::vector<std::uint64_t> reducers_in(const Worker& worker, const autograd::ContextId& context) {
  std::vector<std::uint64_t> numbers(all_in(worker, context).size());
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = i;
  return numbers;
}

std::vector<std::uint64_t> reducers_of(const Worker& worker, const autograd::ContextId& context,
                                       const std::vector<at::Tensor>& leaves) {
  const Reducers all = all_in(worker, context);
  const LeafSet some(leaves.begin(), leaves.end());
  std::vector<std::uint64_t> numbers;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (has_any(*all[i], some)) numbers.push_back(i);
  }
  return numbers;
}

std::vector<double> largest_of_processes(const Worker& worker, const autograd::ContextId& context,
                                         const std::vector<std::uint64_t>& reducers,
                                         LeafReducer::Subject subject, std::vector<double> own) {
  const Reducers all = all_in(worker, context);
  for (const std::uint64_t number : reducers) {
    if (number >= all.size() || own.size() > LeafReducer::kMaxNumbers) {
      throw RpcError(ErrorCode::kInvalidArgument,
                     "the context has no such data-parallel module here");
    }
    own = all[number]->largest(subject, own);
  }
  return own;
}

}  // namespace sinew::internal
