#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "sinew/testing/eventually.h"
#include "sinew/testing/message.h"
#include "sinew/testing/messages.h"

namespace sinew::internal {
class StepQueue;
}

namespace sinew::testing {

/// The network of a Cluster with ClusterNetwork::kStepped, in which no call and no answer arrives
/// by itself: the test says which is next. What workers say to each other besides (beats,
/// references, membership) goes on, and so does time.
///
/// It delivers one message at a time, and lets the workers come to rest before and after it: until
/// each thread of the process, but for the one that waits here, sleeps, and has slept for some
/// milliseconds. So what is under way depends on what was delivered and in which order, and the
/// same choices give the same run.
///
/// What waits for a time (a pause between retries, a Batcher's wait) is at rest. A thread that
/// never sleeps keeps the test waiting; it ends as a Failure that names it.
///
/// A message is shown to the faults when it is delivered. Calls of a worker to itself do not come
/// here. Not thread-safe. Waits for `patience` at most, and throws Failure then, with what is under
/// way.
///
///     auto first = alice.async<&app::withdraw>("account", 80);
///     auto second = bob.async<&app::withdraw>("account", 80);
///     cluster.network().deliver(calls<&app::withdraw>().by("bob"));
///     cluster.network().deliver_all();
class SteppedNetwork {
 public:
  /// For Cluster.
  explicit SteppedNetwork(std::shared_ptr<internal::StepQueue> queue);
  ~SteppedNetwork();
  SteppedNetwork(const SteppedNetwork&) = delete;
  SteppedNetwork& operator=(const SteppedNetwork&) = delete;

  /// Once the workers are at rest: the oldest first, and those that became possible by the same
  /// step by sender, receiver and the order in which they were sent.
  std::vector<Message> under_way() const;

  /// Delivers the first message of under_way(), or one by chance after shuffle(), so many times.
  /// Waits until there is one. Returns what was delivered, as do those below.
  std::vector<Message> step(int count = 1, std::chrono::nanoseconds patience = kPatience);
  /// Steps until nothing is under way.
  std::vector<Message> deliver_all(std::chrono::nanoseconds patience = kPatience);
  /// Steps until `condition()` is true, which is asked whenever the workers are at rest.
  std::vector<Message> run_until(const std::function<bool()>& condition,
                                 std::chrono::nanoseconds patience = kPatience);

  /// Delivers those of under_way() that are meant, one after the other. Waits until there is one.
  std::vector<Message> deliver(const Messages& messages,
                               std::chrono::nanoseconds patience = kPatience);
  /// Loses them, as Faults::drop() does.
  std::vector<Message> drop(const Messages& messages,
                            std::chrono::nanoseconds patience = kPatience);

  /// From now on step() and those that use it choose by chance; the same order again with the same
  /// seed. For tests that try many orders: name the seed when one fails.
  void shuffle(std::uint64_t seed);

 private:
  enum class Fate { kDelivered, kDropped };
  using Deadline = std::chrono::steady_clock::time_point;

  void rest(Deadline deadline) const;
  /// Steps once the workers are at rest; none: nothing is under way.
  std::optional<Message> step_at_rest(Deadline deadline);
  std::vector<Message> let_go(const Messages& messages, Fate fate, Deadline deadline);

  const std::shared_ptr<internal::StepQueue> queue_;
  std::optional<std::mt19937_64> random_;
};

}  // namespace sinew::testing
