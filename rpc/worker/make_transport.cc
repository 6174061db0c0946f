#include "sinew/rpc/worker/make_transport.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sinew/rpc/base/log.h"
#include "sinew/rpc/planes/ucx/ucx_plane.h"
#include "sinew/rpc/transport/grpc/grpc_transport.h"
#include "sinew/rpc/transport/grpc/local/local_address.h"
#include "sinew/rpc/transport/inproc/inproc_transport.h"
#include "sinew/rpc/worker/worker_parts.h"

namespace sinew::internal {
namespace {

Transport::Limits limits_of(const WorkerOptions& options) {
  Transport::Limits limits;
  // The link has told the sender before; its header counts here too.
  limits.max_frame_bytes =
      std::min(options.max_message_bytes, ~std::size_t{0} - kMaxHeaderBytes) + kMaxHeaderBytes;
  return limits;
}

absl::Status start_one(const WorkerOptions& options, std::unique_ptr<Transport>& transport,
                       Acceptor* acceptor, UnaryHandler* unary) {
  if (options.parts != nullptr && options.parts->wrap_transport) {
    transport = options.parts->wrap_transport(std::move(transport));
  }
  return transport->start(acceptor, unary);
}

/// Fixed worlds meet at rank 0, open ones at whoever of those who may found the job comes first.
bool answers_at_rendezvous(const Rendezvous& rendezvous) {
  return rendezvous.world_size > 0 ? rendezvous.rank == 0 : rendezvous.founds;
}

absl::StatusOr<StartedTransport> start_inproc(const WorkerOptions& options,
                                              const Rendezvous& rendezvous, Acceptor* acceptor,
                                              UnaryHandler* unary) {
  if (options.network == nullptr) {
    return absl::InvalidArgumentError(
        "inproc:// joins workers of one process: set WorkerOptions::network to the network that "
        "they share");
  }
  InprocOptions inproc;
  inproc.limits = limits_of(options);
  StartedTransport started;
  if (answers_at_rendezvous(rendezvous)) {
    inproc.name = rendezvous.address;
    started.transport = make_inproc_transport(options.network, inproc);
    const absl::Status status = start_one(options, started.transport, acceptor, unary);
    started.serves_rendezvous = status.ok();
    if (status.ok()) return started;
    if (!absl::IsAlreadyExists(status) || rendezvous.world_size != 0) return status;
  }
  inproc.name.clear();
  started.transport = make_inproc_transport(options.network, inproc);
  const absl::Status status = start_one(options, started.transport, acceptor, unary);
  if (!status.ok()) return status;
  return started;
}

std::string host_of(const std::string& host_port) {
  const std::size_t colon = host_port.rfind(':');
  return host_port.substr(0, colon);
}

/// The address that a worker binds by itself: the one from which the rendezvous is reached, which
/// is loopback when the rendezvous is.
absl::StatusOr<std::string> default_bind_address(const Rendezvous& rendezvous) {
  if (rendezvous.kind != Rendezvous::Kind::kTcp) return std::string("127.0.0.1:0");
  absl::StatusOr<std::string> local = local_address_towards(rendezvous.address);
  if (!local.ok()) return local.status();
  const bool v6 = local->find(':') != std::string::npos && local->front() != '[';
  return v6 ? absl::StrCat("[", *local, "]:0") : absl::StrCat(*local, ":0");
}

absl::Status add_ucx(const Credentials& credentials, GrpcTransportOptions& grpc) {
  if (credentials.uses_tls()) {
    return absl::InvalidArgumentError(
        "WorkerOptions::ucx sends tensors in the clear, and the credentials use TLS: leave ucx "
        "off, "
        "or use insecure credentials on a network that is trusted");
  }
  UcxOptions ucx;
  ucx.loopback_only = credentials.loopback_only();
  absl::StatusOr<std::shared_ptr<PullPlane>> plane = make_ucx_plane(ucx);
  if (!plane.ok()) {
    return absl::Status(plane.status().code(),
                        absl::StrCat("WorkerOptions::ucx: ", plane.status().message()));
  }
  grpc.planes.push_back(*std::move(plane));
  return absl::OkStatus();
}

absl::StatusOr<StartedTransport> start_grpc(const WorkerOptions& options,
                                            const Rendezvous& rendezvous, Acceptor* acceptor,
                                            UnaryHandler* unary) {
  GrpcTransportOptions grpc;
  grpc.credentials = options.credentials;
  grpc.limits = limits_of(options);
  grpc.advertised = options.advertise_address;
  grpc.tuning.local_sockets = options.same_host;
  grpc.tuning.same_host_plane = options.same_host;
  grpc.tuning.max_poll = options.max_poll;
  grpc.log = [name = options.name](const std::string& text) { log_line(name, text); };
  if (options.ucx) {
    if (absl::Status status = add_ucx(options.credentials, grpc); !status.ok()) return status;
  }
  if (!options.bind_address.empty()) {
    grpc.listen = {options.bind_address};
    if (rendezvous.kind == Rendezvous::Kind::kTcp) grpc.advertise_towards = rendezvous.address;
  } else {
    absl::StatusOr<std::string> bind = default_bind_address(rendezvous);
    if (!bind.ok()) return bind.status();
    grpc.listen = {*std::move(bind)};
  }
  StartedTransport started;
  const bool tcp = rendezvous.kind == Rendezvous::Kind::kTcp;
  if (tcp && answers_at_rendezvous(rendezvous)) {
    GrpcTransportOptions serving = grpc;
    if (options.bind_address.empty() && host_of(grpc.listen[0]) == host_of(rendezvous.address)) {
      serving.listen = {rendezvous.address};
    } else if (options.bind_address != rendezvous.address) {
      serving.listen.push_back(rendezvous.address);
    }
    started.transport = make_grpc_transport(std::move(serving));
    const absl::Status status = start_one(options, started.transport, acceptor, unary);
    started.serves_rendezvous = status.ok();
    if (status.ok()) return started;
    // In open membership somebody else may have founded the job, here or on another host.
    if (rendezvous.world_size != 0) return status;
  }
  started.transport = make_grpc_transport(std::move(grpc));
  const absl::Status status = start_one(options, started.transport, acceptor, unary);
  if (!status.ok()) return status;
  return started;
}

}  // namespace

absl::StatusOr<StartedTransport> start_transport(const WorkerOptions& options,
                                                 const Rendezvous& rendezvous, Acceptor* acceptor,
                                                 UnaryHandler* unary) {
  if (rendezvous.kind == Rendezvous::Kind::kInproc) {
    return start_inproc(options, rendezvous, acceptor, unary);
  }
  return start_grpc(options, rendezvous, acceptor, unary);
}

}  // namespace sinew::internal
