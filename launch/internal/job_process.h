#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>

#include "sinew/launch/process_end.h"

namespace sinew::internal {

/// A process of a job, as the one that watches it sees it. Not thread-safe.
class JobProcess {
 public:
  /// What has become of an attempt to start one.
  struct Start {
    std::unique_ptr<JobProcess> process;
    /// If there is none.
    ProcessEnd failure;
  };

  virtual ~JobProcess() = default;

  virtual pid_t pid() const = 0;
  /// Becomes readable when the process has ended, perhaps earlier too. It may be another one after
  /// each take_end(). -1: the system gives none; call take_end() from time to time.
  virtual int descriptor() const = 0;
  /// Nothing happens if it has ended.
  virtual void signal(int number) const = 0;
  /// How it ended; nullopt if it has not. Its process id is free then: call it until it returns
  /// something, once.
  virtual std::optional<ProcessEnd> take_end() = 0;
};

}  // namespace sinew::internal
