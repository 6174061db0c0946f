#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "sinew/rpc/base/standing.h"
#include "sinew/rpc/membership/directory.h"

namespace sinew::internal {

/// Whether this worker is still in the job, by what all those say whom it knows
/// (docs/membership.md). Asked when one of them says that it is not. Pure; not thread-safe.
class StandingPoll {
 public:
  /// `members`: the others on this worker's list; `gone`: those that were on it.
  StandingPoll(const std::vector<Member>& members, const std::vector<Member>& gone);

  /// kNotFound: it is gone for certain; other errors: it does not answer. Of several answers the
  /// first counts.
  void on_answer(const WorkerInfo& worker, const absl::StatusOr<Standing>& standing);
  bool is_done() const { return missing_ == 0; }
  /// A member of this worker's list has not answered, and may be on its side.
  bool has_silent_member() const;

  /// Of those that have taken this worker off their list, the one of the weightiest side, if that
  /// outweighs the side of `self`: then it is out. That are those who have it on theirs, whatever
  /// its own list says, which may be old.
  std::optional<WorkerInfo> evicted_by(const WorkerInfo& self) const;

 private:
  struct Answer {
    WorkerInfo worker;
    bool is_member = false;
    bool has_come = false;
    bool is_dead = false;
    std::optional<Standing> standing;
  };
  std::map<Incarnation, Answer> answers_;
  std::size_t missing_ = 0;
};

}  // namespace sinew::internal
