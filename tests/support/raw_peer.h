#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sinew/link.pb.h"
#include "sinew/rpc.pb.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/link/frame_numbers.h"
#include "sinew/rpc/link/hello.h"
#include "sinew/rpc/link/link_messages.h"
#include "sinew/rpc/transport/credentials.h"
#include "sinew/rpc/transport/transport.h"
#include "sinew/tests/transport/recording_handler.h"

namespace sinew::testing {

/// With the incarnation of the key, unless they have one.
WorkerInfo claiming(WorkerInfo claims, const internal::WorkerKey& key);
/// Over gRPC; it has not been started.
std::unique_ptr<internal::Transport> make_transport_of(Credentials credentials);

/// What a RawPeer does otherwise than a worker when it opens a connection.
struct Handshake {
  enum class Signature { kOwn, kNone, kWrong };
  Signature signature = Signature::kOwn;
  /// Changes what is said, before it is signed.
  std::function<void(proto::Hello&)> change;
};

/// One end of a link that is made by hand, frame by frame: it behaves like a worker's where it is
/// not told to lie. For what no worker of ours would ever send. It opens all connections itself.
/// Not thread-safe.
class RawPeer {
 public:
  /// `claims` is who it says it is. Without an incarnation there, it has that of its own key.
  explicit RawPeer(WorkerInfo claims, Credentials credentials = Credentials::insecure());
  /// Over a transport that has not been started.
  RawPeer(WorkerInfo claims, std::unique_ptr<internal::Transport> transport);
  ~RawPeer();
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;

  const WorkerInfo& claims() const { return claims_; }
  const std::shared_ptr<const internal::WorkerKey>& key() const { return key_; }
  /// Where it says that it can be reached. Whoever comes is refused.
  std::string address() const { return transport_->address(); }

  /// What it knows of the job's token.
  void set_token(std::string token) { token_ = std::move(token); }

  // --- Connections.

  /// Asks who answers at an address: a hello that names nobody. The status of the refusal when it
  /// is none that says so.
  absl::StatusOr<WorkerInfo> ask(const std::string& address);
  /// Whom its link is with. If nobody has said, the first connect() asks.
  void set_peer(const WorkerInfo& peer);

  /// Opens a connection of its link with the worker at `address`: the link's first one, or the next
  /// one. OK, or why it was refused; see refused_as(). The connection that it has stays as it is
  /// then. Fails the test if the answer is not proved.
  absl::Status connect(const std::string& address, const Handshake& handshake = {});
  /// What the last attempt was refused as; ACCEPTED if it was not.
  proto::Refusal refused_as() const { return refused_as_; }
  /// Waits until the worker at `address` says that the link has ended there. Keeps it alive no
  /// longer than it lives. False if it stayed.
  bool wait_ended(const std::string& address);
  /// Forgets the link: the next connection makes another one.
  void forget();
  /// Waits until the connection is down. False if it stayed.
  bool wait_down() { return opened_->wait_down(); }
  bool is_down() const { return opened_->is_down(); }
  /// Takes the connection down.
  void disconnect();

  // --- Frames that it sends. Each has the next number of its lane.

  using ChangeHeader = std::function<void(internal::LinkHeader&)>;
  void send(internal::FrameKind kind, const proto::Envelope& envelope,
            const ChangeHeader& change = {});
  /// A frame that its sender has given up, and that took the room of so many bytes.
  void send_void(internal::FrameKind kind, std::uint64_t bytes);
  /// A frame of the link itself, without a number.
  void send_link(const ChangeHeader& change);
  /// Anything at all.
  void send_bytes(internal::Lane lane, internal::HeaderBytes header, std::string envelope = "");
  /// From now on it answers no heartbeat and gives no receipts.
  void fall_silent();

  /// Sends a call of a method that returns its id; see reply().
  std::uint64_t call(const std::string& method, const std::function<void(proto::Call&)>& fill = {});
  /// What a control call was answered with: the bytes, or the error; kDeadlineExceeded if nothing
  /// came. Control frames are looked at in order, so those before it have been by then.
  absl::StatusOr<std::string> control_call(const std::string& method, const std::string& body = "");
  void send_note(const std::string& layer, std::string body);
  /// Waits until all that it has sent has arrived, but for notes: these are handled first. False if
  /// the other end never said so.
  bool wait_receipts();

  // --- Frames that it has received.

  /// The answer to a call, waiting for it; nullopt if none comes.
  std::optional<proto::Reply> reply(std::uint64_t id);
  /// All envelopes so far.
  std::vector<proto::Envelope> heard() const;
  /// How many heartbeats the other end has answered.
  int beats_answered() const;

 private:
  void on_frames(const std::shared_ptr<internal::Connection>& connection,
                 const std::vector<internal::Frame>& frames);
  std::string make_hello(const Handshake& handshake);
  struct Attempt {
    std::shared_ptr<internal::RecordingHandler> handler;
    std::shared_ptr<internal::Connection> connection;
    absl::Status status;
    proto::Hello refusal;
  };
  Attempt open(const std::string& address, const std::string& hello,
               const std::string& expected_name);
  std::uint64_t next_number(internal::FrameKind kind);
  void note_receipts_locked(const internal::NumberRange& range, std::size_t lane)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  internal::SelfDescription self() const;

  const std::shared_ptr<const internal::WorkerKey> key_ = internal::WorkerKey::draw();
  const WorkerInfo claims_;
  std::string token_;
  internal::RecordingAcceptor acceptor_;
  std::unique_ptr<internal::Transport> transport_;
  std::shared_ptr<internal::RecordingHandler> opened_;
  std::shared_ptr<internal::Connection> connection_;
  proto::Refusal refused_as_ = proto::ACCEPTED;

  // The link.
  std::optional<WorkerInfo> peer_;
  std::uint64_t attempts_ = 0;
  internal::ConnectionName last_up_;
  std::uint64_t last_number_[internal::kLaneCount] = {};
  std::set<std::uint64_t> notes_;
  std::uint64_t last_call_ = 0;

  mutable internal::Mutex mutex_;
  bool silent_ ABSL_GUARDED_BY(mutex_) = false;
  int beats_answered_ ABSL_GUARDED_BY(mutex_) = 0;
  internal::FrameNumbers received_[internal::kLaneCount] ABSL_GUARDED_BY(mutex_);
  std::vector<proto::Envelope> heard_ ABSL_GUARDED_BY(mutex_);
  // What the other end has said to have received.
  internal::FrameNumbers receipts_[internal::kLaneCount] ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::testing
