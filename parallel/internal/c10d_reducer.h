#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "ATen/ops/zeros_like.h"
#include "sinew/parallel/ddp_options.h"
#include "sinew/parallel/internal/sparse_all_reduce.h"

namespace sinew::parallel::internal {

/// LibTorch's reducer, which can also be told that no gradients are to be expected after all, and
/// what to do about those that do not come.
class C10dReducer final : public c10d::Reducer {
 public:
  using c10d::Reducer::Reducer;

  /// Backward passes leave gradients as they are until the next prepare_for_backward().
  void expect_none() {
    const std::lock_guard<std::mutex> lock(mutex_);
    expect_autograd_hooks_ = false;
  }
  bool expects_gradients() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return expect_autograd_hooks_;
  }
  /// For one more pass through a graph: what it does not reach is known at its end.
  void expect_again() {
    {
      // The order of gradients is that of one pass.
      const std::lock_guard<std::mutex> lock(mutex_);
      rebuilt_params_.clear();
      rebuilt_param_indices_.clear();
    }
    prepare_for_backward({});
    forget_unused();
  }
  /// What was found unused in the graph of one forward() may be used in that of another one.
  void forget_unused() {
    const std::lock_guard<std::mutex> lock(mutex_);
    unused_parameters_.clear();
  }
  /// A gradient that this rank has from passes that were not reduced counts as one of this pass.
  void count_as_used(std::size_t parameter) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (local_used_map_.defined()) {
      local_used_map_.data_ptr<int>()[parameter] = 1;
    }
  }
  /// Inside of a backward pass that brings no more gradients: those of `missing` are what they are,
  /// or zeros. All buckets are on their way then, and LibTorch's callback waits for them.
  void complete(const std::vector<std::size_t>& missing) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::vector<std::size_t> unused =
        has_marked_unused_parameters_ ? unused_parameters_ : std::vector<std::size_t>();
    has_marked_unused_parameters_ = true;
    for (const std::size_t parameter : missing) {
      at::Tensor& gradient = at::Tensor(params_[parameter]).mutable_grad();
      if (expect_sparse_gradients_[parameter] && !gradient.defined()) {
        gradient = empty_sparse_gradient(params_[parameter]);
      }
      if (std::find(unused.begin(), unused.end(), parameter) != unused.end()) continue;
      if (should_rebuild_buckets()) push_rebuilt_params(parameter);
      mark_variable_ready(parameter);
    }
  }
  /// Starts the reduction of buckets from `first` on, and of what is used, without gradients of
  /// this rank: in a step of ranks that have inputs, or the rest of a pass that has failed here.
  /// Hooks run, and may block.
  std::vector<c10::intrusive_ptr<c10::ivalue::Future>> reduce_zeros(std::size_t first) {
    constexpr bool kAsZeros = false;
    std::vector<c10d::GradBucket> buckets = get_grad_buckets(kAsZeros);
    std::vector<c10::intrusive_ptr<c10::ivalue::Future>> reduced;
    for (std::size_t i = first; i < buckets.size(); ++i) {
      buckets[i].getBufferRef() = zeros_of(buckets[i]);
      reduced.push_back(run_comm_hook(buckets[i]));
    }
    if (find_unused_parameters_) {
      // The reducer's own has what it was last told, or nothing at all.
      std::vector<at::Tensor> used = {at::zeros_like(get_local_used_map_on_device())};
      reduced.push_back(process_group_->allreduce(used)->getFuture());
    }
    return reduced;
  }
  /// How many buckets have been started in this pass; nothing: all, and the map of what is used.
  std::optional<std::size_t> started() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (next_bucket_ == buckets_.size()) return std::nullopt;
    return next_bucket_;
  }
  /// A pass that has failed here is none, as soon as nothing of it is under way.
  void forget_pass() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      expect_autograd_hooks_ = false;
      require_finalize_ = false;
      if (local_used_map_.defined()) local_used_map_.fill_(0);
      local_used_map_reduced_ = false;
      // The other ranks have an order of all gradients, of which rank 0's counts.
      rebuilt_params_.clear();
      rebuilt_param_indices_.clear();
    }
    push_rebuilt_params_for_all_indices();
  }
  /// A pass has brought gradients, but not all.
  bool is_unfinished() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return require_finalize_;
  }

 private:
  at::Tensor zeros_of(const c10d::GradBucket& bucket) const {
    const at::Tensor parameter = bucket.getParameters().front();
    const auto found = std::find_if(params_.begin(), params_.end(),
                                    [&](const at::Tensor& one) { return one.is_same(parameter); });
    // A sparse bucket has no tensor before its first gradient.
    return expect_sparse_gradients_[static_cast<std::size_t>(found - params_.begin())]
               ? empty_sparse_gradient(parameter)
               : at::zeros_like(bucket.getBuffer());
  }
};

/// Which parameters are reduced together, and the sizes that buckets had to stay below.
struct Buckets {
  std::vector<std::vector<std::size_t>> members;
  std::vector<std::size_t> limits_bytes;
};

/// A template, so that of the constructor's forms only the one that there is gets compiled: newer
/// versions of LibTorch no longer take the limits.
template <class Reducer = C10dReducer>
std::shared_ptr<Reducer> make_c10d_reducer(std::vector<at::Tensor> parameters, Buckets buckets,
                                           c10::intrusive_ptr<c10d::ProcessGroup> group,
                                           std::vector<bool> sparse, const DdpOptions& options,
                                           std::unordered_map<std::size_t, std::string> names) {
  const auto limit = static_cast<std::int64_t>(options.bucket_bytes);
  const auto first_limit = static_cast<std::int64_t>(options.first_bucket_bytes);
  const bool finds_unused = options.unused_parameters == UnusedParameters::kFound;
  const bool has_views = options.gradients == GradientMemory::kBucketViews;
  if constexpr (std::is_constructible_v<
                    Reducer, std::vector<at::Tensor>, std::vector<std::vector<std::size_t>>,
                    std::vector<std::size_t>, c10::intrusive_ptr<c10d::ProcessGroup>,
                    std::vector<bool>, std::int64_t, bool, bool,
                    std::unordered_map<std::size_t, std::string>, std::int64_t>) {
    return std::make_shared<Reducer>(std::move(parameters), std::move(buckets.members),
                                     std::move(buckets.limits_bytes), std::move(group),
                                     std::move(sparse), limit, finds_unused, has_views,
                                     std::move(names), first_limit);
  } else {
    constexpr bool kSkipsUnused = false;
    constexpr bool kIsPythons = false;
    return std::make_shared<Reducer>(std::move(parameters), std::move(buckets.members),
                                     std::move(group), std::move(sparse), limit, finds_unused,
                                     has_views, std::move(names), first_limit, kSkipsUnused,
                                     kIsPythons, std::vector<std::int64_t>());
  }
}

}  // namespace sinew::parallel::internal
