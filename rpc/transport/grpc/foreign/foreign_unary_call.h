#pragma once

#include <chrono>
#include <cstddef>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "grpcpp/support/byte_buffer.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/transport/grpc/connection/transport_core.h"
#include "sinew/rpc/transport/grpc/foreign/foreign_call.h"
#include "sinew/rpc/transport/transport.h"

namespace sinew::internal {

/// gRPC's side of one unary call (sinew.proto.Worker/Call) of a foreign client.
class ForeignUnaryCall final : public ForeignCall {
 public:
  /// Takes the call to `handler` (null: such calls are not answered), or refuses it.
  static void start(const std::shared_ptr<TransportCore>& core,
                    const std::shared_ptr<ForeignCalls>& calls, UnaryHandler* handler,
                    std::unique_ptr<ServerCall> call);

  const AuthenticatedPeer& remote() const { return remote_; }
  std::chrono::nanoseconds time_left() const;
  void notify_on_cancel(absl::AnyInvocable<void() &&> on_cancel);
  /// The first answer counts.
  void answer(const absl::Status& status, Frame reply);

  void end(const absl::Status& status) override { answer(status, {}); }

 private:
  ForeignUnaryCall(std::shared_ptr<TransportCore> core, const std::shared_ptr<ForeignCalls>& calls,
                   UnaryHandler* handler, std::unique_ptr<ServerCall> call);
  void on_message(const grpc::ByteBuffer& message) override;
  void on_messages_end() override;
  void on_cancelled() override;
  void release() override;
  /// Before the handler has seen the call.
  void refuse(const absl::Status& status);
  absl::Status hold(std::size_t bytes, const char* what, Quota::IfAlone if_alone);

  const std::shared_ptr<TransportCore> core_;
  UnaryHandler* const handler_;
  const std::chrono::system_clock::time_point deadline_;
  const AuthenticatedPeer remote_;
  Mutex mutex_;
  bool answered_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  absl::AnyInvocable<void() &&> on_cancel_ ABSL_GUARDED_BY(mutex_);
  /// What its request, and after it its result, takes of the bytes that clients may have here.
  Quota::Share held_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
