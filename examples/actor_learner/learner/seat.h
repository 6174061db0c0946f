#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>

#include "shared/learner.h"
#include "sinew/sinew.h"

namespace actor_learner {

/// The learner's place in the job: its worker, under whose name actors find what they call. Takes
/// another place when the worker is evicted, since it was stopped for longer than its lease.
/// Thread-safe.
class Seat {
 public:
  /// Gets a line for each actor that comes or goes.
  using Tell = std::function<void(const std::string& line)>;
  /// Publishes what actors look for, at each worker that it has.
  using Publish = std::function<void(const sinew::Worker& worker)>;

  /// Founds the job, or finds the one that its predecessor has founded. Throws RpcError as
  /// init_rpc() does.
  Seat(sinew::WorkerOptions options, Publish publish, Tell tell);

  /// Waits until the actors have left, and leaves; after `timeout` anyhow.
  void leave_last(std::chrono::nanoseconds timeout);
  /// Leaves at once: the actors wait for the next learner.
  void leave();

 private:
  void take(const sinew::Worker& worker);
  sinew::MemberWatch watch_members(const sinew::Worker& worker);

  const Publish publish_;
  const Tell tell_;

  std::mutex mutex_;
  std::condition_variable changed_;
  /// What belongs to the place that it has at present.
  sinew::Worker worker_;
  sinew::MemberWatch watch_;
};

}  // namespace actor_learner
