#pragma once

#include <functional>
#include <thread>

namespace sinew {

/// Says, while it exists, that this process is asked to end: by SIGTERM, SIGINT or SIGHUP, as far
/// as the program neither handles nor ignores them itself. One stop may come several times, from a
/// service manager, a launcher and a terminal: what comes within 2 s of the first signal is the
/// same stop, also when the object is gone by then. A later one ends the process as it would
/// without this. Several may exist: all are told. Thread-safe.
class StopSignal {
 public:
  /// `on_stop` runs once, on a thread of this object, where it may lock and wait; at once if the
  /// process has been asked before. Throws std::system_error where there is no thread or
  /// descriptor.
  explicit StopSignal(std::function<void()> on_stop);
  /// Waits for it.
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  /// Whether the process has been asked; for loops that poll.
  static bool requested();
  /// Asks it, as a signal does. False, and nothing happens: no such object exists.
  static bool request();

 private:
  void watch();

  const std::function<void()> on_stop_;
  // What the destructor writes to.
  const int ends_;
  std::thread thread_;
};

}  // namespace sinew
