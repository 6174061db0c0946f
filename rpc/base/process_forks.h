#pragma once

namespace sinew::internal {

/// For processes that fork others on purpose. Functions are thread-safe.
class ProcessForks {
 public:
  /// Whether workers could be started in a process that is forked now; see
  /// ProcessLife::may_start_worker().
  static bool may_start_workers();

  /// exit() of this process leaves alone what belongs to shared libraries, as if there were threads
  /// of workers: they are copies of what the one that forked it has made.
  static void skip_libraries_at_exit();
};

}  // namespace sinew::internal
