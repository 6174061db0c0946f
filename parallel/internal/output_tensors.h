#pragma once

#include <array>
#include <map>
#include <optional>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"

namespace sinew::parallel::internal {

using Tensors = std::optional<std::vector<at::Tensor>>;

inline Tensors joined(Tensors a, const Tensors& b) {
  if (!a.has_value() || !b.has_value()) return std::nullopt;
  a->insert(a->end(), b->begin(), b->end());
  return a;
}

/// The tensors in a value; nullopt for one of a type that may have some that cannot be seen.
template <class T>
struct OutputTensors {
  static Tensors of(const T&) {
    if constexpr (std::is_arithmetic_v<T>) return std::vector<at::Tensor>();
    return std::nullopt;
  }
};
template <class T>
Tensors output_tensors(const T& value) {
  return OutputTensors<T>::of(value);
}

template <>
struct OutputTensors<at::Tensor> {
  static Tensors of(const at::Tensor& value) {
    if (!value.defined()) return std::vector<at::Tensor>();
    return std::vector<at::Tensor>{value};
  }
};

template <class Range>
struct OutputTensorsOfRange {
  static Tensors of(const Range& range) {
    Tensors all = std::vector<at::Tensor>();
    for (const auto& one : range) all = joined(std::move(all), output_tensors(one));
    return all;
  }
};
template <class T>
struct OutputTensors<std::vector<T>> : OutputTensorsOfRange<std::vector<T>> {};
template <class T, std::size_t kSize>
struct OutputTensors<std::array<T, kSize>> : OutputTensorsOfRange<std::array<T, kSize>> {};

/// Keys have none.
template <class Map>
struct OutputTensorsOfMap {
  static Tensors of(const Map& map) {
    Tensors all = std::vector<at::Tensor>();
    for (const auto& [key, one] : map) all = joined(std::move(all), output_tensors(one));
    return all;
  }
};
template <class K, class T>
struct OutputTensors<std::map<K, T>> : OutputTensorsOfMap<std::map<K, T>> {};
template <class K, class T>
struct OutputTensors<std::unordered_map<K, T>> : OutputTensorsOfMap<std::unordered_map<K, T>> {};

template <class... T>
struct OutputTensors<std::tuple<T...>> {
  static Tensors of(const std::tuple<T...>& value) {
    Tensors all = std::vector<at::Tensor>();
    std::apply(
        [&](const auto&... one) { ((all = joined(std::move(all), output_tensors(one))), ...); },
        value);
    return all;
  }
};
template <class A, class B>
struct OutputTensors<std::pair<A, B>> {
  static Tensors of(const std::pair<A, B>& value) {
    return joined(output_tensors(value.first), output_tensors(value.second));
  }
};
template <class T>
struct OutputTensors<std::optional<T>> {
  static Tensors of(const std::optional<T>& value) {
    return value.has_value() ? output_tensors(*value) : std::vector<at::Tensor>();
  }
};

}  // namespace sinew::parallel::internal
