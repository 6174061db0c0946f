#pragma once

#include <memory>
#include <type_traits>
#include <unordered_set>
#include <vector>

#include "ATen/core/Tensor.h"
#include "sinew/rref/rref.h"

namespace sinew {
namespace internal {

template <class Module, class = void>
inline constexpr bool has_parameters_v = false;
template <class Module>
inline constexpr bool
    has_parameters_v<Module, std::void_t<decltype(std::declval<const Module&>().parameters())>> =
        true;

template <class Module, class = void>
inline constexpr bool has_buffers_v = false;
template <class Module>
inline constexpr bool
    has_buffers_v<Module, std::void_t<decltype(std::declval<const Module&>().buffers())>> = true;
template <class Module, class = void>
inline constexpr bool points_to_buffers_v = false;
template <class Module>
inline constexpr bool
    points_to_buffers_v<Module, std::void_t<decltype(std::declval<const Module&>()->buffers())>> =
        true;

template <class Tensors>
std::vector<RRef<at::Tensor>> tensor_rrefs(const Worker& worker, const Tensors& tensors) {
  std::vector<RRef<at::Tensor>> references;
  std::unordered_set<const void*> seen;
  for (const at::Tensor& tensor : tensors) {
    // LibTorch lists a weight that is tied once for each of its names.
    if (tensor.defined() && !seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    references.push_back(make_rref(worker, tensor));
  }
  return references;
}

}  // namespace internal

/// References to the parameters of a module of this worker (a torch::nn::Module, a module holder or
/// a pointer to one), in the order of its parameters(), each once, for a DistributedOptimizer.
/// Without a worker it is current_worker().
template <class Module>
std::vector<RRef<at::Tensor>> parameter_rrefs(const Worker& worker, const Module& module) {
  if constexpr (internal::has_parameters_v<Module>) {
    return internal::tensor_rrefs(worker, module.parameters());
  } else {
    return internal::tensor_rrefs(worker, module->parameters());
  }
}
template <class Module>
std::vector<RRef<at::Tensor>> parameter_rrefs(const Module& module) {
  return parameter_rrefs(current_worker(), module);
}

/// References to the buffers of a module of this worker, in the order of its buffers(), for
/// DistributedOptimizer::keep(). None for a class without buffers().
template <class Module>
std::vector<RRef<at::Tensor>> buffer_rrefs(const Worker& worker, const Module& module) {
  if constexpr (internal::has_buffers_v<Module>) {
    return internal::tensor_rrefs(worker, module.buffers());
  } else if constexpr (internal::points_to_buffers_v<Module>) {
    return internal::tensor_rrefs(worker, module->buffers());
  } else {
    return {};
  }
}
template <class Module>
std::vector<RRef<at::Tensor>> buffer_rrefs(const Module& module) {
  return buffer_rrefs(current_worker(), module);
}

}  // namespace sinew
