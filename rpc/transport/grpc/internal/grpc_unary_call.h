#pragma once

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "sinew/rpc/transport/grpc/internal/transport_core.h"
#include "sinew/rpc/transport/transport.h"

namespace sinew::internal {

class GrpcUnaryReactor;

/// The unary calls that have no answer yet, so that shutdown can give them one. Thread-safe.
class UnaryCalls {
 public:
  void add(std::shared_ptr<GrpcUnaryReactor> call);
  void remove(const std::shared_ptr<GrpcUnaryReactor>& call);
  void fail_all(const absl::Status& status);

 private:
  absl::Mutex mutex_;
  absl::flat_hash_set<std::shared_ptr<GrpcUnaryReactor>> calls_ ABSL_GUARDED_BY(mutex_);
};

/// gRPC's side of one unary call of a foreign client.
class GrpcUnaryReactor final : public grpc::ServerUnaryReactor,
                               public std::enable_shared_from_this<GrpcUnaryReactor> {
 public:
  /// Takes the call to `handler` (null: nobody answers such calls), or refuses it.
  static grpc::ServerUnaryReactor* start(const std::shared_ptr<TransportCore>& core,
                                         std::shared_ptr<UnaryCalls> calls, UnaryHandler* handler,
                                         grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response);

  const AuthenticatedPeer& remote() const { return remote_; }
  std::chrono::nanoseconds time_left() const;
  void notify_on_cancel(absl::AnyInvocable<void() &&> on_cancel);
  /// The first answer counts.
  void answer(const absl::Status& status, Frame reply);

 private:
  GrpcUnaryReactor(std::shared_ptr<TransportCore> core, std::shared_ptr<UnaryCalls> calls,
                   TransportCore::Hold hold, grpc::CallbackServerContext* context,
                   grpc::ByteBuffer* response);
  void OnCancel() override;
  void OnDone() override;

  const std::shared_ptr<TransportCore> core_;
  const std::shared_ptr<UnaryCalls> calls_;
  const std::chrono::system_clock::time_point deadline_;
  const AuthenticatedPeer remote_;
  /// gRPC's, valid until the answer has been given.
  grpc::ByteBuffer* const response_;
  TransportCore::Hold hold_;
  absl::Mutex mutex_;
  bool answered_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  absl::AnyInvocable<void() &&> on_cancel_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
