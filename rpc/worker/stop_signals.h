#pragma once

#include <functional>
#include <thread>

namespace sinew::internal {

/// Says once, while it exists, that the process is asked to end: SIGTERM or SIGINT, as far as the
/// program neither handles nor ignores them itself. The next one ends the process as it would
/// without this. Several may exist: all are told. Thread-safe.
class StopSignals {
 public:
  /// `on_stop` runs on a thread of this object, where it may lock and wait. Throws
  /// std::system_error where there is no thread or descriptor.
  explicit StopSignals(std::function<void()> on_stop);
  /// Waits for it.
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

 private:
  void watch();

  const std::function<void()> on_stop_;
  // What the destructor writes to.
  const int ends_;
  std::thread thread_;
};

}  // namespace sinew::internal
