#include "sinew/rpc/link/standing.h"

#include <tuple>

#include "sinew/link.pb.h"

namespace sinew::internal {

bool outweighs(const Standing& a, const Standing& b) {
  const auto weakness = [](const Standing& side) {
    return std::make_tuple(side.coordinator_rank, side.coordinator.value);
  };
  if (a.members != b.members) return a.members > b.members;
  return weakness(a) < weakness(b);
}

void write_standing(const Standing& standing, proto::Standing& out) {
  out.set_of_other(static_cast<proto::Standing::OfOther>(standing.of_other));
  out.set_members(standing.members);
  out.set_coordinator_rank(standing.coordinator_rank);
  out.set_coordinator(standing.coordinator.value);
}

Standing read_standing(const proto::Standing& in) {
  Standing standing;
  if (proto::Standing::OfOther_IsValid(in.of_other())) {
    standing.of_other = static_cast<Standing::OfOther>(in.of_other());
  }
  standing.members = in.members();
  standing.coordinator_rank = in.coordinator_rank();
  standing.coordinator = {in.coordinator()};
  return standing;
}

}  // namespace sinew::internal
