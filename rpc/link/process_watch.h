#pragma once

#include <chrono>
#include <memory>

#include "sinew/rpc/base/boot_clock.h"
#include "sinew/rpc/base/process_hold.h"

namespace sinew::internal {

/// Proof of death (rule L7): looks whether the process at the other end of a link has ended, where
/// there is a ProcessHold of it. A process is not gone yet when its sockets are: so it is looked at
/// often after a break, and ever more seldom. While a connection is up it is looked at too, since a
/// forked child may keep the sockets of a process open that has ended.
///
/// Pure but for the look. Time must not go back. Not thread-safe.
class ProcessWatch {
 public:
  using TimePoint = BootClock::TimePoint;

  static constexpr std::chrono::nanoseconds kFirstPause = std::chrono::milliseconds(1);
  static constexpr std::chrono::nanoseconds kLongestPause = std::chrono::seconds(1);

  /// Who is at the other end, by a connection of the link; null: that one does not know. All
  /// connections of a link are with one process.
  void hold(std::shared_ptr<const ProcessHold> process) {
    if (process != nullptr) process_ = std::move(process);
  }
  /// Whether there is a connection now.
  void set_up(bool is_up, TimePoint now);
  bool is_up() const { return is_up_; }

  /// Looks, if it is time to: true when the process has surely ended. With a connection only when
  /// it still has not come to its end a second after that: what the process sent last, a goodbye
  /// perhaps, is heard before.
  bool has_ended(TimePoint now);
  /// When to look; max() while a connection is up: then whenever something else is to be done.
  TimePoint wake() const;

 private:
  std::shared_ptr<const ProcessHold> process_;
  bool is_up_ = false;
  bool seen_ended_ = false;
  TimePoint look_at_;
  std::chrono::nanoseconds pause_ = kFirstPause;
};

}  // namespace sinew::internal
