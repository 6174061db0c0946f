#pragma once

#include <memory>
#include <type_traits>
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

}  // namespace internal

/// References to the parameters of a module of this worker (a torch::nn::Module, a module holder or
/// a pointer to one), in the order of its parameters(), for a DistributedOptimizer. Without a
/// worker it is current_worker().
template <class Module>
std::vector<RRef<at::Tensor>> parameter_rrefs(const Worker& worker, const Module& module) {
  std::vector<RRef<at::Tensor>> references;
  const auto add_all = [&](const auto& parameters) {
    for (const at::Tensor& parameter : parameters) {
      references.push_back(make_rref(worker, parameter));
    }
  };
  if constexpr (internal::has_parameters_v<Module>) {
    add_all(module.parameters());
  } else {
    add_all(module->parameters());
  }
  return references;
}
template <class Module>
std::vector<RRef<at::Tensor>> parameter_rrefs(const Module& module) {
  return parameter_rrefs(current_worker(), module);
}

}  // namespace sinew
