#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "sinew/tests/registry/support/world.h"

namespace sinew::internal::registry {

struct Trouble {
  const char* name = "";
  Setup setup;
  /// What happens in a second, on average.
  double kills = 0, stops = 0, cuts = 0, losses = 0, leaves = 0, lies = 0;
  /// The registrar is among those that are killed or stopped.
  bool strikes_registrar = true;
  /// Nobody else is.
  bool strikes_workers = true;
  /// Liars give the names of others for their own.
  bool claims = false;
  Time lasts = seconds(30);
};

inline std::ostream& operator<<(std::ostream& out, const Trouble& trouble) {
  return out << trouble.name;
}

struct Simulated {
  std::string violation;
  World::Counts counts;
  int faults = 0;
};

/// One job, with faults that are drawn; and how it ends.
Simulated simulate(const Trouble& trouble, std::uint64_t seed, bool tells = false);

}  // namespace sinew::internal::registry
