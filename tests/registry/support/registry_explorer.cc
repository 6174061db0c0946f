#include "sinew/tests/registry/support/registry_explorer.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"

namespace sinew::internal::registry {
namespace {

using Kind = Fault::Kind;

constexpr Time kSoon = milliseconds(200);
constexpr Time kLate = kLease * 2;
constexpr Time kShort = kLease / 2;
constexpr const char* kNames[] = {"lose",          "delay",         "delay for long", "kill",
                                  "kill for long", "stop",          "stop for long",  "cut",
                                  "cut for long",  "cut both ways", "leave"};

class Explorer {
 public:
  explicit Explorer(const Exploring& exploring) : exploring_(exploring) {
    World world(exploring.setup);
    for (int node = world.nodes() - 1; node >= 0; --node) {
      const bool is_twin = exploring.setup.has_twin && node == exploring.setup.workers - 1;
      world.start_at(node, is_twin ? seconds(3) : milliseconds(10 * (world.nodes() - node)));
    }
    go(std::move(world), exploring.faults, "");
  }
  const Explored& result() const { return result_; }

 private:
  void go(World world, int left, const std::string& path) {
    world.run_until(std::max(world.now(), exploring_.from));
    Time beat = world.now();
    std::size_t step = 0;
    while (left > 0 && result_.violation.empty()) {
      const bool is_place = world.is_message_next() || world.now() >= beat;
      if (is_place) {
        if (world.now() >= beat) beat = world.now() + kBeat;
        if (step++ % exploring_.stride == 0)
          branch(world, left, absl::StrCat(path, path.empty() ? "" : ", ", step, ":"));
      }
      if (!world.step(exploring_.until)) break;
    }
    if (path.empty()) result_.steps += step;
    if (!result_.violation.empty()) return;
    const std::string violation = finish(world);
    ++result_.runs;
    result_.events += world.counts().events;
    if (!violation.empty()) result_.violation = absl::StrCat(path, ": ", violation);
  }

  void branch(const World& world, int left, const std::string& path) {
    for (const Fault& fault : faults_in(world)) {
      if (!result_.violation.empty()) return;
      World next = world;
      strike(next, fault);
      go(std::move(next), left - 1, path + text_of(fault));
    }
  }

  std::vector<Fault> faults_in(const World& world) const {
    std::vector<Fault> faults;
    const auto add = [&](Fault fault) {
      const auto& kinds = exploring_.kinds;
      if (kinds.empty() || std::count(kinds.begin(), kinds.end(), fault.kind) > 0)
        faults.push_back(fault);
    };
    if (world.is_message_next()) {
      for (const Kind kind : {Kind::kLose, Kind::kDelay, Kind::kDelayForLong}) add({kind});
    }
    for (int node = 0; node < world.nodes(); ++node) {
      if (!world.is_alive(node)) continue;
      for (const Kind kind : {Kind::kKill, Kind::kKillForLong, Kind::kStop, Kind::kStopForLong})
        add({kind, node});
      if (node < world.workers()) add({Kind::kLeave, node});
      for (int other = 0; other < world.nodes(); ++other) {
        if (other == node) continue;
        for (const Kind kind : {Kind::kCut, Kind::kCutForLong}) add({kind, node, other});
        if (other > node) add({Kind::kCutBothForLong, node, other});
      }
    }
    return faults;
  }

  static void strike(World& world, const Fault& fault) {
    const int node = fault.node;
    switch (fault.kind) {
      case Kind::kLose:
        return world.lose_next();
      case Kind::kDelay:
        return world.delay_next(milliseconds(700));
      case Kind::kDelayForLong:
        return world.delay_next(kLease + seconds(1));
      case Kind::kKill:
      case Kind::kKillForLong:
        world.kill(node);
        return world.start_at(node, world.now() + (fault.kind == Kind::kKill ? kSoon : kLate));
      case Kind::kStop:
        return world.stop(node, kShort);
      case Kind::kStopForLong:
        return world.stop(node, kLate);
      case Kind::kCut:
        return world.cut(node, fault.other, kShort);
      case Kind::kCutBothForLong:
        world.cut(fault.other, node, kLate);
        [[fallthrough]];
      case Kind::kCutForLong:
        return world.cut(node, fault.other, kLate);
      case Kind::kLeave:
        return world.leave(node);
    }
  }

  const Exploring exploring_;
  Explored result_;
};

}  // namespace

std::string text_of(const Fault& fault) {
  return absl::StrCat(kNames[static_cast<int>(fault.kind)], " ", fault.node, " ", fault.other);
}

std::string finish(World& world) {
  constexpr Time kKnown = kLease + 2 * kBeat + kSettle + 4 * kTick;
  world.run_until(std::max(world.now(), world.last_fault() + kKnown));
  if (world.violation().empty()) world.judge_lists();
  world.run_until(world.last_fault() + 3 * kLease);
  if (world.violation().empty()) world.judge_end();
  return world.violation();
}

Explored explore(const Exploring& exploring) { return Explorer(exploring).result(); }

std::vector<Exploring> explorings(int level) {
  const std::vector<Kind> deaths = {Kind::kKill, Kind::kKillForLong, Kind::kStopForLong,
                                    Kind::kCutBothForLong, Kind::kLose};
  Setup two;
  two.workers = 2;
  Setup three;
  Setup alone;
  alone.is_alone = true;
  Setup fixed = three;
  fixed.world_size = 3;
  Setup fixed_alone = alone;
  fixed_alone.world_size = 3;
  Setup silent = alone;
  silent.has_proofs = false;
  Setup one_end = alone;
  one_end.both_notice = false;
  Setup twin = alone;
  twin.workers = 4;
  twin.has_twin = true;
  std::vector<Exploring> all = {
      {"TwoOpen", two, 1, 1, {}},
      {"ThreeOpen", three, 1, 1, {}},
      {"ThreeFixed", fixed, 1, 1, {}},
      {"ThreeOpenAlone", alone, 1, 1, {}},
      {"ThreeFixedAlone", fixed_alone, 1, 1, {}},
      {"WithoutProofs", silent, 1, 1, {}},
      {"OneEndNotices", one_end, 1, 1, {}},
      {"Twin", twin, 1, 1, {}},
      {"TwoOpenTwice", two, 2, 7, deaths},
      {"TwinTwice", twin, 2, 16, deaths},
  };
  if (level > 0) {
    for (Exploring each : {all[1], all[2], all[3], all[4], all[7]}) {
      each.faults = 2;
      each.stride = 5;
      each.name = each.setup.has_twin ? "TwinTwiceAll"
                  : each.setup.world_size == 0
                      ? (each.setup.is_alone ? "ThreeOpenAloneTwice" : "ThreeOpenTwice")
                      : (each.setup.is_alone ? "ThreeFixedAloneTwice" : "ThreeFixedTwice");
      all.push_back(each);
    }
  }
  return all;
}

}  // namespace sinew::internal::registry
