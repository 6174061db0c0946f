#pragma once

#include <memory>

#include "grpcpp/support/server_callback.h"
#include "sinew/rpc.grpc.pb.h"
#include "sinew/rpc/transport/grpc/internal/accepted_connection.h"
#include "sinew/rpc/transport/grpc/internal/grpc_unary_call.h"
#include "sinew/rpc/transport/grpc/internal/transport_core.h"

namespace sinew::internal {

/// sinew.proto.Worker as gRPC sees it: both methods with raw bytes, under their registered names so
/// that reflection lists them.
class WorkerService final : public proto::Worker::WithRawCallbackMethod_Exchange<
                                proto::Worker::WithRawCallbackMethod_Call<proto::Worker::Service>> {
 public:
  /// `acceptor` and `unary` (may be null) outlive the server.
  WorkerService(std::shared_ptr<TransportCore> core, Acceptor* acceptor, UnaryHandler* unary)
      : core_(std::move(core)), acceptor_(acceptor), unary_(unary) {}

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Exchange(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* Call(grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* response) override;

  /// Answers the unary calls that nobody has answered.
  void fail_unary_calls(const absl::Status& status) { unary_calls_->fail_all(status); }

 private:
  const std::shared_ptr<TransportCore> core_;
  Acceptor* const acceptor_;
  UnaryHandler* const unary_;
  const std::shared_ptr<TokenRegistry> tokens_ = std::make_shared<TokenRegistry>();
  const std::shared_ptr<UnaryCalls> unary_calls_ = std::make_shared<UnaryCalls>();
};

}  // namespace sinew::internal
