#pragma once

#include <functional>
#include <mutex>
#include <thread>

namespace actor_learner {

/// Calls a function when the process is asked to end (SIGINT or SIGTERM). To be made before other
/// threads are, which must not get the signals. Thread-safe.
class StopSignal {
 public:
  /// Until then() the process ends at once, as without this.
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  /// `on_stop` runs on a thread of this object, where it may lock and wait. A second signal ends
  /// the process at once.
  void then(std::function<void()> on_stop);

 private:
  void watch();

  std::mutex mutex_;
  std::function<void()> on_stop_;
  std::thread thread_;
};

}  // namespace actor_learner
