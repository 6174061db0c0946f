#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "sinew/rpc/base/internal/file_descriptor.h"
#include "sinew/rpc/transport/grpc/connection/transport_core.h"
#include "sinew/rpc/transport/grpc/local/host_port.h"
#include "sinew/rpc/transport/grpc/server/accept_loop.h"
#include "sinew/rpc/transport/grpc/server/open_sockets.h"
#include "sinew/rpc/transport/grpc/server/worker_service.h"
#include "sinew/rpc/transport/transport.h"

namespace sinew::internal {

/// The listening side: sinew.proto.Worker, health and reflection on all addresses of the options.
class Server {
 public:
  /// Errors as in Transport::start().
  static absl::StatusOr<std::unique_ptr<Server>> start(std::shared_ptr<TransportCore> core,
                                                       Acceptor* acceptor, UnaryHandler* unary);

  /// The real port of the first address.
  int port() const { return ports_.front(); }

  /// Stops accepting and ends every call. Calls may report their ends afterwards.
  void shutdown();

 private:
  Server(std::shared_ptr<TransportCore> core, Acceptor* acceptor, UnaryHandler* unary);
  absl::Status listen();
  /// The addresses of the options with their real ports.
  std::vector<HostPort> listened() const;
  // On the thread of accept_loop_.
  void serve_tcp(FileDescriptor accepted);
  void serve_local(FileDescriptor accepted);
  bool is_let_in(const FileDescriptor& accepted, const std::string& origin,
                 const std::string& endpoint);
  void await_call();

  const std::shared_ptr<TransportCore> core_;
  // Before the server, which uses it to its end.
  WorkerService service_;
  grpc::AsyncGenericService calls_;
  std::vector<int> ports_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> tcp_acceptor_;
  std::unique_ptr<grpc::Server> server_;
  /// Touched by the thread of accept_loop_.
  OpenSockets open_sockets_;
  std::unique_ptr<AcceptLoop> accept_loop_;
};

}  // namespace sinew::internal
