#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <ostream>
#include <string>

#include "actor/learner_link.h"
#include "actor/options.h"
#include "actor/player.h"
#include "actor/transition_queue.h"
#include "shared/learner.h"

namespace actor_learner {

/// Plays in one thread and talks to the learner in another: so it plays on by the weights that it
/// has while the learner is away, or slow.
class Actor {
 public:
  /// Joins the job. Throws RpcError as init_rpc() does.
  Actor(const ActorOptions& options, std::ostream& log);

  /// Plays until the training is over, the episodes are played, or stop() is called; then pushes
  /// what is left, if the learner is there, and leaves the job. Throws what no waiting mends.
  void run();
  /// Has run() return soon. Thread-safe.
  void stop();

 private:
  using Clock = std::chrono::steady_clock;

  void play();
  /// In a thread of its own: pushes what was played.
  void deliver();
  /// When the next step is due; at once for a pendulum that is as fast as it can be.
  Clock::time_point after(Clock::time_point step) const;
  /// Whether to go on. Takes over weights that have come.
  bool await(Clock::time_point due, Player& player);
  void say_episode(std::int64_t episode, double episode_return, const Player& player);
  void say(const std::string& line) const;

  const ActorOptions options_;
  std::ostream& log_;
  LearnerLink link_;
  TransitionQueue queue_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
};

}  // namespace actor_learner
