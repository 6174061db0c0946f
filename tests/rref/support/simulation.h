#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace sinew::internal::ledger {

/// What one simulated job did; sums over seeds show that nothing was left out.
struct SimulationReport {
  std::uint64_t seed = 0;
  std::size_t events = 0;
  std::size_t created = 0;    // values that came to be at an owner
  std::size_t received = 0;   // records taken in
  std::size_t uses = 0;       // uses that reached their value
  std::size_t forgeries = 0;  // hostile messages tried
  std::size_t crashes = 0;
  std::size_t fences = 0;  // ends of a lease between two live workers included
  std::size_t left = 0;    // graceful leaves
  /// Empty when every invariant held; else which one broke, and when.
  std::string violation;

  void add(const SimulationReport& other);
};

/// Runs one whole job in virtual time: several workers, each with ledger, links and leases,
/// random programs, a network that drops, repeats, reorders, delays and partitions (control
/// messages arrive once all the same, as over a link, but in any order), crashes, restarts under
/// the same name, and hostile messages. Afterwards the network heals, all handles
/// go, and every table must be empty. The same seed gives the same run everywhere.
SimulationReport simulate(std::uint64_t seed);

}  // namespace sinew::internal::ledger
