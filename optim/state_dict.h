#pragma once

#include <map>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "ATen/core/Tensor.h"
#include "sinew/optim/internal/layer.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/worker.h"

namespace sinew {
namespace optim {

/// The parameters and buffers of a module by their names ("conv1.weight"), as PyTorch's
/// state_dict() has them.
using StateDict = std::map<std::string, at::Tensor>;

/// Writes a file that torch.load() reads in Python, also with weights_only=True, and
/// torch::pickle_load() in C++: a dictionary of tensors. The file appears whole or not at all, and
/// never in the place of another one. Throws RpcError: kInvalidArgument for an undefined tensor,
/// kAlreadyExists, kNotFound and so forth, with the path in its text.
void save_state_dict(const StateDict& state, const std::string& path);
/// Reads such a file, or one that Python's torch.save(module.state_dict(), path) has written, since
/// PyTorch 1.6. Throws RpcError: kNotFound when there is none, kDataLoss when it is damaged or no
/// dictionary of tensors; the text names it. Tensors are on the CPU. LibTorch reads the file: take
/// it from sources that you trust.
StateDict load_state_dict(const std::string& path);

}  // namespace optim

namespace internal {

template <class Module, class = void>
inline constexpr bool has_named_parameters_v = false;
template <class Module>
inline constexpr bool has_named_parameters_v<
    Module, std::void_t<decltype(std::declval<const Module&>().named_parameters()),
                        decltype(std::declval<const Module&>().named_buffers())>> = true;

[[noreturn]] void throw_has_no_names(const std::type_info& module);

/// The tensors themselves. Throws RpcError kUnimplemented for a class that does not name them.
template <class Module>
optim::StateDict named_tensors(const Module& module) {
  optim::StateDict tensors;
  if constexpr (has_named_parameters_v<Module>) {
    for (const auto& one : module.named_parameters()) tensors.emplace(one.key(), one.value());
    for (const auto& one : module.named_buffers()) tensors.emplace(one.key(), one.value());
  } else {
    throw_has_no_names(typeid(Module));
  }
  return tensors;
}

/// Copies on the CPU, from between two steps of optimizers at this worker.
Future<optim::StateDict> copy_tensors(const Worker& worker, const optim::StateDict& tensors);
/// Gives the tensors these values, between two steps. Throws RpcError kInvalidArgument that lists
/// what is missing, what is too much and what has another shape; then nothing has changed.
Future<void> overwrite_tensors(const Worker& worker, const optim::StateDict& tensors,
                               const optim::StateDict& values);

}  // namespace internal
}  // namespace sinew
