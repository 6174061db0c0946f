#pragma once

#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/threads/executor.h"

namespace sinew::internal {

/// Lets work on parameters of one worker run such that no two pieces of work that share a parameter
/// run at once. Work that has to wait holds no thread, and starts in the order in which it came, as
/// far as it shares parameters. Thread-safe.
class ParameterGate : public std::enable_shared_from_this<ParameterGate> {
 public:
  /// Where work runs that had to wait.
  explicit ParameterGate(std::shared_ptr<TaskRunner> runner) : runner_(std::move(runner)) {}

  /// Runs `work` on this thread if nothing under way or waiting shares one of `parameters`
  /// (addresses, in any order), otherwise later. `work` must not throw.
  void run(std::vector<const void*> parameters, Task work);

 private:
  struct Waiting {
    std::vector<const void*> parameters;
    Task work;
  };
  using Queue = std::list<Waiting>;

  void run_now(const std::vector<const void*>& parameters, Task work);
  /// Lets go of `parameters` and starts what can start now.
  void leave(const std::vector<const void*>& parameters);
  /// Whether none is in `taken`; adds them in any case.
  static bool claim(const std::vector<const void*>& parameters,
                    absl::flat_hash_set<const void*>& taken);

  const std::shared_ptr<TaskRunner> runner_;
  Mutex mutex_;
  absl::flat_hash_set<const void*> held_ ABSL_GUARDED_BY(mutex_);
  Queue waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
