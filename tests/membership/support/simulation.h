#pragma once

#include <cstdint>
#include <string>

namespace sinew::internal::sim {

/// kSeeds: over TCP at two addresses, each of a founder.
enum class Meeting { kTcp, kSeeds, kFile };
enum class Size { kFixed, kOpen };

/// What may happen to the workers.
enum class Trouble {
  /// They are killed and started again, and leave.
  kDeaths,
  /// Also stopped, for shorter and for longer than a lease.
  kStops,
  /// And the network is cut, in one or both directions.
  kCuts,
  /// Stops and cuts alone: nobody dies, and who is evicted stays so.
  kNoDeaths,
};

struct Plan {
  Meeting meeting = Meeting::kTcp;
  Size size = Size::kOpen;
  Trouble trouble = Trouble::kCuts;
};

struct Report {
  /// What a rule of membership does not allow, or nothing.
  std::string violation;
  /// What happened.
  int kills = 0;
  int stops = 0;
  int cuts = 0;
  int leaves = 0;
  int starts = 0;
  int evictions = 0;
  int freezes = 0;
  /// In the end nobody was in: where nobody is started again.
  bool all_out = false;
};

/// Three to six workers whom a supervisor starts again, in virtual time: three minutes in which
/// what the plan allows happens to them at random, and then peace. `narrate`: prints each event.
Report simulate(const Plan& plan, std::uint64_t seed, bool narrate = false);

}  // namespace sinew::internal::sim
