#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>

#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/call_options.h"

namespace sinew {

namespace internal {
class CallLink;
class WorkerServices;
}  // namespace internal

class Worker;

/// A worker that calls go to, as seen from one's own worker, with the options that they are made
/// with. Get one from Worker::peer(). Names one incarnation: when that worker is lost, calls fail
/// permanently, even if another one joins under the name. info(), name(), rank(), alive() and
/// options() work also when a worker has ended. A small value type; thread-safe.
class Peer {
 public:
  /// An invalid peer; calls on it throw kFailedPrecondition.
  Peer() = default;

  /// Throws kFailedPrecondition for an invalid peer.
  const WorkerInfo& info() const;
  const std::string& name() const { return info().name; }
  std::int32_t rank() const { return info().rank; }
  /// The same peer, with other options for the calls made through the result, or another time that
  /// each may take: `learner.within(1s).call<&app::scale>(tensor, 2.0)`.
  Peer with(CallOptions options) const;
  Peer within(std::chrono::nanoseconds timeout) const;
  /// The same peer, with calls that are repeated where that may help: what did not run, and what
  /// may have run if its method is SINEW_IDEMPOTENT, after kResourceExhausted and kUnavailable.
  /// Holds no thread in between; all attempts together have the time of one call. With
  /// RetryAt::kNextOfItsName calls go on with the next worker of the name when this one is lost.
  /// In an autograd context no call is repeated; its error says so. More: docs/retries.md. Throws
  /// RpcError kInvalidArgument for a policy that makes no sense.
  ///
  ///     double x = learner.retrying().within(2s).call<&app::mean>(tensor);
  Peer retrying(RetryPolicy policy = RetryPolicy()) const;
  const CallOptions& options() const { return options_; }
  /// The worker that calls start from.
  Worker worker() const;
  /// False once the peer is lost, or the worker here that would call it has ended.
  bool alive() const;
  /// Completes when a call with `bytes` of arguments finds room on its way to the peer: at most
  /// WorkerOptions::send_window_bytes wait here, and WorkerOptions::receive_window_bytes there. A
  /// call that finds none fails at once with kResourceExhausted and did not run, except those of
  /// call(), which wait. Another thread's call may take the room first. Fails when the peer is
  /// lost. Thread-safe.
  Future<void> ready(std::uint64_t bytes = 0) const;

  /// Calls a free (or static member) function here and returns at once.
  /// The arguments are converted to the parameter types and written before this returns; tensors of
  /// 4 KiB and more are not copied, so they must not be changed in place until the future is
  /// complete (docs/values.md). Throws RpcError for what is wrong with the call itself (invalid
  /// peer, bad timeout, a value that cannot travel); everything later is the future's error:
  /// kUnavailable when the peer is lost, kDeadlineExceeded, kCancelled, kResourceExhausted when too
  /// much is queued for the peer (ready() tells when there is room), kUnimplemented for a method
  /// that the peer does not serve, and whatever the handler threw. Thread-safe; may be called in
  /// handlers, also back to the caller.
  template <auto Method, class... Args>
  auto async(Args&&... arguments) const;
  /// Calls a function here and waits for its result. As async(), but every error is thrown, and
  /// where too much is queued for the peer the call waits, within its time limit. Blocks; within a
  /// handler the thread's place in the pool is taken by another one meanwhile.
  template <auto Method, class... Args>
  auto call(Args&&... arguments) const;
  /// Calls a function here and keeps its result here. Returns a usable RRef at once; using it
  /// waits, at the owner, for the call. If the call fails every later use fails with its error.
  template <auto Method, class... Args>
  auto remote(Args&&... arguments) const;
  /// Makes an object here: `remote<app::Agent>(settings)` with the constructor named by
  /// SINEW_SERVICE, or `remote<app::Agent(int, int)>(1, 2)` with one named by SINEW_CONSTRUCTOR.
  template <class ClassOrSignature, class... Args>
  auto remote(Args&&... arguments) const;

  friend bool operator==(const Peer& a, const Peer& b) {
    return a.link_ == b.link_ && (a.link_ != nullptr || a.info_ == b.info_);
  }
  friend bool operator!=(const Peer& a, const Peer& b) { return !(a == b); }

 private:
  friend struct PeerAccess;
  Peer(std::shared_ptr<internal::WorkerServices> services,
       std::shared_ptr<internal::CallLink> link);
  /// Why nothing can be done with it.
  [[noreturn]] void fail() const;

  std::shared_ptr<internal::WorkerServices> services_;
  std::shared_ptr<internal::CallLink> link_;
  WorkerInfo info_;
  CallOptions options_;
  /// Set: there is no link with it any more, for this reason.
  std::shared_ptr<const RpcError> gone_;
};

std::ostream& operator<<(std::ostream& out, const Peer& peer);

/// For the layers of Sinew.
struct PeerAccess {
  static const std::shared_ptr<internal::WorkerServices>& services(const Peer& peer) {
    return peer.services_;
  }
  static const std::shared_ptr<internal::CallLink>& link(const Peer& peer) { return peer.link_; }
  static Peer make(std::shared_ptr<internal::WorkerServices> services,
                   std::shared_ptr<internal::CallLink> link) {
    return Peer(std::move(services), std::move(link));
  }
  /// A peer that nothing can be done with any more: that fails with `why`.
  static Peer make_gone(WorkerInfo info, const absl::Status& why);
  [[noreturn]] static void fail(const Peer& peer) { peer.fail(); }
};

}  // namespace sinew
