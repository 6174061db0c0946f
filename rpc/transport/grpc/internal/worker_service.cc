#include "sinew/rpc/transport/grpc/internal/worker_service.h"

#include <optional>
#include <string>

#include "sinew/rpc/transport/grpc/internal/stream_metadata.h"

namespace sinew::internal {
namespace {

std::string metadata(const grpc::CallbackServerContext& context, const char* key) {
  const auto& all = context.client_metadata();
  const auto found = all.find(key);
  return found == all.end() ? "" : std::string(found->second.data(), found->second.size());
}

}  // namespace

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* WorkerService::Exchange(
    grpc::CallbackServerContext* context) {
  const std::optional<StreamKind> kind = parse_lane(metadata(*context, kLaneMetadata));
  if (!kind) {
    return refuse_exchange(context, absl::InvalidArgumentError(
                                        "Exchange is for Sinew workers; other clients use Call"));
  }
  if (*kind == StreamKind::kControl) {
    return AcceptedConnection::accept(core_, tokens_, acceptor_, context);
  }
  const std::shared_ptr<AcceptedConnection> connection =
      tokens_->find(metadata(*context, kTokenMetadata));
  if (connection == nullptr) {
    return refuse_exchange(context,
                           absl::PermissionDeniedError("no connection is known by this token"));
  }
  return connection->attach(*kind, context);
}

grpc::ServerUnaryReactor* WorkerService::Call(grpc::CallbackServerContext* context,
                                              const grpc::ByteBuffer* request,
                                              grpc::ByteBuffer* response) {
  return GrpcUnaryReactor::start(core_, unary_calls_, unary_, context, request, response);
}

}  // namespace sinew::internal
