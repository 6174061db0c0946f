#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "sinew/rpc/membership/registry/registry_messages.h"

namespace sinew::internal::registry {

/// Which of two members that have lost each other goes. Both must say so: a word of one is kept
/// until the other one says the same, or is gone. Pure.
class LossJudge {
 public:
  /// False: it has said too much.
  bool add(Incarnation from, Incarnation about, Time now, std::size_t most);
  void drop(Incarnation member);

  struct Verdict {
    Incarnation goes;
    Incarnation stays;
  };
  /// Somebody of a pair that both ends have been lost for `look` long: the one that has lost more
  /// members than the other one, those before included, so that nobody can put off one after the
  /// other; of two that are equal, the one of higher rank.
  std::optional<Verdict> judge(Time now, Time look,
                               const std::function<std::int32_t(Incarnation)>& rank_of);

 private:
  bool both_say(Incarnation a, Incarnation b) const {
    return said_.count({a, b}) > 0 && said_.count({b, a}) > 0;
  }
  std::size_t losses_of(Incarnation member) const;

  /// Who has said it of whom, since when.
  std::map<std::pair<Incarnation, Incarnation>, Time> said_;
  /// With how many that are gone each was in such a pair.
  std::map<Incarnation, std::size_t> before_;
};

}  // namespace sinew::internal::registry
