#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/function.h>

#include "absl/base/thread_annotations.h"
#include "sinew/parallel/internal/c10d_reducer.h"
#include "sinew/parallel/internal/module_parts.h"
#include "sinew/rpc/base/internal/mutex.h"

namespace sinew::parallel::internal {

/// Sees which parameters have got their gradients in the backward pass that LibTorch's reducer
/// expects, and in passes that are not reduced. Thread-safe.
class GradientHooks {
 public:
  /// To be made before the reducer, whose hooks run after these.
  explicit GradientHooks(std::vector<NamedTensor> parameters);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

  /// Outlives this. `on_expected` runs in the pass, before each gradient that is expected.
  void watch(const C10dReducer* reducer, std::function<void()> on_expected) {
    reducer_ = reducer;
    on_expected_ = std::move(on_expected);
  }
  /// Throws RpcError kFailedPrecondition that names a parameter whose gradients come by another way
  /// than when this was made, where they are not seen.
  void check_attached() const;
  /// A pass is expected.
  void expect();
  /// Whether the pass that runs here, which goes to some tensors only, brings any gradients.
  bool are_reached_by_some() const;
  /// The parameters that have no gradient yet.
  std::vector<std::size_t> missing() const;
  std::string names(const std::vector<std::size_t>& parameters) const;
  /// The parameters with a gradient that passes have brought since forget_unreduced(), and that was
  /// not reduced.
  std::vector<std::size_t> unreduced() const;
  void forget_unreduced();

 private:
  void on_gradient(std::size_t parameter);

  const std::vector<NamedTensor> parameters_;
  std::vector<std::pair<std::shared_ptr<torch::autograd::Node>, std::uintptr_t>> hooks_;
  const C10dReducer* reducer_ = nullptr;
  std::function<void()> on_expected_;

  mutable sinew::internal::Mutex mutex_;
  std::vector<bool> ready_ ABSL_GUARDED_BY(mutex_);
  std::vector<bool> unreduced_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::parallel::internal
