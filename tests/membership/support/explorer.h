#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "sinew/tests/membership/support/sim_job.h"

namespace sinew::internal::sim {

/// Something that happens to a job right before one of its steps.
struct Fault {
  enum class Kind {
    /// That step comes later than others that would have come after it.
    kDelay,
    /// One worker is killed; started again at once, or late.
    kKill,
    kKillForLong,
    /// One worker does not run, for less than a lease, or for longer.
    kStop,
    kStopForLong,
    kLeave,
    /// Nothing gets from one host to another, or there and back, for longer than a lease.
    kCutOneWay,
    kCut,
  };
  Kind kind;
  int worker = 0;
  int other = 0;
};
std::string text_of(const Fault& fault);

struct Scenario {
  const char* name = "";
  Plan plan;
  std::size_t workers = 2;
  /// When each is started first; one more than these starts with the one before it.
  std::vector<nanoseconds> starts;
  /// Those that may happen.
  std::vector<Fault::Kind> kinds;
  /// How many of them happen in one run, at most.
  int faults = 1;
  /// Who was evicted is started again in the end, whatever has happened.
  bool starts_evicted = true;
  /// From when on, after the start of the job, and until when.
  nanoseconds from{0};
  nanoseconds until = seconds(4);
};

struct Exploration {
  std::size_t runs = 0;
  /// Of the run in which nothing happens.
  std::size_t steps = 0;
  /// Empty when every rule held in every run; else which one did not, and the faults that led
  /// there.
  std::string violation;
};

/// Runs the job once for each way to have the scenario's faults happen, each before each step (a
/// message arrives, somebody is asked at an address, an operation on the file is done, or a while
/// passes without that), and judges the rules of membership in each run. All that is not a fault
/// takes the shortest time. The first violation ends it.
Exploration explore(const Scenario& scenario);

/// The faults of each way that explore() tries have numbers: those of one run, from a violation's
/// text ("12:kill a, 30:delay"), told step by step.
void narrate(const Scenario& scenario, const std::string& faults);

/// Small worlds. `level` 0: two faults for two workers that meet at an address, one elsewhere;
/// seconds. 1: two for all; hours.
std::vector<Scenario> scenarios(int level);

}  // namespace sinew::internal::sim
