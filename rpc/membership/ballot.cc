#include "sinew/rpc/membership/ballot.h"
#include "sinew/rpc/membership/membership_bugs.h"

#include <algorithm>
#include <utility>

namespace sinew::internal {

Support support_of(const MemberView& view, const std::set<Incarnation>& present,
                   const std::set<Incarnation>& dead) {
  std::size_t voters = 0;
  std::size_t here = 0;
  bool has_lowest = false;
  // Sorted by rank.
  for (const Member& member : view.members) {
    if (dead.count(member.worker.incarnation) > 0) continue;
    const bool is_here = present.count(member.worker.incarnation) > 0;
    if (voters == 0) has_lowest = is_here;
    ++voters;
    if (is_here) ++here;
  }
  // Nobody is left to decide otherwise.
  if (SINEW_MEMBERSHIP_BUG(kMinorityDecides)) return Support::kMajority;
  if (voters == 0 || 2 * here > voters) return Support::kMajority;
  return 2 * here == voters && has_lowest ? Support::kHalf : Support::kNotEnough;
}

void Ballot::on_view(const MemberView& view) {
  view_ = view;
  if (proposed_.has_value() && proposed_->version <= view.version) proposed_.reset();
  voted_term_ = std::max(voted_term_, term_of(view.version));
  for (auto each = dead_.begin(); each != dead_.end();) {
    const bool is_listed =
        std::any_of(view.members.begin(), view.members.end(),
                    [&](const Member& member) { return member.worker.incarnation == *each; });
    each = is_listed ? std::next(each) : dead_.erase(each);
  }
}

bool Ballot::accept(const MemberView& proposed) {
  const bool is_new = proposed.version >= latest().version && proposed.version > view_.version;
  if (!is_new || term_of(proposed.version) < voted_term_) return false;
  voted_term_ = term_of(proposed.version);
  proposed_ = proposed;
  return true;
}

void Ballot::learn(MemberView accepted) {
  if (term_of(accepted.version) > voted_term_ + kMostTermsMissed) return;
  if (accepted.version > latest().version) proposed_ = std::move(accepted);
}

bool Ballot::vote(std::uint64_t term, std::uint64_t version) {
  if (term <= voted_term_ || term > kLastTerm || version < latest().version) return false;
  voted_term_ = term;
  return true;
}

std::uint64_t Ballot::stand() {
  voted_term_ = std::max(voted_term_, term_of(latest().version)) + 1;
  votes_ = {self_};
  accepted_by_.clear();
  return voted_term_;
}

void Ballot::on_vote(std::uint64_t term, Incarnation voter) {
  if (term == voted_term_) votes_.insert(voter);
}

void Ballot::propose(const MemberView& next) {
  proposed_ = next;
  accepted_by_ = {self_};
  for (const Member& member : next.members) {
    if (find_process(view_, member.worker) == nullptr) {
      accepted_by_.insert(member.worker.incarnation);
    }
  }
}

void Ballot::on_accepted(std::uint64_t version, Incarnation member) {
  if (proposed_.has_value() && proposed_->version == version) accepted_by_.insert(member);
}

Support Ballot::support_by(const std::set<Incarnation>& present) const {
  const Support of_view = support_of(view_, present, dead_);
  return proposed_.has_value() ? std::min(of_view, support_of(*proposed_, present, dead_))
                               : of_view;
}

std::vector<std::string> Ballot::silent() const {
  std::vector<std::string> names;
  for (const Member& member : view_.members) {
    const Incarnation who = member.worker.incarnation;
    const bool has_said = accepted_by_.count(who) > 0 || votes_.count(who) > 0;
    if (!has_said && !is_dead(who)) names.push_back(member.worker.name);
  }
  return names;
}

}  // namespace sinew::internal
