#include "sinew/parallel/internal/permutation.h"

#include <limits>
#include <numeric>
#include <random>
#include <utility>

namespace sinew::parallel::internal {
namespace {

/// Less than `bound`, each number equally likely.
std::uint64_t draw(std::mt19937_64& random, std::uint64_t bound) {
  const std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  // What lies beyond the last whole multiple would make small numbers likelier.
  const std::uint64_t limit = most - most % bound;
  std::uint64_t drawn = random();
  while (drawn >= limit) drawn = random();
  return drawn % bound;
}

std::uint32_t low(std::uint64_t value) { return static_cast<std::uint32_t>(value); }
std::uint32_t high(std::uint64_t value) { return static_cast<std::uint32_t>(value >> 32); }

}  // namespace

std::vector<std::size_t> permutation(std::size_t size, std::uint64_t seed, std::uint64_t round) {
  std::seed_seq seeds{low(seed), high(seed), low(round), high(round)};
  std::mt19937_64 random(seeds);
  std::vector<std::size_t> order(size);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t left = size; left > 1; --left) {
    std::swap(order[left - 1], order[draw(random, left)]);
  }
  return order;
}

}  // namespace sinew::parallel::internal
