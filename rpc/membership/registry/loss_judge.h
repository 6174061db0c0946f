#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "sinew/rpc/membership/registry/registry_messages.h"

namespace sinew::internal::registry {

/// Which of two members that have lost each other is evicted. Where both report it, it is the one
/// that has lost more members than the other one, earlier losses included, so that no member can
/// have others evicted one after the other; of two that are equal, the one of higher rank. A report
/// that the other one does not confirm evicts its sender, unless most members report the same.
/// Pure.
class LossJudge {
 public:
  /// `look`: how long both must say it. `alone`: how long a word waits for that of the other one.
  LossJudge(Time look, Time alone) : look_(look), alone_(alone) {}

  /// False: it has said too much.
  bool add(Incarnation from, Incarnation about, Time now,
           std::size_t most = std::numeric_limits<std::size_t>::max());
  void take_back(Incarnation from, Incarnation about) { said_.erase({from, about}); }
  /// Forgets all other words.
  void keep_only(const std::set<std::pair<Incarnation, Incarnation>>& words);
  void drop(Incarnation member);

  struct Verdict {
    Incarnation goes;
    Incarnation stays;
    bool both_say_so = false;
  };
  struct Members {
    std::size_t count = 0;
    std::function<std::int32_t(Incarnation)> rank_of;
  };
  /// Of these two; nullopt: none is evicted yet.
  std::optional<Verdict> judge(Incarnation a, Incarnation b, Time now,
                               const Members& members) const;
  /// Of all, the one that goes first.
  std::optional<Verdict> judge(Time now, const Members& members);

 private:
  std::size_t losses_of(Incarnation member) const;
  std::size_t words_about(Incarnation member, Time now) const;

  Time look_;
  Time alone_;
  /// Who has said it of whom, since when.
  std::map<std::pair<Incarnation, Incarnation>, Time> said_;
  /// With how many that are gone each was in such a pair.
  std::map<Incarnation, std::size_t> before_;
};

}  // namespace sinew::internal::registry
