#include "sinew/rpc/base/standing.h"

#include <tuple>

namespace sinew::internal {

bool outweighs(const Standing& a, const Standing& b) {
  const auto weakness = [](const Standing& side) {
    return std::make_tuple(side.coordinator_rank, side.coordinator.value);
  };
  if (a.members != b.members) return a.members > b.members;
  return weakness(a) < weakness(b);
}

}  // namespace sinew::internal
