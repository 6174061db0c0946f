#include "sinew/rpc/worker/make_transport.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/host_limits.h"
#include "sinew/rpc/base/log.h"
#include "sinew/rpc/planes/ucx/ucx_plane.h"
#include "sinew/rpc/transport/grpc/grpc_transport.h"
#include "sinew/rpc/transport/grpc/local/host_port.h"
#include "sinew/rpc/transport/grpc/local/local_address.h"
#include "sinew/rpc/transport/inproc/inproc_transport.h"
#include "sinew/rpc/worker/max_poll.h"
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

/// Between two attempts to find out what a name stands for.
constexpr auto kNamePause = std::chrono::milliseconds(250);

/// A seed, and the address of this machine from which it is reached: loopback if it is.
struct Towards {
  std::string seed;
  std::string local;
};

absl::StatusOr<StartedTransport> start_inproc(const WorkerOptions& options, Acceptor* acceptor,
                                              UnaryHandler* unary) {
  if (options.network == nullptr) {
    return absl::InvalidArgumentError(
        "inproc:// joins workers of one process: set WorkerOptions::network to the network that "
        "they share");
  }
  InprocOptions inproc;
  inproc.limits = limits_of(options);
  StartedTransport started;
  started.transport = make_inproc_transport(options.network, inproc);
  const absl::Status status = start_one(options, started.transport, acceptor, unary);
  if (!status.ok()) return status;
  return started;
}

/// The seed that others are reached towards: the first one to which a route leads. In a cluster
/// that is just starting the names may not be known yet.
absl::StatusOr<Towards> route_to_seeds(const WorkerOptions& options, const Rendezvous& rendezvous) {
  const auto gives_up = std::chrono::steady_clock::now() + options.join_timeout;
  for (bool is_first = true;; is_first = false) {
    absl::Status failure;
    for (const std::string& seed : rendezvous.seeds) {
      absl::StatusOr<std::string> local = local_address_towards(seed);
      if (local.ok()) return Towards{seed, *std::move(local)};
      failure = local.status();
    }
    const bool may_change = absl::IsUnavailable(failure);
    if (!may_change || std::chrono::steady_clock::now() >= gives_up) return failure;
    if (is_first) {
      log_line(options.name, absl::StrCat(failure.message(),
                                          "; I try again until the time for "
                                          "joining is over"));
    }
    std::this_thread::sleep_for(kNamePause);
  }
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

// A process that knows the token may be at any address: all certificates are for the addresses
// where the job is looked for.
absl::StatusOr<Credentials> credentials_of(const WorkerOptions& options,
                                           const Rendezvous& rendezvous) {
  if (!options.credentials.is_of_job()) return options.credentials;
  std::vector<std::string> hosts = {"localhost", "127.0.0.1", "::1"};
  if (rendezvous.kind == Rendezvous::Kind::kTcp) {
    for (const std::string& seed : rendezvous.seeds) {
      const absl::StatusOr<HostPort> parsed = parse_host_port(seed);
      if (parsed.ok()) hosts.push_back(parsed->host);
    }
  }
  return Credentials::for_worker(options.job_token, options.job, options.name, hosts);
}

/// Its own name leads to loopback, and other machines may find it by that name nevertheless.
bool opens_up(const Credentials& credentials, const std::string& seed) {
  return !credentials.loopback_only() && is_own_name_on_loopback(seed);
}

/// Where it listens when it serves no seed, and what it advertises.
absl::Status choose_addresses(const WorkerOptions& options, const Rendezvous& rendezvous,
                              GrpcTransportOptions& grpc) {
  grpc.listen = {options.bind_address.empty() ? "127.0.0.1:0" : options.bind_address};
  const bool is_at_addresses =
      rendezvous.kind == Rendezvous::Kind::kTcp || rendezvous.kind == Rendezvous::Kind::kEtcd;
  if (!is_at_addresses) return absl::OkStatus();
  absl::StatusOr<Towards> towards = route_to_seeds(options, rendezvous);
  if (!towards.ok()) return towards.status();
  if (opens_up(options.credentials, towards->seed)) {
    absl::StatusOr<std::string> outside = outside_address();
    if (!outside.ok()) return outside.status();
    const absl::StatusOr<HostPort> bound = parse_host_port(options.bind_address);
    if (bound.ok() && bound->is_wildcard() && grpc.advertised.empty()) grpc.advertised = *outside;
    towards->local = *std::move(outside);
  }
  if (options.bind_address.empty()) grpc.listen = {join_host_port(towards->local, 0)};
  grpc.advertise_towards = std::move(towards->seed);
  return absl::OkStatus();
}

/// Where a worker listens so that it is found at the seed.
std::string listener_of(const WorkerOptions& options, const std::string& seed) {
  if (!is_own_name_on_loopback(seed)) return seed;
  if (!opens_up(options.credentials, seed)) {
    log_line(options.name,
             absl::StrCat(seed,
                          " leads to this machine's loopback here, where its credentials stay "
                          "anyway: workers of other machines cannot join"));
    return seed;
  }
  const std::string all = join_host_port("0.0.0.0", parse_host_port(seed)->port);
  log_line(options.name, absl::StrCat(seed,
                                      " leads to this machine's loopback here, and elsewhere "
                                      "it does not: this worker listens at all addresses, ",
                                      all));
  return all;
}

/// With a listener at the seed.
GrpcTransportOptions serving(GrpcTransportOptions grpc, const WorkerOptions& options,
                             const Rendezvous& rendezvous, const std::string& seed) {
  const std::string& bound = grpc.listen.front();
  const absl::StatusOr<HostPort> listens = parse_host_port(bound);
  const absl::StatusOr<HostPort> meets = parse_host_port(seed);
  if (!listens.ok() || !meets.ok()) return grpc;  // Listening says what is wrong with them.
  const std::string listener = listener_of(options, seed);
  if (options.bind_address.empty()) {
    if (listens->host == meets->host) {
      grpc.listen = {listener};
    } else {
      grpc.listen.push_back(listener);
    }
    return grpc;
  }
  // All addresses of this machine, the seed's among them: also where that is the address of a
  // service or of a router which leads here, and cannot be listened at.
  const bool is_here = rendezvous.seeds.size() == 1 || is_local_address(meets->host) ||
                       options.advertise_address == meets->host ||
                       options.advertise_address == seed;
  const bool covers = listens->is_wildcard() && listens->port == meets->port && is_here;
  if (bound != seed && !covers) grpc.listen.push_back(listener);
  return grpc;
}

absl::StatusOr<StartedTransport> start_grpc(const WorkerOptions& options,
                                            const Rendezvous& rendezvous, Acceptor* acceptor,
                                            UnaryHandler* unary) {
  GrpcTransportOptions grpc;
  absl::StatusOr<Credentials> credentials = credentials_of(options, rendezvous);
  if (!credentials.ok()) return credentials.status();
  grpc.credentials = *std::move(credentials);
  grpc.client_token = options.job_token;
  grpc.limits = limits_of(options);
  grpc.advertised = options.advertise_address;
  grpc.tuning.max_unary_bytes = options.max_client_request_bytes;
  if (const auto memory = read_host_limits().memory; memory.has_value()) {
    grpc.tuning.max_unary_held_bytes =
        std::min<std::uint64_t>(grpc.tuning.max_unary_held_bytes, memory->most / 4);
    // What is larger would never find room.
    grpc.tuning.max_unary_bytes =
        std::min(grpc.tuning.max_unary_bytes, grpc.tuning.max_unary_held_bytes);
  }
  grpc.tuning.local_sockets = options.same_host;
  grpc.tuning.same_host_plane = options.same_host;
  const absl::StatusOr<std::chrono::nanoseconds> max_poll = max_poll_of(options);
  if (!max_poll.ok()) return max_poll.status();
  grpc.tuning.max_poll = *max_poll;
  grpc.log = [name = options.name](const std::string& text) { log_line(name, text); };
  if (options.ucx) {
    if (absl::Status status = add_ucx(options.credentials, grpc); !status.ok()) return status;
  }
  if (absl::Status status = choose_addresses(options, rendezvous, grpc); !status.ok()) {
    return status;
  }
  StartedTransport started;
  absl::Status not_served;
  if (rendezvous.kind == Rendezvous::Kind::kTcp && rendezvous.founds) {
    for (const std::string& seed : rendezvous.seeds) {
      started.transport = make_grpc_transport(serving(grpc, options, rendezvous, seed));
      const absl::Status status = start_one(options, started.transport, acceptor, unary);
      started.served_seed = seed;
      if (status.ok()) return started;
      not_served.Update(status);
    }
    started.served_seed.clear();
    // In open membership another worker may have founded the job, here or on another host.
    if (rendezvous.world_size != 0) return not_served;
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
    return start_inproc(options, acceptor, unary);
  }
  return start_grpc(options, rendezvous, acceptor, unary);
}

std::function<Future<std::vector<Contact>>(const std::string& seed)> make_seed_resolver(
    const Rendezvous& rendezvous, std::shared_ptr<Executor> executor) {
  const bool has_names =
      rendezvous.kind == Rendezvous::Kind::kTcp &&
      std::any_of(rendezvous.seeds.begin(), rendezvous.seeds.end(), [](const std::string& seed) {
        const absl::StatusOr<HostPort> parsed = parse_host_port(seed);
        return parsed.ok() && !parsed->is_ipv4() && !parsed->is_ipv6() && !parsed->is_loopback();
      });
  if (!has_names) return nullptr;
  return [executor = std::move(executor)](const std::string& seed) {
    const Promise<std::vector<Contact>> promise(executor.get());
    const bool is_taken = executor->post([promise, seed] {
      try {
        const Executor::BlockingScope blocking;
        absl::StatusOr<std::vector<std::string>> addresses = addresses_of(seed);
        if (!addresses.ok()) throw_error(addresses.status());
        std::vector<Contact> contacts;
        for (std::string& each : *addresses) {
          contacts.push_back({std::move(each), "", parse_host_port(seed)->host});
        }
        promise.try_set_value(std::move(contacts));
      } catch (const std::exception&) {
        promise.try_set_error(std::current_exception());
      }
    });
    if (!is_taken) {
      promise.try_set_error(make_error(absl::UnavailableError("this worker shuts down")));
    }
    return promise.future();
  };
}

}  // namespace sinew::internal
