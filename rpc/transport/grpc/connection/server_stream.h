#pragma once

#include <memory>
#include <optional>

#include "sinew/rpc/transport/grpc/connection/lane_stream.h"
#include "sinew/rpc/transport/grpc/server/server_call.h"

namespace sinew::internal {

/// The acceptor's end of a stream. Lives until gRPC has reported its end, even without another
/// holder.
class ServerStream final : public LaneStream, private ServerCallEvents {
 public:
  static std::shared_ptr<ServerStream> accept(StreamKind kind, std::shared_ptr<StreamEvents> events,
                                              std::unique_ptr<ServerCall> call);

 private:
  ServerStream(StreamKind kind, std::shared_ptr<StreamEvents> events,
               std::unique_ptr<ServerCall> call)
      : LaneStream(kind, AfterEnd::kNoReads, std::move(events)), call_(std::move(call)) {}

  std::optional<bool> issue_write(const grpc::ByteBuffer& message, WriteMode mode) override;
  void issue_read(grpc::ByteBuffer* message) override { call_->read(message); }
  void issue_end(const EndState& state) override;

  void on_read_done(bool ok) override { read_done(ok); }
  void on_write_done(bool ok) override { write_done(ok); }
  void on_cancelled() override { broken(); }
  void on_done() override;

  std::unique_ptr<ServerCall> call_;
  std::shared_ptr<ServerStream> self_;
};

/// Ends a stream that is refused with `status`.
void refuse_exchange(std::unique_ptr<ServerCall> call, const absl::Status& status);

}  // namespace sinew::internal
