#include "sinew/tests/membership/support/simulation.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sinew/tests/membership/support/sim_job.h"

namespace sinew::internal::sim {
namespace {

constexpr nanoseconds kTurmoil = std::chrono::minutes(3);
// Suspicions, leases, invitations and the supervisor's pauses, several times over.
constexpr nanoseconds kPeace = seconds(100);

/// What happens to a job is drawn from a seed.
class Turmoil {
 public:
  Turmoil(const Plan& plan, std::uint64_t seed, bool narrate)
      : plan_(plan), chance_(seed), job_(plan, 3 + chance_.below(4), chance_, narrate) {
    job_.network().pidfds = chance_.one_in(2);
    job_.pause = [this] {
      return chance_.one_in(4) ? chance_.between(seconds(3), seconds(20))
                               : chance_.between(milliseconds(50), seconds(3));
    };
    for (std::size_t i = 0; i < job_.size(); ++i) {
      job_.slot(i).starts = job_.clock().now() + chance_.between(nanoseconds(0), seconds(2));
    }
  }

  Report run() {
    const TimePoint turmoil_ends = job_.clock().now() + kTurmoil;
    TimePoint next_trouble = job_.clock().now() + seconds(5);
    while (job_.clock().now() < turmoil_ends && job_.ok()) {
      job_.step();
      if (job_.clock().now() < next_trouble) continue;
      trouble();
      next_trouble = job_.clock().now() + chance_.between(milliseconds(10), seconds(4));
    }
    job_.make_peace();
    const TimePoint end = job_.clock().now() + kPeace;
    while (job_.clock().now() < end && job_.ok()) job_.step();
    if (job_.ok()) job_.judge();
    return job_.report();
  }

 private:
  void trouble() {
    const std::size_t kinds = plan_.trouble == Trouble::kDeaths  ? 2
                              : plan_.trouble == Trouble::kStops ? 4
                                                                 : 7;
    Slot& slot = job_.slot(chance_.below(job_.size()));
    const bool may_die = plan_.trouble != Trouble::kNoDeaths;
    switch (may_die ? chance_.below(kinds) : 2 + chance_.below(kinds - 2)) {
      case 0:
        if (slot.process == nullptr) return;
        ++job_.report().kills;
        return job_.kill(slot);
      case 1:
        return job_.leave(slot);
      case 2:
      case 3:
        return stop(slot);
      case 4:
        ++job_.report().cuts;
        return cut();
      default:
        job_.heal();
    }
  }

  void stop(Slot& slot) {
    if (!slot.runs()) return;
    job_.stop(slot, chance_.one_in(2) ? chance_.between(milliseconds(100), kLease)
                                      : chance_.between(kLease, Job::kLongStop));
  }

  void cut() {
    std::set<int> side;
    for (std::size_t i = 0; i < job_.size(); ++i) {
      if (chance_.one_in(2)) side.insert(static_cast<int>(i));
    }
    const bool one_way = chance_.one_in(3);
    job_.say(absl::StrCat("cut ", absl::StrJoin(side, ","), one_way ? " one way" : ""));
    for (const int in : side) {
      for (std::size_t i = 0; i < job_.size(); ++i) {
        const int other = static_cast<int>(i);
        if (side.count(other) > 0) continue;
        job_.cut(in, other);
        if (!one_way) job_.cut(other, in);
      }
    }
  }

  const Plan plan_;
  Chance chance_;
  Job job_;
};

}  // namespace

Report simulate(const Plan& plan, std::uint64_t seed, bool narrate) {
  return Turmoil(plan, seed, narrate).run();
}

}  // namespace sinew::internal::sim
