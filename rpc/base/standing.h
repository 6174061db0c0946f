#pragma once

#include <cstdint>

#include "sinew/rpc/base/ids.h"

namespace sinew::internal {

/// What a member says of its list of members, to somebody whom it has lost or who has lost it.
struct Standing {
  enum class OfOther : std::uint8_t {
    /// Nobody whom the list has or had.
    kUnknown = 0,
    kMember = 1,
    /// Was taken off the list as lost.
    kEvicted = 2,
    kLeft = 3,
  };
  /// What the list says of the worker to which this is said.
  OfOther of_other = OfOther::kUnknown;
  /// In the list; 0: who says this is no member itself.
  std::uint32_t members = 0;
  /// Who coordinates.
  std::int32_t coordinator_rank = -1;
  Incarnation coordinator;
  /// Who says this was a member, and is none any more.
  bool is_out = false;
};

/// Whether the side of the job that says `a` stays when it meets the one that says `b`: the one
/// with more members; of two that are equal the one whose coordinator has the lower rank. An order:
/// both ends come to the same result.
bool outweighs(const Standing& a, const Standing& b);

}  // namespace sinew::internal
