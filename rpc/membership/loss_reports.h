#pragma once

#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/membership/directory.h"

namespace sinew::internal {

/// What members tell their coordinator of whom they have lost. Two that have lost each other never
/// talk again, so one of them has to go. Pure; not thread-safe.
class LossReports {
 public:
  void add(Incarnation reporter, Incarnation lost) { reports_.insert({reporter, lost}); }
  /// The others concern nobody any more.
  void keep_only(const std::vector<Member>& members);
  void clear() { reports_.clear(); }

  /// Of `members` the one that has lost most of the others and is lost to them; of several the one
  /// of the highest rank. Nobody where no two have lost each other: one member's word is not
  /// enough.
  std::optional<WorkerInfo> next_to_go(const std::vector<Member>& members) const;

 private:
  bool has(Incarnation reporter, Incarnation lost) const {
    return reports_.count({reporter, lost}) > 0;
  }
  std::set<std::pair<Incarnation, Incarnation>> reports_;
};

}  // namespace sinew::internal
