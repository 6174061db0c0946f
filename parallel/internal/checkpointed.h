#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "sinew/parallel/checkpoint_options.h"

namespace torch::nn {
class Module;
}

namespace sinew::parallel::internal {

using CheckpointedFunction =
    std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>;

/// Some outputs may be undefined.
std::vector<at::Tensor> run_checkpointed(CheckpointedFunction function,
                                         std::vector<at::Tensor> inputs, CheckpointOptions options);

/// Adds the parameters and buffers of a module.
void add_tensors_of(const torch::nn::Module& module, CheckpointOptions& options);

template <class Part>
struct IsSharedModule : std::false_type {};
template <class Module>
struct IsSharedModule<std::shared_ptr<Module>> : std::true_type {};
template <class Part, class = void>
struct IsModuleHolder : std::false_type {};
template <class Part>
struct IsModuleHolder<Part, std::void_t<typename Part::ContainedType>> : std::true_type {};

/// `part` as something to be called with tensors; what it uses is added to `options`.
template <class Part>
auto callable_of(const Part& part, CheckpointOptions& options) {
  if constexpr (IsSharedModule<Part>::value) {
    add_tensors_of(*part, options);
    return [part](const auto&... inputs) { return part->forward(inputs...); };
  } else if constexpr (IsModuleHolder<Part>::value) {
    return callable_of(part.ptr(), options);
  } else {
    return part;
  }
}

template <class Call, std::size_t... kIndexes>
auto call_with(const Call& call, const std::vector<at::Tensor>& inputs,
               std::index_sequence<kIndexes...>) {
  return call(inputs[kIndexes]...);
}

/// What a part returns, as a list and back.
template <class Result>
struct ResultTensors {
  static_assert(!std::is_same_v<Result, Result>,
                "a checkpointed part returns a tensor, or a vector, tuple or pair of tensors");
};

template <>
struct ResultTensors<at::Tensor> {
  static std::vector<at::Tensor> to_list(const at::Tensor& result) { return {result}; }
  static at::Tensor from_list(const std::vector<at::Tensor>& list) { return list.front(); }
};

template <>
struct ResultTensors<std::vector<at::Tensor>> {
  static std::vector<at::Tensor> to_list(std::vector<at::Tensor> result) { return result; }
  static std::vector<at::Tensor> from_list(std::vector<at::Tensor> list) { return list; }
};

template <class Result>
struct ResultTensorsOfTuple {
  static std::vector<at::Tensor> to_list(const Result& result) {
    return std::apply([](const auto&... one) { return std::vector<at::Tensor>{one...}; }, result);
  }
  static Result from_list(const std::vector<at::Tensor>& list) {
    return filled(list, std::make_index_sequence<std::tuple_size_v<Result>>());
  }

 private:
  template <std::size_t... kIndexes>
  static Result filled(const std::vector<at::Tensor>& list, std::index_sequence<kIndexes...>) {
    return Result(list[kIndexes]...);
  }
};
template <class... T>
struct ResultTensors<std::tuple<T...>> : ResultTensorsOfTuple<std::tuple<T...>> {};
template <class A, class B>
struct ResultTensors<std::pair<A, B>> : ResultTensorsOfTuple<std::pair<A, B>> {};

}  // namespace sinew::parallel::internal
