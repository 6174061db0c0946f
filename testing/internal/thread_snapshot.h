#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

namespace sinew::internal {

/// What the threads of this process did at one moment, but for the one that looks: as the kernel
/// tells it.
class ThreadSnapshot {
 public:
  /// Takes some microseconds a thread.
  static ThreadSnapshot take();

  bool all_sleep() const;
  /// Names of the threads that have run since, or did not sleep then, as "'sinew', 'train'". Empty:
  /// there was a moment between the two at which all slept.
  std::string awake_since(const ThreadSnapshot& earlier) const;

 private:
  struct Thread {
    std::string name;
    bool sleeps = false;
    // How often it was given a processor.
    std::uint64_t turns = 0;
  };

  // By thread id.
  std::map<int, Thread> threads_;
};

}  // namespace sinew::internal
