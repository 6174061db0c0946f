#pragma once

#include <memory>
#include <vector>

#include "ATen/core/Tensor.h"

namespace sinew::parallel::internal {

/// The states of LibTorch's default generators, of the CPU and of some devices.
class RandomStates {
 public:
  /// Those of the CPU, and of the devices of `tensors`, now.
  static RandomStates of(const std::vector<at::Tensor>& tensors);
  /// Those of the same devices, now.
  RandomStates now() const;
  void restore() const;
  bool is_same_as(const RandomStates& other) const;

 private:
  struct State {
    at::Device device;
    at::Tensor bytes;
  };
  std::vector<State> states_;
};

/// The settings of automatic mixed precision of a thread.
class AutocastSettings {
 public:
  /// Those of this thread.
  static AutocastSettings current();

  /// Has them for this thread while it lives, without the cache of weights: that would hand those
  /// that were made without gradients to who needs them.
  class Scope {
   public:
    explicit Scope(const AutocastSettings& settings);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const std::unique_ptr<const AutocastSettings> before_;
  };

 private:
  void apply() const;

  bool on_cpu_ = false;
  bool on_gpu_ = false;
  at::ScalarType cpu_type_{};
  at::ScalarType gpu_type_{};
  bool has_cache_ = false;
};

/// Gives buffers other values while it lives.
class BufferScope {
 public:
  BufferScope(const std::vector<at::Tensor>& buffers, const std::vector<at::Tensor>& values);
  ~BufferScope();
  BufferScope(const BufferScope&) = delete;
  BufferScope& operator=(const BufferScope&) = delete;

 private:
  const std::vector<at::Tensor> buffers_;
  const std::vector<at::Tensor> before_;
};

std::vector<at::Tensor> copies_of(const std::vector<at::Tensor>& tensors);

}  // namespace sinew::parallel::internal
