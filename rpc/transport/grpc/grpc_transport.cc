#include "sinew/rpc/transport/grpc/grpc_transport.h"

#include <algorithm>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/receive_pool.h"
#include "sinew/rpc/transport/grpc/connection/opened_connection.h"
#include "sinew/rpc/transport/grpc/connection/transport_core.h"
#include "sinew/rpc/transport/grpc/local/host_port.h"
#include "sinew/rpc/transport/grpc/local/local_address.h"
#include "sinew/rpc/transport/grpc/server/server.h"

namespace sinew::internal {
namespace {

class GrpcTransport final : public Transport {
 public:
  explicit GrpcTransport(GrpcTransportOptions options)
      : core_(std::make_shared<TransportCore>(std::move(options))) {}
  ~GrpcTransport() override { shutdown(); }

  absl::Status start(Acceptor* acceptor, UnaryHandler* unary) override;
  std::string address() const override;
  std::shared_ptr<Connection> connect(const std::string& address, const std::string& hello,
                                      const std::string& expected_name,
                                      std::shared_ptr<ConnectionHandler> handler) override {
    return OpenedConnection::open(core_, address, hello, expected_name, std::move(handler));
  }
  std::shared_ptr<PollingDuty> polling_duty() const override { return core_->poller().duty(); }
  std::map<std::string, std::int64_t> counters() const override;
  void shutdown() override;

 private:
  /// The host part of address(): known before the port is.
  absl::StatusOr<std::string> advertised_host(const std::string& listen) const;
  absl::StatusOr<std::string> advertised_address(const std::string& host, int port) const;

  const std::shared_ptr<TransportCore> core_;
  /// Held throughout start() and shutdown(), so callbacks must not need it.
  Mutex lifecycle_mutex_;
  std::unique_ptr<Server> server_ ABSL_GUARDED_BY(lifecycle_mutex_);
  bool shut_down_ ABSL_GUARDED_BY(lifecycle_mutex_) = false;
  mutable Mutex address_mutex_;
  std::string address_ ABSL_GUARDED_BY(address_mutex_);
};

absl::StatusOr<std::string> GrpcTransport::advertised_host(const std::string& listen) const {
  const GrpcTransportOptions& options = core_->options();
  if (!options.advertised.empty()) return options.advertised;
  const absl::StatusOr<HostPort> bound = parse_host_port(listen);
  if (!bound.ok()) return bound.status();
  if (!bound->is_wildcard()) return bound->host;
  if (!options.advertise_towards.empty()) return local_address_towards(options.advertise_towards);
  return absl::InvalidArgumentError(absl::StrCat(
      listen,
      " stands for all addresses of this machine, so the one that others are to use must "
      "be given: set advertised or advertise_towards"));
}

// A host alone, even an IPv6 literal without brackets, or a host with the port that leads here.
absl::StatusOr<std::string> GrpcTransport::advertised_address(const std::string& host,
                                                              int port) const {
  const HostPort alone{host, 0};
  if (host.find(':') == std::string::npos || alone.is_ipv6()) return join_host_port(host, port);
  const absl::StatusOr<HostPort> whole = parse_host_port(host);
  if (!whole.ok()) return whole.status();
  if (whole->port == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        host, " cannot be advertised: leave the port out, or name the one that leads here"));
  }
  return join_host_port(whole->host, whole->port);
}

absl::Status GrpcTransport::start(Acceptor* acceptor, UnaryHandler* unary) {
  MutexLock lock(lifecycle_mutex_);
  if (shut_down_ || server_ != nullptr) {
    return absl::FailedPreconditionError("a transport starts once");
  }
  const std::vector<std::string>& listen = core_->options().listen;
  if (listen.empty()) return absl::InvalidArgumentError("no address to listen on");
  const absl::StatusOr<std::string> host = advertised_host(listen.front());
  if (!host.ok()) return host.status();
  // Before anything runs: whether it is an address at all.
  if (auto address = advertised_address(*host, 1); !address.ok()) return address.status();
  absl::StatusOr<std::unique_ptr<Server>> server = Server::start(core_, acceptor, unary);
  if (!server.ok()) return server.status();
  server_ = *std::move(server);
  core_->start();
  MutexLock address_lock(address_mutex_);
  address_ = *advertised_address(*host, server_->port());
  return absl::OkStatus();
}

std::string GrpcTransport::address() const {
  MutexLock lock(address_mutex_);
  return address_;
}

std::map<std::string, std::int64_t> GrpcTransport::counters() const {
  const Planes& planes = core_->planes();
  const PollingDuty::Stats polls = core_->poller().duty()->stats();
  return {{"rpc.plane_fetched_bytes", planes.fetched_bytes},
          {"rpc.plane_fetched_tensors", planes.fetched_transfers},
          {"rpc.plane_failures", planes.failed_transfers},
          {"rpc.polls_paid", polls.polls_paid},
          {"rpc.polls_in_vain", polls.polls_in_vain},
          {"rpc.polled_us",
           std::chrono::duration_cast<std::chrono::microseconds>(polls.polled).count()},
          {"rpc.wake_up_ns", WakeUpPrice::of_host().now().count()}};
}

void GrpcTransport::shutdown() {
  // Two callers at once: the second one returns when the first one is done.
  MutexLock lock(lifecycle_mutex_);
  if (std::exchange(shut_down_, true)) return;
  core_->begin_shutdown();
  if (server_ != nullptr) server_->shutdown();
  core_->finish_shutdown();
  server_.reset();
  core_->poller().shutdown();
  // It is not known whether the process goes on to receive.
  ReceivePool::of_process().trim();
}

}  // namespace

std::unique_ptr<Transport> make_grpc_transport(GrpcTransportOptions options) {
  return std::make_unique<GrpcTransport>(std::move(options));
}

}  // namespace sinew::internal
