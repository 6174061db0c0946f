#pragma once

#include <chrono>
#include <map>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sinew/rpc/base/standing.h"
#include "sinew/rpc/membership/directory.h"
#include "sinew/rpc/membership/member_codec.h"

namespace sinew::internal {

/// What a member says of its list to those that ask.
struct Standings {
  /// But for `of_other`.
  Standing own;
  std::map<Incarnation, Standing::OfOther> others;

  Standing of(const WorkerInfo& other) const {
    Standing standing = own;
    const auto found = others.find(other.incarnation);
    if (found != others.end()) standing.of_other = found->second;
    return standing;
  }
};

/// Whether the answer to a question at a member's address says that it is gone.
inline bool says_gone(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsAlreadyExists(status);
}

/// Whether it proves that: an address may refuse although it lives.
inline bool proves_end(const absl::StatusOr<Standing>& standing) {
  return standing.ok() ? standing->is_out : absl::IsAlreadyExists(standing.status());
}

/// Somebody who was on the list.
struct GoneMember {
  using TimePoint = std::chrono::steady_clock::time_point;

  Member member;
  Departure how = Departure::kLost;
  TimePoint since;
  /// For certain, or in no job any more.
  bool is_dead = false;
  /// When it was asked last.
  TimePoint asked = TimePoint::min();
};

}  // namespace sinew::internal
