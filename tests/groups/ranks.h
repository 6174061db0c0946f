#pragma once

#include <functional>
#include <string>
#include <vector>

#include "sinew/groups/process_group.h"

namespace sinew::testing {

/// Runs `f(rank)` for 0 to size - 1, each on a thread of its own, and waits for all. Throws the
/// first error, by rank.
void run_ranks(int size, const std::function<void(int rank)>& f);

/// The error that `f` throws; a failure of the test, and an empty one, if it throws none.
RpcError error_of(const std::function<void()>& f);

/// Groups whose ranks are threads of this process, over a store in memory.
class Ranks {
 public:
  explicit Ranks(int size) : store_(Store::in_memory()), size_(size) {}

  GroupOptions options(int rank) const;
  /// Starts a group in which each rank runs `f`, and destroys it afterwards.
  void run(const std::function<void(const ProcessGroup& group)>& f) const {
    run([](GroupOptions&) {}, f);
  }
  void run(const std::function<void(GroupOptions& options)>& change,
           const std::function<void(const ProcessGroup& group)>& f) const;

 private:
  const Store store_;
  const int size_;
};

}  // namespace sinew::testing
