#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace sinew::internal::link_model {

/// What one simulated job did; sums over seeds show that nothing was left out.
struct SimulationReport {
  std::size_t events = 0;
  std::size_t calls = 0;
  std::size_t replies = 0;
  std::size_t cancelled = 0;
  /// Calls that ended with their link.
  std::size_t lost = 0;
  std::size_t connections = 0;
  std::size_t crashes = 0;
  std::size_t leaves = 0;
  std::size_t suspensions = 0;
  std::size_t cuts = 0;
  std::size_t links_ended = 0;
  /// Empty when every invariant held; else which one broke.
  std::string violation;

  void add(const SimulationReport& other);
};

/// Runs one whole job of five workers in virtual time: calls that make calls, cancels, a network
/// that delays, breaks, swallows, is cut in one direction or in two, workers that die and come back
/// or do not run for a while, clocks and leases that differ. Afterwards the network behaves: then
/// every call must end and nothing be kept. The same seed gives the same run everywhere.
SimulationReport simulate(std::uint64_t seed);

}  // namespace sinew::internal::link_model
