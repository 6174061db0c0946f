#include "sinew/rpc/peer.h"

#include <utility>

#include "sinew/rpc/base/error.h"
#include "sinew/rpc/calls/call_link.h"
#include "sinew/rpc/calls/retry_rules.h"
#include "sinew/rpc/calls/worker_services.h"
#include "sinew/rpc/worker.h"

namespace sinew {

void Peer::fail() const {
  if (gone_ != nullptr) throw RpcError(*gone_);
  throw RpcError(ErrorCode::kFailedPrecondition, "this Peer is empty: get one from Worker::peer()");
}

Peer PeerAccess::make_gone(WorkerInfo info, const absl::Status& why) {
  Peer peer;
  peer.info_ = std::move(info);
  peer.gone_ = std::make_shared<const RpcError>(why.code(), std::string(why.message()));
  return peer;
}

Peer::Peer(std::shared_ptr<internal::WorkerServices> services,
           std::shared_ptr<internal::CallLink> link)
    : services_(std::move(services)), link_(std::move(link)), info_(link_->peer()) {}

const WorkerInfo& Peer::info() const {
  if (link_ == nullptr && gone_ == nullptr) fail();
  return info_;
}

Peer Peer::with(CallOptions options) const {
  Peer peer = *this;
  peer.options_ = std::move(options);
  return peer;
}

Peer Peer::within(std::chrono::nanoseconds timeout) const {
  CallOptions options = options_;
  options.timeout = timeout;
  return with(std::move(options));
}

Peer Peer::retrying(RetryPolicy policy) const {
  CallOptions options = options_;
  options.retry = internal::checked(policy);
  return with(std::move(options));
}

Worker Peer::worker() const {
  if (services_ == nullptr) fail();
  return services_->handle();
}

bool Peer::alive() const {
  return link_ != nullptr && !services_->process().is_orphan() && link_->alive();
}

Future<void> Peer::ready(std::uint64_t bytes) const {
  if (link_ == nullptr) fail();
  services_->process().require();
  return link_->ready(bytes);
}

std::ostream& operator<<(std::ostream& out, const Peer& peer) { return out << peer.info(); }

}  // namespace sinew
