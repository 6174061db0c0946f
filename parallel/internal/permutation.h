#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sinew::parallel::internal {

/// 0, 1, ..., size - 1 in an order that depends on the seed and the round alone, not on the machine
/// or its standard library (which std::shuffle does): Fisher and Yates's shuffle with
/// std::mt19937_64.
std::vector<std::size_t> permutation(std::size_t size, std::uint64_t seed, std::uint64_t round);

}  // namespace sinew::parallel::internal
