#include "sinew/rpc/peer.h"

#include <utility>

#include "sinew/rpc/base/error.h"
#include "sinew/rpc/calls/session.h"
#include "sinew/rpc/worker.h"
#include "sinew/rpc/worker/worker_core.h"

namespace sinew {
namespace {

[[noreturn]] void throw_empty_peer() {
  throw RpcError(ErrorCode::kFailedPrecondition, "this Peer is empty: get one from Worker::peer()");
}

}  // namespace

const WorkerInfo& Peer::info() const {
  if (session_ == nullptr) throw_empty_peer();
  return session_->peer();
}

Peer Peer::with(CallOptions options) const {
  Peer peer = *this;
  peer.options_ = std::move(options);
  return peer;
}

Worker Peer::worker() const {
  if (core_ == nullptr) throw_empty_peer();
  return WorkerAccess::make(core_);
}

bool Peer::alive() const { return session_ != nullptr && session_->alive(); }

std::ostream& operator<<(std::ostream& out, const Peer& peer) { return out << peer.info(); }

}  // namespace sinew
