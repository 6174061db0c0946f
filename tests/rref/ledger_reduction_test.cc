// The explorer with and without reduction (support/explorer.cc says what is left out, and why
// nothing is missed), compared on bounds that are small enough for both. planted_bugs_test.cc
// compares the two on ledgers with bugs.

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "sinew/tests/rref/support/explorer.h"

namespace sinew::internal::ledger {
namespace {

using Worlds = absl::flat_hash_set<std::uint64_t>;

/// Names worlds alike in different explorations, as far as the slots in `seen` go.
class Names {
 public:
  enum class Budget { kSeen, kIgnored };

  Names(SlotFilter seen, Budget budget) : seen_(std::move(seen)), budget_(budget) {}

  std::uint64_t of(const WorldState& world) {
    std::vector<std::uint64_t> net;
    for (const Letter* letter : world.net) {
      if (letter->packet.slot < 0 || seen_(letter->packet.slot)) net.push_back(of(*letter));
    }
    std::sort(net.begin(), net.end());
    std::vector<std::uint64_t> workers;
    for (const Node* node : world.workers) workers.push_back(of(*node));
    if (budget_ == Budget::kIgnored) return absl::HashOf(workers, net);
    return absl::HashOf(workers, net, world.left.drops, world.left.duplicates, world.left.crashes);
  }

 private:
  std::uint64_t of(const Letter& letter) {
    auto [name, added] = letters_.try_emplace(&letter);
    if (added) name->second = absl::HashOf(letter.packet.text());
    return name->second;
  }

  std::uint64_t of(const Node& node) {
    auto [name, added] = nodes_.try_emplace(&node);
    if (added) name->second = absl::HashOf(node.state.text(seen_));
    return name->second;
  }

  const SlotFilter seen_;
  const Budget budget_;
  absl::flat_hash_map<const Letter*, std::uint64_t> letters_;
  absl::flat_hash_map<const Node*, std::uint64_t> nodes_;
};

bool every_slot(int) { return true; }

bool includes(const Worlds& all, const Worlds& some) {
  return std::all_of(some.begin(), some.end(), [&all](auto one) { return all.contains(one); });
}

// --- Fewer orders --------------------------------------------------------------------------------

struct Explored {
  Worlds worlds;
  Worlds endings;
};

Explored explored(const Scenario& scenario, const Faults& faults, Reduction reduction) {
  Explored found;
  Names names(every_slot, Names::Budget::kSeen);
  // Where faults are late, one that nobody notices is one that has not struck.
  Names ending_names(every_slot, Names::Budget::kIgnored);
  const Exploration result =
      explore(scenario, faults, reduction, [&](const WorldState& world, Progress progress) {
        found.worlds.insert(names.of(world));
        if (progress == Progress::kEnded) found.endings.insert(ending_names.of(world));
      });
  EXPECT_EQ(result.violation, "");
  return found;
}

struct Bound {
  std::vector<int> forks;  // of each reference
  Faults faults;
};

TEST(LedgerReduction, leads_to_the_same_endings_through_fewer_worlds) {
  const Bound bounds[] = {
      {{1}, {1, 1, 1, 0}}, {{2}, {1, 1, 1, 0}}, {{3}, {0, 0, 0, 0}},    {{3}, {1, 0, 0, 0}},
      {{3}, {0, 1, 0, 0}}, {{3}, {0, 0, 1, 0}}, {{1, 1}, {1, 0, 1, 0}}, {{1, 1}, {0, 1, 1, 0}},
  };
  for (const Bound& bound : bounds) {
    std::size_t all = 0;
    std::size_t followed = 0;
    std::size_t endings = 0;
    for (const Scenario& scenario : all_scenarios(bound.forks, 3)) {
      const Explored every = explored(scenario, bound.faults, Reduction::kNone);
      const Explored some = explored(scenario, bound.faults, Reduction::kFull);
      EXPECT_TRUE(includes(every.worlds, some.worlds)) << to_text(scenario);
      EXPECT_EQ(every.endings, some.endings) << to_text(scenario);
      all += every.worlds.size();
      followed += some.worlds.size();
      endings += some.endings.size();
    }
    std::cout << absl::StrJoin(bound.forks, " and ") << " forks: " << followed << " of " << all
              << " worlds, all " << endings << " endings\n";
    EXPECT_LT(followed * 2, all);
  }
}

// --- One reference at a time ---------------------------------------------------------------------

int root_of(const Scenario& scenario, int slot) {
  while (scenario.slots[static_cast<std::size_t>(slot)].parent >= 0) {
    slot = scenario.slots[static_cast<std::size_t>(slot)].parent;
  }
  return slot;
}

/// The scenario in which no reference but one is ever made.
Scenario only(const Scenario& scenario, int root) {
  Scenario one = scenario;
  for (std::size_t i = 0; i < one.slots.size(); ++i) {
    Slot& slot = one.slots[i];
    if (slot.parent < 0 && static_cast<int>(i) != root) slot.root = Slot::Root::kNever;
  }
  return one;
}

Worlds worlds_of(const Scenario& scenario, const Faults& faults, const SlotFilter& seen) {
  Worlds found;
  Names names(seen, Names::Budget::kIgnored);
  const Exploration result =
      explore(scenario, faults, Reduction::kNone,
              [&](const WorldState& world, Progress) { found.insert(names.of(world)); });
  EXPECT_EQ(result.violation, "");
  return found;
}

// References meet in nothing but the end of workers: whoever sees one reference only cannot tell a
// world with two from a world with that one. So what holds for each in a world of its own, within
// one budget of faults, holds for both together: every invariant is about one reference.
TEST(LedgerReduction, two_references_are_two_worlds) {
  const Bound bounds[] = {{{1, 1}, {1, 1, 0, 0}},
                          {{1, 1}, {1, 0, 1, 0}},
                          {{1, 1}, {0, 1, 1, 0}},
                          {{2, 1}, {0, 0, 0, 0}}};
  for (const Bound& bound : bounds) {
    std::size_t together = 0;
    std::size_t apart = 0;
    for (const Scenario& scenario : all_scenarios(bound.forks, 3)) {
      for (int root = 0; root < static_cast<int>(scenario.slots.size()); ++root) {
        if (root_of(scenario, root) != root) continue;
        const SlotFilter seen = [&](int slot) { return root_of(scenario, slot) == root; };
        const Worlds both = worlds_of(scenario, bound.faults, seen);
        const Worlds alone = worlds_of(only(scenario, root), bound.faults, seen);
        EXPECT_EQ(both, alone) << "slot " << root << " in " << to_text(scenario);
        together += both.size();
        apart += alone.size();
      }
    }
    std::cout << absl::StrJoin(bound.forks, " and ") << " forks: " << together
              << " worlds of single references, seen apart " << apart << "\n";
  }
}

}  // namespace
}  // namespace sinew::internal::ledger
