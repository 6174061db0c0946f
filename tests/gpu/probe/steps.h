#pragma once

#include <vector>

#include "kit.h"

namespace probe {

struct Step {
  const char* name;
  /// What it finds out.
  const char* question;
  double limit_s;
  void (*run)(Pair& pair);
  /// One rank ends early: its status is not asked for, and the other one does not wait for it.
  bool ends_apart = false;
  /// "NAME=value" for both processes; may be null.
  const char* environment = nullptr;
};

/// In their order.
const std::vector<Step>& steps();

}  // namespace probe
