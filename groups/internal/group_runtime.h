#pragma once

#include "sinew/rpc/base/process_life.h"
#include "sinew/rpc/base/threads/executor.h"
#include "sinew/rpc/base/threads/timer_queue.h"

namespace sinew::internal {

/// The threads that all groups and stores of a process share. Never destroyed: Gloo's own threads
/// and users' statics may come across it while the process ends.
class GroupRuntime {
 public:
  /// Throws RpcError kResourceExhausted when its threads cannot be started, kFailedPrecondition in
  /// a process that was forked from one where it works.
  static GroupRuntime& get();

  /// Runs what follows from the ends of operations, users' continuations among it, and waits for
  /// operations that have no other way to tell their end (in an Executor::BlockingScope).
  Executor& executor() { return executor_; }
  TimerQueue& timers() { return timers_; }

 private:
  GroupRuntime();

  const ProcessBound process_;
  Executor executor_;
  TimerQueue timers_;
};

}  // namespace sinew::internal
