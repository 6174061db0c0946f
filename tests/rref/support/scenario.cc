#include "sinew/tests/rref/support/scenario.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"

namespace sinew::internal::ledger {

namespace {

void grow(Scenario scenario, const std::vector<int>& trees, std::size_t tree, int forks_left,
          int used_workers, std::size_t tree_start, std::vector<Scenario>& all);

void start_tree(const Scenario& scenario, const std::vector<int>& trees, std::size_t tree,
                int used_workers, std::vector<Scenario>& all) {
  if (tree == trees.size()) {
    all.push_back(scenario);
    return;
  }
  const int limit = scenario.workers;
  for (int owner = 0; owner < std::min(used_workers + 1, limit); ++owner) {
    const int used = std::max(used_workers, owner + 1);
    Scenario own = scenario;
    own.slots.push_back(Slot{owner, -1, Slot::Root::kOwn, owner});
    grow(own, trees, tree, trees[tree], used, scenario.slots.size(), all);
    for (int creator = 0; creator < std::min(used + 1, limit); ++creator) {
      if (creator == owner) continue;
      for (const auto root : {Slot::Root::kCreate, Slot::Root::kCreateFails}) {
        Scenario created = scenario;
        created.slots.push_back(Slot{creator, -1, root, owner});
        grow(created, trees, tree, trees[tree] - 1, std::max(used, creator + 1),
             scenario.slots.size(), all);
      }
    }
  }
}

void grow(Scenario scenario, const std::vector<int>& trees, std::size_t tree, int forks_left,
          int used_workers, std::size_t tree_start, std::vector<Scenario>& all) {
  if (forks_left == 0) {
    start_tree(scenario, trees, tree + 1, used_workers, all);
    return;
  }
  // A child is hung under the last parent or a later one: each tree comes once.
  const int last = scenario.slots.back().parent;
  const std::size_t first = std::max(tree_start, static_cast<std::size_t>(std::max(last, 0)));
  for (std::size_t parent = first; parent < scenario.slots.size(); ++parent) {
    for (int worker = 0; worker < std::min(used_workers + 1, scenario.workers); ++worker) {
      Scenario next = scenario;
      next.slots.push_back(Slot{worker, static_cast<int>(parent), Slot::Root::kOwn, 0});
      grow(next, trees, tree, forks_left - 1, std::max(used_workers, worker + 1), tree_start, all);
    }
  }
}

}  // namespace

std::vector<Scenario> all_scenarios(const std::vector<int>& trees, int workers) {
  std::vector<Scenario> all;
  Scenario empty;
  empty.workers = workers;
  start_tree(empty, trees, 0, 0, all);
  return all;
}

std::string to_text(const Scenario& scenario) {
  std::string text = absl::StrCat(scenario.workers, " workers:");
  for (std::size_t i = 0; i < scenario.slots.size(); ++i) {
    const Slot& slot = scenario.slots[i];
    absl::StrAppend(&text, i == 0 ? " " : ", ", "slot ", i, " on w", slot.worker);
    if (slot.parent >= 0) {
      absl::StrAppend(&text, " from slot ", slot.parent);
    } else if (slot.root == Slot::Root::kNever) {
      absl::StrAppend(&text, " nothing");
    } else if (slot.root == Slot::Root::kOwn) {
      absl::StrAppend(&text, " its own value");
    } else {
      absl::StrAppend(&text,
                      slot.root == Slot::Root::kCreate ? " creates on w" : " fails to create on w",
                      slot.owner);
    }
  }
  return text;
}

}  // namespace sinew::internal::ledger
