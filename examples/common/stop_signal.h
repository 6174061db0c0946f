#pragma once

#include <functional>
#include <mutex>

#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/stop_signal.h"

namespace examples {

/// What a program does that is asked to end, as whoever deploys it does. There is one of it in a
/// process at a time. Thread-safe.
class StopSignal {
 public:
  /// Until then() the process ends at once, with stopped_status().
  StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  /// `on_stop` runs on a thread of this object, where it may lock and wait; or in this call, if the
  /// signal has come before. Empty: the process ends at once. A second stop ends it anyhow
  /// (sinew::StopSignal).
  void then(std::function<void()> on_stop);

  /// Whether the signal has come, for whoever has to be told by nobody.
  static bool requested() { return sinew::StopSignal::requested(); }

 private:
  void on_signal();

  std::mutex mutex_;
  std::function<void()> on_stop_;
  bool has_come_ = false;
  // Last: its thread uses all else.
  sinew::StopSignal signal_;
};

/// Whether the others have ended or left: what a program sees whose job is asked to end with it.
/// Any other error is one, whoever is asked to end.
bool is_end_of_others(const sinew::RpcError& error);

/// What a program ends with that was asked to end before its task was done: 0, or what
/// SINEW_EXAMPLES_STOPPED_STATUS says, for schedulers to whom 0 means that nothing is left to do;
/// 2, with a line on stderr, if that is no number from 0 to 255.
int stopped_status();

}  // namespace examples
