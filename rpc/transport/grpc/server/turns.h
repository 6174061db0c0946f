#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/transport/quota.h"

namespace sinew::internal {

/// Lets messages of strangers be received a few at a time, in all and from one origin, while others
/// wait: gRPC collects a message before it says how large it is, so their number is what bounds
/// their memory. The number and the time of those that wait are bounded elsewhere. Thread-safe.
class Turns {
 public:
  explicit Turns(std::shared_ptr<Quota> at_a_time) : at_a_time_(std::move(at_a_time)) {}

  using Begin = absl::AnyInvocable<void() &&>;
  /// Runs `begin` now if there is a turn left, or on the thread of a leave(). The number is never
  /// 0.
  std::uint64_t enter(const std::string& origin, Begin begin);
  /// The turn is over, or is not wanted any more (`begin` may still be about to run then). Nothing
  /// happens for a number that is not in use.
  void leave(std::uint64_t number);

 private:
  struct Waiting {
    std::uint64_t number = 0;
    std::string origin;
    Begin begin;
  };

  const std::shared_ptr<Quota> at_a_time_;
  Mutex mutex_;
  std::uint64_t next_ ABSL_GUARDED_BY(mutex_) = 1;
  absl::flat_hash_map<std::uint64_t, Quota::Share> running_ ABSL_GUARDED_BY(mutex_);
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
