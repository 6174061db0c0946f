#pragma once

#include <chrono>
#include <thread>

namespace sinew::testing {

/// Waits until `condition` is true, up to a minute; false if it never was. For what becomes true by
/// itself but tells nobody.
template <class Condition>
bool eventually(const Condition& condition) {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > give_up) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace sinew::testing
