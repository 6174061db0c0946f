#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sinew/membership.pb.h"
#include "sinew/rpc/membership/directory.h"

namespace sinew::internal {

void encode(const Member& member, proto::Member& out);

/// Check everything: a name that is allowed, an incarnation, an address of sane length, a rank from
/// -1 (only members of a list must have one), devices that can be (256 at most). kInvalidArgument
/// names the culprit.
absl::StatusOr<Member> decode(const proto::Member& in);

}  // namespace sinew::internal
