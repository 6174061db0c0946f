#include "sinew/rpc/membership/control_plane.h"

#include "sinew/rpc/membership/membership_bugs.h"

namespace sinew::internal {

bool is_for_guests(std::string_view method) {
  const bool decides = method == kVoteMethod || method == kProposeMethod;
  if (decides) return !SINEW_MEMBERSHIP_BUG(kJoinerIsDeaf);
  return method == kJoinMethod || method == kListMethod || method == kUpdateMethod ||
         method == kInviteMethod || method == kLeaveMethod;
}

}  // namespace sinew::internal
