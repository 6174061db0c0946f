#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "shared/learner.h"
#include "sinew/optim/publication.h"
#include "sinew/sinew.h"

namespace actor_learner {

/// An actor's way to the learner, whatever becomes of either: the learner may be killed and started
/// again, and this worker be taken for lost and rejoin. What is asked of the learner waits until it
/// is there. push() is for one thread; stop() is for any.
class LearnerLink {
 public:
  /// Gets a line when the learner is away, and when it is there again.
  using Tell = std::function<void(const std::string& line)>;

  /// Joins the job. Throws RpcError as init_rpc() does.
  LearnerLink(sinew::WorkerOptions options, Tell tell);

  /// Nothing: it was stopped, and the learner is away. Throws RpcError for what no waiting mends.
  std::optional<Receipt> push(const Played& played);
  /// The newest that have come; null until some have. For any thread, and never waits.
  std::shared_ptr<const sinew::optim::Weights> weights() const;

  /// From now on nothing waits for a learner that is away.
  void stop();
  /// Says goodbye to the job. What it had is not to be used any more.
  void leave();

 private:
  void find_learner();
  /// Whether it is worth while to look again.
  bool await_change(const sinew::RpcError& error);
  void rejoined(const sinew::Worker& worker);

  const Tell tell_;
  /// Invalid while the learner is away.
  sinew::RRef<Learner> learner_;
  bool was_told_ = false;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  /// The one that is in the job at present.
  sinew::Worker worker_;
  sinew::optim::Subscription weights_;
  bool stopped_ = false;
};

}  // namespace actor_learner
