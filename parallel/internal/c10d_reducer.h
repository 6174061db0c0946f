#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/reducer.hpp>

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
  /// A pass has brought gradients, but not all.
  bool is_unfinished() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return require_finalize_;
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
