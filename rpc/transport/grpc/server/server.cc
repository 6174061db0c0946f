#include "sinew/rpc/transport/grpc/server/server.h"

#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "grpcpp/ext/health_check_service_server_builder_option.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_posix.h"
#include "sinew/rpc/transport/grpc/connection/channel.h"
#include "sinew/rpc/transport/grpc/connection/packet.h"
#include "sinew/rpc/transport/grpc/local/host_port.h"
#include "sinew/rpc/transport/grpc/local/local_socket.h"
#include "sinew/rpc/transport/grpc/server/tcp_sockets.h"
#include "sinew/rpc/transport/origin.h"

namespace sinew::internal {
namespace {

// After so long without a stream a connection is closed, politely: a client that needs it makes
// another one. Workers always have streams.
constexpr int kIdleMs = 5 * 60 * 1000;
constexpr int kMaxMetadataBytes = 8 << 10;

}  // namespace

Server::Server(std::shared_ptr<TransportCore> core, Acceptor* acceptor, UnaryHandler* unary)
    : core_(std::move(core)),
      service_(core_, acceptor, unary),
      open_sockets_(core_->options().tuning.max_connections) {}

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
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             static_cast<int>(options.limits.connect_timeout.count()));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleMs);
  // gRPC's default differs between versions.
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder.SetMaxReceiveMessageSize(
      static_cast<int>(std::max(kMaxPacketBytes, options.tuning.max_unary_bytes) + 1024));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                             options.tuning.max_concurrent_streams);
  builder.RegisterAsyncGenericService(&calls_);
  std::vector<AcceptLoop::Listener> listeners;
  for (const std::string& address : options.listen) {
    absl::StatusOr<TcpSockets> tcp = listen_on_tcp(address, options.credentials, kGiveUpAfter);
    if (!tcp.ok()) return tcp.status();
    ports_.push_back(tcp->port);
    for (FileDescriptor& socket : tcp->sockets) {
      listeners.push_back(
          {std::move(socket), [this](FileDescriptor accepted) { serve_tcp(std::move(accepted)); }});
    }
  }
  tcp_acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, *credentials);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) return absl::InternalError("gRPC did not start the server");
  if (uses_local_sockets(options)) {
    for (FileDescriptor& socket : listen_locally(listened())) {
      listeners.push_back({std::move(socket),
                           [this](FileDescriptor accepted) { serve_local(std::move(accepted)); }});
    }
  }
  absl::StatusOr<std::unique_ptr<AcceptLoop>> loop =
      AcceptLoop::start(std::move(listeners),
                        [this](const std::string& text) { core_->strangers().refusals.add(text); });
  if (!loop.ok()) return loop.status();
  accept_loop_ = *std::move(loop);
  await_call();
  return absl::OkStatus();
}

std::vector<HostPort> Server::listened() const {
  std::vector<HostPort> addresses;
  for (std::size_t i = 0; i < ports_.size(); ++i) {
    const absl::StatusOr<HostPort> address = parse_host_port(core_->options().listen[i]);
    if (address.ok()) addresses.push_back({address->host, ports_[i]});
  }
  return addresses;
}

void Server::serve_tcp(FileDescriptor accepted) {
  sockaddr_storage peer{};
  socklen_t size = sizeof peer;
  // It may have left already.
  if (::getpeername(accepted.number(), reinterpret_cast<sockaddr*>(&peer), &size) != 0) return;
  if (!is_let_in(accepted, origin_of(peer), endpoint_of(peer))) return;
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
  connection.fd = accepted.release();
  tcp_acceptor_->HandleNewConnection(&connection);
}

void Server::serve_local(FileDescriptor accepted) {
  if (!is_of_this_user(accepted)) return;
  // As gRPC calls it, which knows no address of it.
  if (!is_let_in(accepted, kOwnUser, absl::StrCat("fd:", accepted.number()))) return;
  grpc::AddInsecureChannelFromFd(server_.get(), accepted.release());
}

// True also for a connection that is only to hear that there is no room for it.
bool Server::is_let_in(const FileDescriptor& accepted, const std::string& origin,
                       const std::string& endpoint) {
  TurnedAway& turned_away = core_->strangers().turned_away;
  const OpenSockets::Room room = open_sockets_.admit(accepted, origin);
  if (room == OpenSockets::Room::kForOneMore) {
    turned_away.remove(endpoint);
    return true;
  }
  const std::string why = open_sockets_.no_room_text();
  core_->strangers().refusals.add(
      absl::StrCat("a connection from ", origin, " was refused: ", why));
  if (room == OpenSockets::Room::kNone) return false;
  turned_away.add(endpoint, why);
  return true;
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
  accept_loop_ = nullptr;
  service_.end_foreign_calls(absl::UnavailableError("the worker shuts down"));
  server_->Shutdown(std::chrono::system_clock::now() + core_->options().tuning.shutdown_grace);
}

}  // namespace sinew::internal
