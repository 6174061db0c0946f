#include "sinew/rpc/transport/grpc/server/health_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/transport/grpc/server/service_names.h"
#include "sinew/standard/grpc/health/v1/health.pb.h"

namespace sinew::internal {
namespace {

namespace health = standard::grpc::health::v1;

grpc::ByteBuffer response(health::HealthCheckResponse::ServingStatus status) {
  health::HealthCheckResponse response;
  response.set_status(status);
  return serialize_message(response);
}

}  // namespace

void HealthCall::start(Method method, const std::shared_ptr<ForeignCalls>& calls,
                       std::unique_ptr<ServerCall> call) {
  ForeignCall::start(std::shared_ptr<HealthCall>(new HealthCall(method, calls, std::move(call))));
}

void HealthCall::on_message(const grpc::ByteBuffer& message) {
  health::HealthCheckRequest request;
  if (absl::Status status = parse_message(message, request); !status.ok()) {
    finish(status);
    return;
  }
  const bool known = request.service().empty() || request.service() == kWorkerService;
  if (method_ == Method::kWatch) {
    write(response(known ? health::HealthCheckResponse::SERVING
                         : health::HealthCheckResponse::SERVICE_UNKNOWN));
  } else if (known) {
    write_and_finish(response(health::HealthCheckResponse::SERVING));
  } else {
    finish(absl::NotFoundError(
        absl::StrCat("no service \"", printable(request.service()), "\" is served here")));
  }
}

void HealthCall::on_messages_end() {
  finish(absl::InvalidArgumentError("a health check without a request"));
}

void HealthCall::end(const absl::Status& status) {
  if (method_ == Method::kWatch) {
    write_and_finish(response(health::HealthCheckResponse::NOT_SERVING));
  } else {
    finish(status);
  }
}

}  // namespace sinew::internal
