#pragma once

#include <memory>
#include <utility>

#include "sinew/rpc/transport/grpc/foreign/foreign_call.h"

namespace sinew::internal {

/// A call of grpc.health.v1.Health, the service that load balancers and orchestrators ask. A worker
/// serves from the time that it listens until it shuts down.
class HealthCall final : public ForeignCall {
 public:
  /// Check answers once; Watch at once and again when the answer changes.
  enum class Method { kCheck, kWatch };
  static void start(Method method, const std::shared_ptr<ForeignCalls>& calls,
                    std::unique_ptr<ServerCall> call);
  void end(const absl::Status& status) override;

 private:
  HealthCall(Method method, const std::shared_ptr<ForeignCalls>& calls,
             std::unique_ptr<ServerCall> call)
      : ForeignCall(calls, std::move(call), calls->strangers().inquiries), method_(method) {}
  void on_message(const grpc::ByteBuffer& message) override;
  void on_messages_end() override;

  const Method method_;
};

}  // namespace sinew::internal
