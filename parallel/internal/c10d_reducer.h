#pragma once

#include <torch/csrc/distributed/c10d/reducer.hpp>

namespace sinew::parallel::internal {

/// LibTorch's reducer, which can also be told that no gradients are to be expected after all, and
/// asked what it waits for.
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
  /// A pass has brought gradients, but not all.
  bool is_unfinished() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return require_finalize_;
  }
};

}  // namespace sinew::parallel::internal
