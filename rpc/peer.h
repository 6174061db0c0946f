#pragma once

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>

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
/// for ever, even if another comes back under the name. A small value type; thread-safe.
class Peer {
 public:
  /// An invalid peer; calls on it throw kFailedPrecondition.
  Peer() = default;

  const WorkerInfo& info() const;
  const std::string& name() const { return info().name; }
  std::int32_t rank() const { return info().rank; }
  /// The same peer, with other options for the calls made through the result.
  Peer with(CallOptions options) const;
  const CallOptions& options() const { return options_; }
  /// The worker that calls start from.
  Worker worker() const;
  /// False once the peer is lost.
  bool alive() const;
  /// Completes when a call with `bytes` of arguments finds room on its way to the peer: at most
  /// WorkerOptions::send_window_bytes wait here, and WorkerOptions::receive_window_bytes there. A
  /// call that finds none fails at once with kResourceExhausted and did not run, except those of
  /// rpc_sync(), which wait. Another thread's call may take the room first. Fails when the peer is
  /// lost. Thread-safe.
  Future<void> ready(std::uint64_t bytes = 0) const;

  friend bool operator==(const Peer& a, const Peer& b) { return a.link_ == b.link_; }
  friend bool operator!=(const Peer& a, const Peer& b) { return !(a == b); }

 private:
  friend struct PeerAccess;
  Peer(std::shared_ptr<internal::WorkerServices> services,
       std::shared_ptr<internal::CallLink> link);

  std::shared_ptr<internal::WorkerServices> services_;
  std::shared_ptr<internal::CallLink> link_;
  WorkerInfo info_;
  CallOptions options_;
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
};

}  // namespace sinew
