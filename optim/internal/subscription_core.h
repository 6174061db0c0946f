#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "sinew/optim/internal/subscription_state.h"
#include "sinew/optim/internal/weights_messages.h"
#include "sinew/optim/internal/weights_snapshot.h"
#include "sinew/optim/publication.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/threads/strand.h"

namespace sinew::internal {

/// A Subscription: a SubscriptionState with the worker's calls, timers and lock. What it does is
/// one chain of continuations on the worker's executor. Thread-safe. Held by shared_ptr.
class SubscriptionCore : public std::enable_shared_from_this<SubscriptionCore> {
 public:
  SubscriptionCore(std::string address, optim::SubscriptionOptions options);

  /// Before anything else, and again for another worker.
  void move_to(const Worker& worker);
  std::shared_ptr<const optim::Weights> latest() const;
  std::shared_ptr<const optim::Weights> wait_for(std::uint64_t version,
                                                 std::optional<std::chrono::nanoseconds> timeout);
  optim::SubscriptionStatus status() const;
  /// The writer need not count with it any more.
  void close();

 private:
  using WeightsPointer = std::shared_ptr<const optim::Weights>;
  using Step = SubscriptionState::Step;
  using Attempt = SubscriptionState::Attempt;
  using Fault = SubscriptionState::Fault;
  struct Waiter {
    std::uint64_t number;
    std::uint64_t version;
    Promise<WeightsPointer> promise;
  };
  using Reached = std::vector<Promise<WeightsPointer>>;
  /// What has arrived.
  struct Fetched {
    std::shared_ptr<WeightsSnapshot> snapshot;
    optim::StateDict tensors;
  };
  /// A version on its way.
  struct Whole {
    Attempt attempt;
    UnsealedWeights weights;
    std::uint64_t offset = 0;
  };

  void take(const Step& step);
  void perform(const Step& step);
  void seek(Attempt attempt);
  void pause(Attempt attempt);
  void ask(Attempt attempt);
  void on_offer(Attempt attempt, const Future<std::optional<WeightsOffer>>& done);
  absl::Status check_offer(const WeightsOffer& offer);
  void share(Attempt attempt);
  void fetch_changes(Attempt attempt);
  void on_changes(Attempt attempt, const Future<at::Tensor>& done);
  void fetch_whole(Attempt attempt);
  void read_next(const std::shared_ptr<Whole>& whole);
  void on_read(const std::shared_ptr<Whole>& whole, std::uint64_t count,
               const Future<at::Tensor>& done);
  void on_content(Attempt attempt, absl::StatusOr<WeightsContent> content,
                  std::optional<WeightsChanges> changes);
  void fail(Attempt attempt, const std::exception_ptr& why);
  /// `fetched` is verified; null: the bytes are those that there were. Returns who has waited.
  Reached switch_locked(const VersionLabel& version, Fetched* fetched)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void tell(const Reached& reached);
  void tell_newest();
  void note(const std::string& why);
  std::string doing_locked() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  const std::string address_;
  const optim::SubscriptionOptions options_;

  mutable Mutex mutex_;
  Worker worker_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<Strand> events_ ABSL_GUARDED_BY(mutex_);
  SubscriptionState state_ ABSL_GUARDED_BY(mutex_);
  std::optional<RRef<WeightsWriter>> writer_ ABSL_GUARDED_BY(mutex_);
  // What is fetched, and its layout.
  std::optional<WeightsOffer> offer_ ABSL_GUARDED_BY(mutex_);
  std::chrono::steady_clock::time_point offered_ ABSL_GUARDED_BY(mutex_);
  std::optional<WeightsLayout> layout_ ABSL_GUARDED_BY(mutex_);
  // What there is.
  std::shared_ptr<WeightsSnapshot> snapshot_ ABSL_GUARDED_BY(mutex_);
  std::optional<WeightsSource> source_ ABSL_GUARDED_BY(mutex_);
  WeightsPointer latest_ ABSL_GUARDED_BY(mutex_);
  std::vector<Waiter> waiters_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t last_waiter_ ABSL_GUARDED_BY(mutex_) = 0;
  optim::SubscriptionStatus counts_ ABSL_GUARDED_BY(mutex_);
  // Of the last thing that failed.
  std::string reason_ ABSL_GUARDED_BY(mutex_);
  // Something else has the name.
  std::exception_ptr mistake_ ABSL_GUARDED_BY(mutex_);
  bool is_told_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sinew::internal
