#pragma once

#include <sys/types.h>

#include <utility>

#include "sinew/launch/process_end.h"
#include "sinew/rpc/base/error.h"

namespace sinew {

/// The failure that ended spawned processes: the first one of them.
///
/// After an exception in that process code(), type_name() and remote_message() are the exception's;
/// otherwise code() is kAborted, or says why it could not be started.
class SpawnError : public RpcError {
 public:
  enum class Cause { kException, kEnd };

  SpawnError(ErrorInfo info, int rank, pid_t pid, ProcessEnd end, Cause cause)
      : RpcError(std::move(info)), rank_(rank), pid_(pid), end_(end), cause_(cause) {}

  /// Its rank among the processes that were spawned together (LOCAL_RANK).
  int rank() const { return rank_; }
  /// -1: it could not be started.
  pid_t pid() const { return pid_; }
  /// How the process ended.
  const ProcessEnd& end() const { return end_; }
  /// Whether the function threw; if not, the process was ended, or ended itself.
  Cause cause() const { return cause_; }

 private:
  int rank_;
  pid_t pid_;
  ProcessEnd end_;
  Cause cause_;
};

}  // namespace sinew
