#include "sinew/rpc/worker/connect_requests.h"

#include <chrono>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/calls/call_link.h"
#include "sinew/rpc/link/connection_reversal.h"
#include "sinew/rpc/link/identity_codec.h"
#include "sinew/rpc/membership/parse_message.h"
#include "sinew/rpc/worker/worker_core.h"
#include "sinew/rpc/worker/worker_links.h"

namespace sinew::internal {
namespace {

/// To the coordinator: a peer cannot be reached.
constexpr std::string_view kAskMethod = "sinew.link.ask";
/// From the coordinator: a worker wants a connection.
constexpr std::string_view kDialMethod = "sinew.link.dial";

constexpr auto kAskedTime = std::chrono::seconds(2);

bool is_same(const WorkerInfo& a, const WorkerInfo& b) {
  return a.name == b.name && a.incarnation == b.incarnation;
}

std::string body_about(const WorkerInfo& worker) {
  proto::WorkerIdentity identity;
  write_identity(worker, identity);
  return identity.SerializeAsString();
}

WorkerInfo worker_in(const std::string& body) {
  const absl::StatusOr<proto::WorkerIdentity> identity =
      parse_message<proto::WorkerIdentity>("a WorkerIdentity", body);
  if (!identity.ok()) throw_error(identity.status());
  return read_identity(*identity);
}

}  // namespace

void ConnectRequests::add_methods() {
  const auto add = [this](std::string_view name,
                          void (ConnectRequests::*serve)(const WorkerInfo&, const std::string&)) {
    core_.add_control_method(
        std::string(name),
        [weak = core_.weak_from_this(), serve](const WorkerInfo& from, const std::string& body) {
          const std::shared_ptr<WorkerCore> core = weak.lock();
          if (core == nullptr) throw_error(absl::UnavailableError("this worker shuts down"));
          (core->connect_requests().*serve)(from, body);
          return make_ready_future(std::string());
        });
  };
  add(kAskMethod, &ConnectRequests::serve_ask);
  add(kDialMethod, &ConnectRequests::serve_dial);
}

// ---- Who does not get through.

void ConnectRequests::on_unreached(const WorkerInfo& peer) {
  const WorkerInfo coordinator = core_.coordinator();
  // A coordinator that has no connection with a worker cannot ask it either.
  const bool nobody_to_ask = coordinator.name.empty() || is_same(coordinator, peer) ||
                             is_same(coordinator, core_.self()) || core_.rank_of(peer) < 0;
  if (nobody_to_ask) return tell_link(peer, false);
  core_.control_call(coordinator, kAskMethod, body_about(peer), ConnectionReversal::kAnswerTime)
      .on_done([weak = core_.weak_from_this(), peer](const Future<std::string>& done) {
        const std::shared_ptr<WorkerCore> core = weak.lock();
        if (core != nullptr) core->connect_requests().tell_link(peer, done.error() == nullptr);
      });
}

void ConnectRequests::tell_link(const WorkerInfo& peer, bool is_asked) {
  const LinkTable::Link link = core_.links().table().find(peer);
  if (link.runner != nullptr) link.runner->on_asked(is_asked);
}

// ---- The coordinator.

void ConnectRequests::serve_ask(const WorkerInfo& from, const std::string& body) {
  const WorkerInfo target = worker_in(body);
  if (!is_same(core_.coordinator(), core_.self())) {
    throw_error(absl::UnavailableError(
        absl::StrFormat("worker '%s' does not coordinate; ask again", core_.self().name)));
  }
  if (core_.rank_of(from) < 0 || core_.rank_of(target) < 0) {
    throw_error(absl::PermissionDeniedError("only members are asked to connect, for members"));
  }
  // Who is gone is not waited for.
  const LinkTable::Link link = core_.links().table().find(target);
  if (link.runner == nullptr || !link.runner->is_answered()) {
    throw_error(absl::UnavailableError(absl::StrFormat(
        "worker '%s' has no connection with worker '%s' either", core_.self().name, target.name)));
  }
  pass_on(from, target);
}

void ConnectRequests::pass_on(const WorkerInfo& asker, const WorkerInfo& target) {
  const std::pair<Incarnation, Incarnation> key{asker.incarnation, target.incarnation};
  {
    MutexLock lock(mutex_);
    if (!passed_on_.insert(key).second) return;
  }
  core_.control_call(target, kDialMethod, body_about(asker), kAskedTime)
      .on_done([weak = core_.weak_from_this(), key](const Future<std::string>&) {
        const std::shared_ptr<WorkerCore> core = weak.lock();
        if (core == nullptr) return;
        ConnectRequests& requests = core->connect_requests();
        MutexLock lock(requests.mutex_);
        requests.passed_on_.erase(key);
      });
}

// ---- Who is asked to come.

void ConnectRequests::serve_dial(const WorkerInfo& from, const std::string& body) {
  const WorkerInfo asker = worker_in(body);
  // Anybody else could have this worker open connections all over the job.
  if (!is_same(core_.coordinator(), from)) {
    throw_error(absl::PermissionDeniedError("only the coordinator has workers open connections"));
  }
  // Its address is that of this worker's own list.
  const absl::StatusOr<std::shared_ptr<CallLink>> link = core_.link(asker);
  if (!link.ok()) throw_error(link.status());
  (*link)->runner().connect(LinkRunner::Turn::kAtOnce);
}

}  // namespace sinew::internal
