#pragma once

#include <sys/types.h>

#include "sinew/rpc/base/internal/file_descriptor.h"

namespace sinew::internal {

/// A small process that outlives this one, however it ends, to kill the process groups that are
/// left: the kernel ends only what this process has started itself, and not what that has started.
/// Not thread-safe.
class OrphanGuard {
 public:
  /// To be called while this process has one thread. Throws RpcError kResourceExhausted.
  OrphanGuard();
  /// Kills the groups that are left.
  ~OrphanGuard();

  /// Where a process writes its group's number (a pid_t), or that negated: then it is no more.
  int descriptor() const { return groups_.number(); }
  /// The group has ended, and its number may be another's soon.
  void forget(pid_t group) const;
  /// Whether the guard has also got a signal that this process has just got. No sender means the
  /// guard alone, so such a signal has reached all processes of the job. Takes 0.1 s where it has
  /// not.
  bool gets(int signal) const;

 private:
  FileDescriptor groups_;
  pid_t pid_ = -1;
};

}  // namespace sinew::internal
