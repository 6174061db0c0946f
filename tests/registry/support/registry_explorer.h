#pragma once

#include <cstddef>
#include <ostream>
#include <string>
#include <vector>

#include "sinew/tests/registry/support/world.h"

namespace sinew::internal::registry {

struct Fault {
  enum class Kind {
    kLose,          // the next message is lost
    kDelay,         // late, after others
    kDelayForLong,  // and after its sender's end
    kKill,          // started again at once
    kKillForLong,   // or after more than a lease
    kStop,          // for less than a lease
    kStopForLong,
    kCut,  // one way, for less than a lease
    kCutForLong,
    kCutBothForLong,
    kLeave,
  };
  Kind kind = Kind::kLose;
  int node = 0;
  int other = 0;
};
std::string text_of(const Fault& fault);

struct Exploring {
  const char* name = "";
  Setup setup;
  /// That happen in one run at most; before every so manyth step.
  int faults = 1;
  std::size_t stride = 1;
  /// Those that may happen; none: all.
  std::vector<Fault::Kind> kinds;
  /// From the start of the job on, and until when.
  Time from{0};
  Time until = seconds(4);
};

inline std::ostream& operator<<(std::ostream& out, const Exploring& exploring) {
  return out << exploring.name;
}

struct Explored {
  std::size_t runs = 0;
  std::size_t steps = 0;
  std::size_t events = 0;
  std::string violation;
};

/// Each way to have the faults happen, each before each step (a message arrives, or a beat has
/// passed), with the judge's rules in each run. The first violation ends it.
Explored explore(const Exploring& exploring);
/// Runs `world` to its end: nothing happens any more but what follows. Empty: all rules held.
std::string finish(World& world);

/// Small worlds. `level` 0: a minute; 1: an hour.
std::vector<Exploring> explorings(int level);

}  // namespace sinew::internal::registry
