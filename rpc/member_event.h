#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>

#include "sinew/rpc/base/gone.h"
#include "sinew/rpc/base/ids.h"

namespace sinew {

namespace internal {
class MemberSubscription;
}  // namespace internal

/// What has become of a member of the job, as one worker sees it.
///
/// Of each worker they come in this order: kJoined (but for those that were there before
/// Worker::on_member()), then kSuspected and kTrusted in turns, and at last kLost or kLeft. After
/// kEvicted nothing comes any more.
struct MemberEvent {
  enum class Kind {
    /// A new worker, also one that comes back: under the same name, with another incarnation. It
    /// comes after the loss of the one whose name or rank it has.
    kJoined,
    /// It has not answered lately, or it is being found out whether it is lost or this worker is.
    /// kTrusted, kLost, kLeft or kEvicted follows.
    kSuspected,
    /// It answers again.
    kTrusted,
    /// It is lost permanently: it has ended without a goodbye, or did not answer for a lease, or
    /// the other members say so.
    kLost,
    /// It has said goodbye (a graceful shutdown).
    kLeft,
    /// This worker itself was evicted: see Worker::rejoin().
    kEvicted,
  };

  Kind kind = Kind::kJoined;
  /// Whom it concerns.
  WorkerInfo worker;
  /// For people: why it is lost, or this worker evicted.
  std::string reason;
  /// Of kLost and kLeft.
  Gone why = Gone::kUnknown;
};

/// "joined", "suspected", "trusted", "lost", "left", "evicted"
std::ostream& operator<<(std::ostream& out, MemberEvent::Kind kind);

using OnMember = std::function<void(const MemberEvent& event)>;

/// Events go to a function for as long as this lives: see Worker::on_member(). Does not keep the
/// worker, and may outlive it. An object is for one thread at a time.
class MemberWatch {
 public:
  /// None.
  MemberWatch() = default;
  /// Waits until the function does not run any more, unless it is called by that function itself;
  /// it is not called again, and is destroyed. The caller that ends it must not hold what the
  /// function waits for.
  ~MemberWatch() { end(); }
  MemberWatch(MemberWatch&& other) noexcept = default;
  MemberWatch& operator=(MemberWatch&& other) noexcept;
  MemberWatch(const MemberWatch&) = delete;
  MemberWatch& operator=(const MemberWatch&) = delete;

  /// As the destructor. Idempotent.
  void end();

 private:
  friend class Worker;
  explicit MemberWatch(std::shared_ptr<internal::MemberSubscription> subscription)
      : subscription_(std::move(subscription)) {}

  std::shared_ptr<internal::MemberSubscription> subscription_;
};

}  // namespace sinew
