#pragma once

namespace sinew::testing {

/// How many of `count` drawn cases a test runs: a tenth under ThreadSanitizer, with which each of
/// them takes ten times as long.
constexpr int repetitions(int count) {
#ifdef __SANITIZE_THREAD__
  return count / 10;
#else
  return count;
#endif
}

}  // namespace sinew::testing
