#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <vector>

namespace sinew {

namespace internal {
class SpawnJob;
}

/// The processes that start_processes() has started. A thread of its own watches them: the first
/// that fails ends the others, even if no thread waits.
///
/// When it is destroyed, processes of the kind kNormal are waited for, as at the end of a program
/// of Python's multiprocessing; those of the kind kDaemon are ended, and so is all when an
/// exception is what destroys it. exit() and every other end of this process ends them.
///
/// Movable; an object that was moved from can only be destroyed or assigned to. Functions are
/// thread-safe.
class ProcessContext {
 public:
  explicit ProcessContext(std::unique_ptr<internal::SpawnJob> job);
  ProcessContext(ProcessContext&&) noexcept;
  ProcessContext& operator=(ProcessContext&&) noexcept;
  ~ProcessContext();

  /// Waits until all have ended, for `timeout` at most. True: none of them has failed. False: some
  /// have not ended. When one has failed, throws its SpawnError once the others have ended too, and
  /// again when called again.
  bool join(std::chrono::milliseconds timeout = std::chrono::milliseconds::max()) const;

  /// By rank, of the processes alone; -1: that one could not be started.
  std::vector<pid_t> pids() const;

  /// Tells all to end (SIGTERM), and kills those that have not after SpawnOptions::grace. Does not
  /// wait. That they end so is no failure.
  void terminate() const;

 private:
  std::unique_ptr<internal::SpawnJob> job_;
};

}  // namespace sinew
