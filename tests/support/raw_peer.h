#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "sinew/rpc.pb.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/transport/credentials.h"
#include "sinew/rpc/transport/transport.h"
#include "sinew/rref.pb.h"
#include "sinew/tests/transport/recording_handler.h"

namespace sinew::testing {

/// Speaks to workers over gRPC, frame by frame, and says what the test wants it to: for what no
/// worker of ours would ever send. Workers can answer it at an address of its own. Not thread-safe.
class RawPeer {
 public:
  /// `claims` is who it says it is. With rank -1 it has not joined.
  explicit RawPeer(WorkerInfo claims, Credentials credentials = Credentials::insecure());
  ~RawPeer();
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;

  /// Opens a connection to the worker at `address`. OK, or why it was refused.
  absl::Status connect(const std::string& address);
  void send(const proto::Envelope& envelope, internal::Lane lane = internal::Lane::kControl);
  /// What has come so far on the connection that it opened, in the order of each lane.
  std::vector<std::string> heard() const;
  bool is_down() const { return opened_->is_down(); }
  /// Waits until the connection that it opened is down. False if it stayed.
  bool wait_down() { return opened_->wait_down(); }

  /// Sends a message about references, with a number that the receiver has not seen, until it says
  /// that it has got it. False if it never did.
  bool deliver(proto::LedgerMessage message);
  /// The worker's next message about references that it has not told before; nullopt if none comes.
  std::optional<proto::LedgerMessage> receive();

 private:
  void collect();

  const WorkerInfo claims_;
  internal::RecordingAcceptor acceptor_;
  std::unique_ptr<internal::Transport> transport_;
  std::shared_ptr<internal::RecordingHandler> opened_;
  std::shared_ptr<internal::Connection> connection_;
  std::uint64_t last_sent_ = 0;
  std::uint64_t acknowledged_ = 0;
  std::uint64_t last_received_ = 0;
  std::vector<proto::LedgerMessage> received_;
};

}  // namespace sinew::testing
