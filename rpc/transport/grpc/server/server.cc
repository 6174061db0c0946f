#include "sinew/rpc/transport/grpc/server/server.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "grpcpp/ext/health_check_service_server_builder_option.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/server_posix.h"
#include "sinew/rpc/transport/grpc/connection/channel.h"
#include "sinew/rpc/transport/grpc/connection/packet.h"
#include "sinew/rpc/transport/grpc/local/host_port.h"

namespace sinew::internal {
namespace {

absl::Status cannot_listen(const std::string& address, int error) {
  if (error == EADDRINUSE) {
    return absl::AlreadyExistsError(
        absl::StrCat("cannot listen on ", address, ": another process uses this port"));
  }
  const std::string text = absl::StrCat("cannot listen on ", address, ": ", std::strerror(error));
  return error == EACCES ? absl::PermissionDeniedError(text) : absl::InvalidArgumentError(text);
}

/// Binds and lets go again, because gRPC keeps to itself why it cannot bind. Also tells whether the
/// host is loopback.
absl::Status try_bind(const std::string& address, const HostPort& host_port,
                      const Credentials& credentials) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(host_port.port);
  if (const int error = ::getaddrinfo(host_port.host.c_str(), port.c_str(), &hints, &found);
      error != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot listen on ", address, ": ", ::gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, ::freeaddrinfo);
  int error = 0;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    char numeric[NI_MAXHOST] = "";
    ::getnameinfo(each->ai_addr, each->ai_addrlen, numeric, sizeof numeric, nullptr, 0,
                  NI_NUMERICHOST);
    absl::Status allowed = check_reach(credentials, HostPort{numeric, 0}.is_loopback(), address);
    if (!allowed.ok()) return allowed;
    const int probe = ::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (probe < 0) {
      error = errno;
      continue;
    }
    const int on = 1;
    ::setsockopt(probe, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    const bool bound =
        ::bind(probe, each->ai_addr, each->ai_addrlen) == 0 && ::listen(probe, 1) == 0;
    error = bound ? 0 : errno;
    ::close(probe);
    if (bound) return absl::OkStatus();
  }
  return cannot_listen(address, error);
}

}  // namespace

Server::Server(std::shared_ptr<TransportCore> core, Acceptor* acceptor, UnaryHandler* unary)
    : core_(std::move(core)), service_(core_, acceptor, unary) {}

absl::StatusOr<std::unique_ptr<Server>> Server::start(std::shared_ptr<TransportCore> core,
                                                      Acceptor* acceptor, UnaryHandler* unary) {
  std::unique_ptr<Server> server(new Server(std::move(core), acceptor, unary));
  if (absl::Status status = server->listen(); !status.ok()) return status;
  return server;
}

absl::Status Server::listen() {
  const GrpcTransportOptions& options = core_->options();
  auto credentials = options.credentials.server_credentials();
  if (!credentials.ok()) return credentials.status();

  grpc::ServerBuilder& builder = core_->poller().server_builder();
  // The worker answers health checks itself; see WorkerService.
  builder.SetOption(std::make_unique<grpc::HealthCheckServiceServerBuilderOption>(nullptr));
  for (const auto& [name, value] : common_arguments()) builder.AddChannelArgument(name, value);
  // Two servers on one port would share its connections at random; the second one must fail.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.SetMaxReceiveMessageSize(
      static_cast<int>(std::max(kMaxPacketBytes, options.tuning.max_unary_bytes) + 1024));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                             options.tuning.max_concurrent_streams);
  builder.RegisterAsyncGenericService(&calls_);
  ports_.assign(options.listen.size(), 0);
  for (std::size_t i = 0; i < options.listen.size(); ++i) {
    const absl::StatusOr<HostPort> parsed = parse_host_port(options.listen[i]);
    if (!parsed.ok()) return parsed.status();
    absl::Status bindable = try_bind(options.listen[i], *parsed, options.credentials);
    if (!bindable.ok()) return bindable;
    builder.AddListeningPort(join_host_port(parsed->host, parsed->port), *credentials, &ports_[i]);
  }
  server_ = builder.BuildAndStart();
  for (std::size_t i = 0; i < ports_.size(); ++i) {
    // Somebody else was faster after try_bind().
    if (ports_[i] == 0) return cannot_listen(options.listen[i], EADDRINUSE);
  }
  if (server_ == nullptr) return absl::InternalError("gRPC did not start the server");
  await_call();
  if (uses_local_sockets(options)) listen_locally();
  return absl::OkStatus();
}

void Server::listen_locally() {
  std::vector<HostPort> addresses;
  for (std::size_t i = 0; i < ports_.size(); ++i) {
    const absl::StatusOr<HostPort> listened = parse_host_port(core_->options().listen[i]);
    if (listened.ok()) addresses.push_back({listened->host, ports_[i]});
  }
  local_listener_ = LocalListener::open(addresses, [this](FileDescriptor socket) {
    grpc::AddInsecureChannelFromFd(server_.get(), socket.release());
  });
}

void Server::await_call() {
  TransportCore::Hold hold = core_->hold();
  if (!hold) return;
  ServerCall::await(std::move(hold), core_->poller(), calls_,
                    [this](std::unique_ptr<ServerCall> call) {
                      await_call();
                      service_.serve(std::move(call));
                    });
}

void Server::shutdown() {
  local_listener_ = nullptr;
  service_.end_foreign_calls(absl::UnavailableError("the worker shuts down"));
  server_->Shutdown(std::chrono::system_clock::now() + core_->options().tuning.shutdown_grace);
}

}  // namespace sinew::internal
