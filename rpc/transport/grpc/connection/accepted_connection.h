#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/transport/grpc/connection/grpc_connection.h"
#include "sinew/rpc/transport/grpc/connection/server_stream.h"
#include "sinew/rpc/transport/quota.h"

namespace sinew::internal {

class AcceptedConnection;

/// Finds the connection that a stream belongs to, by a token that only its opener was told.
/// Thread-safe.
class TokenRegistry {
 public:
  std::string issue(const std::shared_ptr<AcceptedConnection>& connection);
  std::shared_ptr<AcceptedConnection> find(const std::string& token);
  void revoke(const std::string& token);

 private:
  Mutex mutex_;
  absl::flat_hash_map<std::string, std::weak_ptr<AcceptedConnection>> connections_
      ABSL_GUARDED_BY(mutex_);
};

/// The acceptor's end of a connection; see OpenedConnection for the handshake.
class AcceptedConnection final : public GrpcConnection {
 public:
  /// A control stream has arrived, which is refused when there are too many. `acceptor` outlives
  /// the transport's shutdown.
  static void accept(std::shared_ptr<TransportCore> core, std::shared_ptr<TokenRegistry> tokens,
                     Acceptor* acceptor, std::unique_ptr<ServerCall> call);
  /// Another stream has arrived, with this connection's token: that of the calls or the bulk lane.
  void attach(StreamKind kind, std::unique_ptr<ServerCall> call);

 private:
  AcceptedConnection(std::shared_ptr<TransportCore> core, std::shared_ptr<TokenRegistry> tokens,
                     Acceptor* acceptor, std::string origin, Quota::Share handshake);

  std::shared_ptr<AcceptedConnection> self() {
    return std::static_pointer_cast<AcceptedConnection>(shared_from_this());
  }
  void on_handshake_read(StreamKind stream, grpc::ByteBuffer message) override;
  absl::Status ask_acceptor(const grpc::ByteBuffer& message);
  void come_up(grpc::ByteBuffer message);
  bool may_ride(const PacketFrame&, std::size_t) override { return true; }
  absl::Status explain_end(const absl::Status& status, bool said_by_acceptor) const override;
  void release() override;
  void end_handshake();
  void end_turn();

  const std::shared_ptr<TokenRegistry> tokens_;
  Acceptor* const acceptor_;
  /// Every stream must come from here.
  const std::string origin_;
  /// Taken as long as the connection is on its way up.
  Mutex handshake_mutex_;
  Quota::Share handshake_ ABSL_GUARDED_BY(handshake_mutex_);
  /// The number of its turn among hellos.
  std::uint64_t turn_ ABSL_GUARDED_BY(handshake_mutex_) = 0;
  /// Lanes are read.
  bool is_reading_ ABSL_GUARDED_BY(handshake_mutex_) = false;
  /// Streams that have arrived before that.
  std::vector<std::shared_ptr<LaneStream>> unread_ ABSL_GUARDED_BY(handshake_mutex_);
  /// Written by the reads of the control lane, which come one after the other.
  bool is_answered_ = false;
  /// The lanes that have joined it, a bit each.
  std::atomic<unsigned> attached_{0};
  /// Written during the handshake, read by release() after it.
  std::string token_;
};

}  // namespace sinew::internal
