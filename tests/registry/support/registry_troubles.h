#pragma once

#include <vector>

#include "sinew/tests/registry/support/registry_simulation.h"

namespace sinew::internal::registry {

/// What is simulated.
inline std::vector<Trouble> troubles() {
  Setup open;
  open.workers = 6;
  Setup fixed = open;
  fixed.world_size = 6;
  Setup alone = open;
  alone.is_alone = true;
  Setup fixed_alone = fixed;
  fixed_alone.is_alone = true;
  Setup silent = alone;
  silent.has_proofs = false;
  Setup one_end = alone;
  one_end.both_notice = false;
  Setup twin = alone;
  twin.has_twin = true;
  Setup lied_to = alone;
  lied_to.workers = 8;
  lied_to.liars = 1;
  Setup guest = alone;
  guest.has_guest = true;
  std::vector<Trouble> all = {
      {"Open", open, 0.3, 0.2, 0, 0.5, 0.1},
      {"OpenCuts", open, 0.1, 0.1, 0.2, 0.5, 0.1},
      {"Fixed", fixed, 0.3, 0.2, 0.1, 0.5, 0},
      {"Alone", alone, 0.3, 0.2, 0.2, 0.5, 0.1},
      {"FixedAlone", fixed_alone, 0.3, 0.2, 0.2, 0.5, 0.1},
      {"WithoutProofs", silent, 0.3, 0.2, 0.2, 0.5, 0.1},
      {"OneEndNotices", one_end, 0.3, 0.2, 0.2, 0.5, 0.1},
      {"Twin", twin, 0.3, 0.2, 0.2, 0.5, 0.1},
  };
  Trouble lies{"Lies", lied_to, 0.3, 0.2, 0, 0, 0.1, 40};
  all.push_back(lies);
  lies.name = "LiesOfGuests";
  lies.setup = guest;
  all.push_back(lies);
  Trouble claims{"Claims", lied_to, 0.3, 0, 0, 0, 0, 40};
  claims.strikes_workers = false;
  claims.claims = true;
  all.push_back(claims);
  claims.name = "ClaimsOfGuests";
  claims.setup = guest;
  all.push_back(claims);
  return all;
}

}  // namespace sinew::internal::registry
