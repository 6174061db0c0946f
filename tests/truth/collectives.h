#pragma once

#include "sinew/tests/truth/row.h"

namespace sinew::testing {

/// Outputs that share memory with each other, with themselves, and with inputs.
void add_shared_memory(TruthRows& rows);
/// MIN, MAX and the others of NaN, infinities and zeros.
void add_nan(TruthRows& rows);
void add_bools(TruthRows& rows);
/// Types at their limits, empty tensors, tensors without dimensions, views, parts without elements.
void add_values(TruthRows& rows);

/// All of these.
inline TruthRows collectives() {
  TruthRows rows;
  add_shared_memory(rows);
  add_nan(rows);
  add_bools(rows);
  add_values(rows);
  return rows;
}

}  // namespace sinew::testing
