#pragma once

namespace sinew::internal {

/// Hold of another process, which the kernel has named. Thread-safe.
class ProcessHold {
 public:
  virtual ~ProcessHold() = default;
  /// Whether it has ended, for certain. False as long as it lives, also where it is stopped; and
  /// for a moment after its sockets have been closed. One system call.
  virtual bool has_ended() const = 0;
};

}  // namespace sinew::internal
