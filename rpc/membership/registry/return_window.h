#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sinew/rpc/membership/registry/registry_messages.h"

namespace sinew::internal::registry {

/// Which members return to a registrar that knows nothing, in the first lease of its life. Members
/// report themselves and the names of others, no lists. A member that is only named is waited for;
/// one that has returned is judged by how many of the others know it. So a member that lies has one
/// vote. Pure.
class ReturnWindow {
 public:
  struct Claim {
    Record record;
    JobInstance instance;
    Version joined;
    int voices = 0;
  };

  ReturnWindow(const Options& options, Time begin) : options_(options), begin_(begin) {}

  /// A member has returned. Its first report counts. `old_registrar` is not waited for: this one
  /// has its place. False: there is no room for it.
  bool add(const Return& from);
  /// Is gone for certain: it is no longer waited for.
  void drop(Incarnation member);

  bool has_come(Incarnation member) const { return claims_.count(member) > 0; }
  bool is_empty() const { return claims_.empty(); }
  const Record* find(Incarnation member) const;
  bool is_over(Time now) const { return now >= begin_ + options_.lease; }
  /// True when it is time to decide the members: the first second is over, and all named ones have
  /// returned or nothing is contested; or the window is over.
  bool is_settled(Time now) const;
  /// Others claim this one's name or rank, or bring another instance of the job.
  bool is_contested(const Claim& claim) const;
  std::vector<Incarnation> claimants() const;
  const Claim& claim_of(Incarnation member) const { return claims_.at(member); }
  /// The member that has returned, or is waited for, with the name or rank that a newcomer wants;
  /// null: none.
  const WorkerInfo* holder_of(const WorkerInfo& wanted) const;

  /// The instance that most have brought; of two the one that is there, or the later one. `here`
  /// members were admitted to `current`.
  JobInstance elect(const std::optional<JobInstance>& current, std::size_t here) const;
  /// Members of an instance that have returned, first those that more of the others know; of two
  /// that are equal, the one that joined later.
  std::vector<Claim> ranked(const JobInstance& instance) const;

 private:
  bool is_awaited(const WorkerInfo& named) const {
    return claims_.count(named.incarnation) == 0 && gone_.count(named.incarnation) == 0;
  }

  Options options_;
  Time begin_;
  std::map<Incarnation, Claim> claims_;
  /// By how many each was named.
  absl::flat_hash_map<WorkerInfo, int> named_;
  std::set<Incarnation> gone_;
};

/// Two of one name or rank cannot both be in.
inline bool conflict(const WorkerInfo& a, const WorkerInfo& b) {
  return a.incarnation != b.incarnation && (a.name == b.name || (a.rank >= 0 && a.rank == b.rank));
}

}  // namespace sinew::internal::registry
