#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace sinew::bench {

/// Runs `measure` in a process of its own, forked from this one, and returns what it returns. So it
/// may fork others itself before it starts threads, and set the environment. Throws
/// std::runtime_error if it fails. This process must have no threads.
std::vector<double> measure_apart(const std::function<std::vector<double>()>& measure);

/// A cgroup whose processes have half a core together, until it goes; by then they must have ended.
/// Throws std::runtime_error where none can be made, which takes root.
class HalfCore {
 public:
  HalfCore();
  ~HalfCore();
  HalfCore(const HalfCore&) = delete;
  HalfCore& operator=(const HalfCore&) = delete;

  /// The calling process, and those that it starts from here on.
  void enter() const;

 private:
  std::string folder_;
};

}  // namespace sinew::bench
