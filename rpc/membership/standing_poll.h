#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "sinew/rpc/base/standing.h"
#include "sinew/rpc/membership/directory.h"

namespace sinew::internal {

/// Whether this worker is still in the job, by what all those say whom it knows
/// (docs/membership.md). Asked when one of them says that it is not. Pure; not thread-safe.
class StandingPoll {
 public:
  /// `asked`: the others on this worker's list, and those that were on it.
  explicit StandingPoll(const std::vector<Member>& asked);

  /// Nothing: it does not answer, or is somebody else by now. Of several answers the first counts.
  void on_answer(const WorkerInfo& worker, std::optional<Standing> standing);
  bool is_done() const { return missing_ == 0; }

  /// Of those that have taken this worker off their list, the one of the weightiest side, if that
  /// outweighs the side of `self`: then it is out. That are those who have it on theirs, whatever
  /// its own list says, which may be old.
  std::optional<WorkerInfo> evicted_by(const WorkerInfo& self) const;

 private:
  struct Answer {
    WorkerInfo worker;
    bool has_come = false;
    std::optional<Standing> standing;
  };
  std::map<Incarnation, Answer> answers_;
  std::size_t missing_ = 0;
};

}  // namespace sinew::internal
