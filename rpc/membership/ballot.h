#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/membership/member_codec.h"

namespace sinew::internal {

/// How many of the members of a list are behind something.
enum class Support {
  kNotEnough,
  /// Half of those that are not dead, with the one of lowest rank: enough if nobody else answers.
  kHalf,
  /// More than half of those that are not dead; anybody where all are dead.
  kMajority,
};
Support support_of(const MemberView& view, const std::set<Incarnation>& present,
                   const std::set<Incarnation>& dead);

/// The high half of a list's version: the coordinators that there have been.
inline std::uint64_t term_of(std::uint64_t version) { return version >> 32; }
inline constexpr std::uint64_t kLastTerm = 0xffffffff;
/// Workers stand twice a second at most: who has slept for three months has missed no more.
inline constexpr std::uint64_t kMostTermsMissed = std::uint64_t{1} << 24;
inline std::uint64_t first_version_of(std::uint64_t term) { return term << 32; }

/// How a fixed world agrees on its list of members, so that no two parts of it go on each on its
/// own. A list is put in force when enough of the list before, and of itself, have accepted it; a
/// coordinator leads a term when enough have voted for it, each member once per term and for
/// nobody who knows less than the voter. (Raft's elections and joint consensus, Ongaro and
/// Ousterhout 2014, with the list as the only state.) Each worker has one. Pure; not thread-safe.
class Ballot {
 public:
  explicit Ballot(Incarnation self) : self_(self) {}

  /// That list is in force.
  void on_view(const MemberView& view);
  /// Proved: it has no vote any more. Those that merely do not answer have.
  void on_dead(Incarnation member) { dead_.insert(member); }
  bool is_dead(Incarnation member) const { return dead_.count(member) > 0; }
  /// The newest that this worker has accepted, be it in force or not.
  const MemberView& latest() const { return proposed_.has_value() ? *proposed_ : view_; }

  /// A coordinator proposes a list. False: this worker knows a newer one, or has voted in a later
  /// term.
  bool accept(const MemberView& proposed);
  /// Somebody else has accepted that: a candidate takes it over if it is newer. Not if it is of a
  /// term that is made up, since terms come to an end.
  void learn(MemberView accepted);
  /// A candidate for `term` asks for this worker's vote; the newest list that it has accepted has
  /// that version. False: it gets none.
  bool vote(std::uint64_t term, std::uint64_t version);

  /// This worker stands for a new term, which is returned, and votes for itself.
  std::uint64_t stand();
  /// The latest in which it has voted.
  std::uint64_t term() const { return voted_term_; }
  void on_vote(std::uint64_t term, Incarnation voter);
  Support support() const { return support_by(votes_); }

  /// As the coordinator. A proposal replaces the one before. Those in it that join accept it: they
  /// have asked for it.
  void propose(const MemberView& next);
  void on_accepted(std::uint64_t version, Incarnation member);
  bool has_accepted(Incarnation member) const { return accepted_by_.count(member) > 0; }
  /// What is proposed and not yet in force.
  const std::optional<MemberView>& proposed() const { return proposed_; }
  Support acceptance() const {
    return proposed_.has_value() ? support_by(accepted_by_) : Support::kNotEnough;
  }

  /// Names of those without whom nothing is decided or elected.
  std::vector<std::string> silent() const;

 private:
  // Of the list in force, and of what is proposed.
  Support support_by(const std::set<Incarnation>& present) const;

  const Incarnation self_;
  MemberView view_;
  std::optional<MemberView> proposed_;
  std::uint64_t voted_term_ = 0;
  std::set<Incarnation> dead_;
  // Of the term that this worker stands for, and of its proposal.
  std::set<Incarnation> votes_;
  std::set<Incarnation> accepted_by_;
};

}  // namespace sinew::internal
