#pragma once

#include <memory>
#include <string>

#include "sinew/rpc/transport/grpc/connection/accepted_connection.h"
#include "sinew/rpc/transport/grpc/connection/transport_core.h"
#include "sinew/rpc/transport/grpc/foreign/foreign_call.h"
#include "sinew/rpc/transport/grpc/server/server_call.h"

namespace sinew::internal {

/// Hands each call that comes in to what serves its method: sinew.proto.Worker, health checks and
/// reflection. gRPC's own implementations of the last two bring polling threads along, which share
/// the work of ours and so cost every call of a worker a wake-up.
class WorkerService {
 public:
  /// `acceptor` and `unary` (may be null) outlive the server.
  WorkerService(std::shared_ptr<TransportCore> core, Acceptor* acceptor, UnaryHandler* unary)
      : core_(std::move(core)), acceptor_(acceptor), unary_(unary) {
    foreign_calls_->start();
  }

  void serve(std::unique_ptr<ServerCall> call);
  /// Ends the calls of foreign clients.
  void end_foreign_calls(const absl::Status& status) { foreign_calls_->end_all(status); }

 private:
  static bool is_for_clients(const std::string& method);
  bool brings_token(const ServerCall& call) const;
  void serve_exchange(std::unique_ptr<ServerCall> call);

  const std::shared_ptr<TransportCore> core_;
  Acceptor* const acceptor_;
  UnaryHandler* const unary_;
  const std::shared_ptr<TokenRegistry> tokens_ = std::make_shared<TokenRegistry>();
  const std::shared_ptr<ForeignCalls> foreign_calls_ = std::make_shared<ForeignCalls>(core_);
};

}  // namespace sinew::internal
