#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/membership/member_codec.h"

namespace sinew::internal {

/// Who has left the job or is lost, as far as gathers care: also when no list names it any more,
/// for a while, since it may have come to a gather before. Not thread-safe.
class Departures {
 public:
  /// Of those whom nobody needs, so many are remembered: the latest.
  static constexpr std::size_t kMost = 64;

  /// The first report of an incarnation counts.
  void add(const WorkerInfo& worker, Departure how);
  bool contains(Incarnation incarnation) const { return find(incarnation).has_value(); }
  std::optional<Departure> find(Incarnation incarnation) const;
  /// Who had the name last.
  std::optional<WorkerInfo> last_of(std::string_view name) const;
  /// Forgets the oldest that are not among `needed`, if there are too many of them; returns these.
  std::vector<Incarnation> forget(const std::set<Incarnation>& needed);

 private:
  struct Departed {
    WorkerInfo worker;
    Departure how;
  };
  std::deque<Departed> departed_;
};

}  // namespace sinew::internal
