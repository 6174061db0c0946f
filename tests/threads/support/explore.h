#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sinew::internal::sim {

/// Visits all states of a model that can be reached from `first`; what is broken in one, and the
/// steps that led there, or empty. `states`, if not null: how many there were.
template <class Model>
std::string explore_from(const Model& first, std::size_t* states) {
  struct Way {
    std::size_t from = 0;
    std::string step;
  };
  std::vector<Way> ways(1);
  // Those that have not been looked at; the first one was reached by the way `at`.
  std::deque<Model> models = {first};
  std::unordered_set<std::string> known = {first.key()};
  std::string wrong;
  std::size_t at = 0;
  for (; !models.empty(); ++at) {
    const Model model = std::move(models.front());
    models.pop_front();
    wrong = model.broken();
    if (wrong.empty()) wrong = model.settle();
    if (!wrong.empty()) break;
    model.each_next([&](const Model& next, const std::string& step) {
      if (!known.insert(next.key()).second) return;
      models.push_back(next);
      ways.push_back({at, step});
    });
  }
  if (states != nullptr) *states = ways.size();
  if (wrong.empty()) return "";
  std::vector<std::string> steps;
  for (; at > 0; at = ways[at].from) steps.insert(steps.begin(), ways[at].step);
  return absl::StrCat(wrong, " after: ", absl::StrJoin(steps, ", "));
}

}  // namespace sinew::internal::sim
