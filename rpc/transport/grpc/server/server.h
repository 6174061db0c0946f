#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/server.h"
#include "sinew/rpc/transport/grpc/connection/transport_core.h"
#include "sinew/rpc/transport/grpc/local/local_socket.h"
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
  void listen_locally();
  void await_call();

  const std::shared_ptr<TransportCore> core_;
  // Before the server, which uses it to its end.
  WorkerService service_;
  grpc::AsyncGenericService calls_;
  std::vector<int> ports_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<LocalListener> local_listener_;
};

}  // namespace sinew::internal
