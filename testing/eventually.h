#pragma once

#include <chrono>
#include <string>
#include <thread>

#include "sinew/testing/failure.h"

namespace sinew::testing {

/// How long this kit waits for what must happen. Only a test that fails waits so long.
inline constexpr std::chrono::seconds kPatience{60};

/// Waits until `condition()` is true, for `patience` at most; false if it never was. For what
/// becomes true by itself, without a notice.
///
///     EXPECT_TRUE(eventually([&] { return worker.workers().size() == 2; }));
template <class Condition>
bool eventually(const Condition& condition, std::chrono::nanoseconds patience = kPatience) {
  const auto give_up = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > give_up) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

/// As eventually(), but throws Failure, which says `what` was waited for.
template <class Condition>
void wait_until(const std::string& what, const Condition& condition,
                std::chrono::nanoseconds patience = kPatience) {
  if (eventually(condition, patience)) return;
  throw Failure("waited in vain until " + what);
}

}  // namespace sinew::testing
