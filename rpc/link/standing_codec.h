#pragma once

#include "sinew/link.pb.h"
#include "sinew/rpc/base/standing.h"

namespace sinew::internal {

inline void write_standing(const Standing& standing, proto::Standing& out) {
  out.set_of_other(static_cast<proto::Standing::OfOther>(standing.of_other));
  out.set_members(standing.members);
  out.set_coordinator_rank(standing.coordinator_rank);
  out.set_coordinator(standing.coordinator.value);
  out.set_is_out(standing.is_out);
}

/// Nothing is checked but that `of_other` is one that is known.
inline Standing read_standing(const proto::Standing& in) {
  Standing standing;
  if (proto::Standing::OfOther_IsValid(in.of_other())) {
    standing.of_other = static_cast<Standing::OfOther>(in.of_other());
  }
  standing.members = in.members();
  standing.coordinator_rank = in.coordinator_rank();
  standing.coordinator = {in.coordinator()};
  standing.is_out = in.is_out();
  return standing;
}

}  // namespace sinew::internal
