#pragma once

#include <memory>
#include <utility>

#include "sinew/rpc/transport/grpc/foreign/foreign_call.h"

namespace sinew::internal {

/// A call of gRPC's ServerReflection service, by which tools learn what a worker serves and which
/// messages that takes. Answers each request in turn, from the descriptors of Sinew's own protos.
class ReflectionCall final : public ForeignCall {
 public:
  static void start(const std::shared_ptr<ForeignCalls>& calls, std::unique_ptr<ServerCall> call);

 private:
  ReflectionCall(const std::shared_ptr<ForeignCalls>& calls, std::unique_ptr<ServerCall> call)
      : ForeignCall(calls, std::move(call), calls->strangers().inquiries) {}
  void on_message(const grpc::ByteBuffer& message) override;
  void on_written() override { read_next(); }
};

}  // namespace sinew::internal
