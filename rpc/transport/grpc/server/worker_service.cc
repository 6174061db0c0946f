#include "sinew/rpc/transport/grpc/server/worker_service.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/transport/grpc/foreign/foreign_unary_call.h"
#include "sinew/rpc/transport/grpc/server/health_call.h"
#include "sinew/rpc/transport/grpc/server/reflection_call.h"
#include "sinew/rpc/transport/grpc/server/service_names.h"
#include "sinew/rpc/transport/origin.h"

namespace sinew::internal {

void WorkerService::serve(std::unique_ptr<ServerCall> call) {
  if (!core_->strangers().turned_away.none()) {
    const std::string why = core_->strangers().turned_away.why(endpoint_of(call->context().peer()));
    if (!why.empty()) {
      refuse_exchange(std::move(call), absl::UnavailableError(why));
      return;
    }
  }
  const std::string& method = call->method();
  if (method == kExchangeMethod) {
    serve_exchange(std::move(call));
  } else if (is_for_clients(method) && !brings_token(*call)) {
    ServerCall::refuse(
        std::move(call),
        did_not_run(absl::UnauthenticatedError(
            "this worker's job has a token, and the call does not bring it: clients send what "
            "SINEW_JOB_TOKEN says as metadata \"authorization: Bearer TOKEN\"")));
  } else if (method == kCallMethod) {
    ForeignUnaryCall::start(core_, foreign_calls_, unary_, std::move(call));
  } else if (method == kHealthCheckMethod) {
    HealthCall::start(HealthCall::Method::kCheck, foreign_calls_, std::move(call));
  } else if (method == kHealthWatchMethod) {
    HealthCall::start(HealthCall::Method::kWatch, foreign_calls_, std::move(call));
  } else if (std::find(std::begin(kReflectionMethods), std::end(kReflectionMethods), method) !=
             std::end(kReflectionMethods)) {
    ReflectionCall::start(foreign_calls_, std::move(call));
  } else {
    const absl::Status unknown =
        absl::UnimplementedError(absl::StrCat("a Sinew worker has no method ", printable(method)));
    ServerCall::refuse(std::move(call), unknown);
  }
}

// Health is open to the probes of orchestrators, which have no place for a token.
bool WorkerService::is_for_clients(const std::string& method) {
  return method == kCallMethod ||
         std::find(std::begin(kReflectionMethods), std::end(kReflectionMethods), method) !=
             std::end(kReflectionMethods);
}

bool WorkerService::brings_token(const ServerCall& call) const {
  const std::string& token = core_->options().client_token;
  if (token.empty()) return true;
  const std::string expected = absl::StrCat("Bearer ", token);
  const std::string brought = call.metadata("authorization");
  return brought.size() == expected.size() &&
         CRYPTO_memcmp(brought.data(), expected.data(), expected.size()) == 0;
}

void WorkerService::serve_exchange(std::unique_ptr<ServerCall> call) {
  const std::optional<StreamKind> kind = parse_lane(call->metadata(kLaneMetadata));
  if (!kind) {
    refuse_exchange(std::move(call), absl::InvalidArgumentError(
                                         "Exchange is for Sinew workers; other clients use Call"));
    return;
  }
  if (*kind == StreamKind::kControl) {
    AcceptedConnection::accept(core_, tokens_, acceptor_, std::move(call));
    return;
  }
  const std::shared_ptr<AcceptedConnection> connection =
      tokens_->find(call->metadata(kTokenMetadata));
  if (connection == nullptr) {
    refuse_exchange(std::move(call),
                    absl::PermissionDeniedError("no connection is known by this token"));
    return;
  }
  connection->attach(*kind, std::move(call));
}

}  // namespace sinew::internal
