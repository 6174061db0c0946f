#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sinew/rpc/transport/frame.h"

namespace sinew::internal {

/// Who the other end proved to be at the transport's level, as opposed to who it says it is in its
/// Hello.
struct AuthenticatedPeer {
  /// False when the transport has no way to tell (insecure credentials, inproc).
  bool authenticated = false;
  /// Names that the proof covers: the subject alternative names and the common name of a
  /// certificate.
  std::vector<std::string> names;
  /// Where it comes from, for texts: "ipv4:127.0.0.1:4242", "unix", "inproc:3".
  std::string address;
};

class ConnectionHandler;

/// One connection between two workers, with independent lanes that each keep order. It is directed:
/// the side that opened it sends requests, the other one replies on the same connection. So a side
/// that stops reading requests still gets the replies to its own, which travel on the connection
/// that it opened itself.
///
/// Thread-safe. Held by shared_ptr by both the transport and its user.
class Connection {
 public:
  virtual ~Connection() = default;

  /// Queues a frame. An idle lane sends at once, on the calling thread as far as that does not
  /// block; frames that become ready meanwhile leave together. Never blocks. kResourceExhausted
  /// when the lane's window is full (nothing is queued then), kUnavailable once the connection is
  /// down. Frames that were queued or sent when a connection breaks may or may not arrive.
  virtual absl::Status send(Lane lane, Frame frame) = 0;

  /// Takes the connection down; on_down follows unless it came before. Idempotent.
  virtual void close(absl::Status reason) = 0;

  virtual bool opened_here() const = 0;
  /// What the other end's handshake said: opaque bytes of the layer above.
  virtual const std::string& remote_hello() const = 0;
  virtual const AuthenticatedPeer& remote() const = 0;
  /// Bytes queued here that the other end has not taken yet, all lanes.
  virtual std::size_t queued_bytes() const = 0;
};

/// Callbacks of one connection, in this order: on_up once (or never), on_frames any number of
/// times, on_down exactly once. They run on transport threads: they must not block, and must not
/// run user code. on_frames of one lane are not concurrent with each other.
class ConnectionHandler {
 public:
  virtual ~ConnectionHandler() = default;
  virtual void on_up(const std::shared_ptr<Connection>& connection) = 0;
  virtual void on_frames(const std::shared_ptr<Connection>& connection, Lane lane,
                         std::vector<Frame> frames) = 0;
  /// `reason` is never OK. kUnavailable: broken, worth another try. kNotFound: the address refuses
  /// connections, or somebody else answers there: the peer is gone. kPermissionDenied,
  /// kUnauthenticated: refused, final. kCancelled: closed from here.
  virtual void on_down(const std::shared_ptr<Connection>& connection,
                       const absl::Status& reason) = 0;
};

/// Decides about connections that others open to this worker.
class Acceptor {
 public:
  struct Accepted {
    /// Goes back to the opener as the remote hello.
    std::string hello;
    std::shared_ptr<ConnectionHandler> handler;
  };
  virtual ~Acceptor() = default;
  /// Runs on a transport thread, must not block. An error refuses the connection; its text reaches
  /// the opener.
  virtual absl::StatusOr<Accepted> on_connection(const std::string& hello,
                                                 const AuthenticatedPeer& remote) = 0;
};

/// A request of a client that is no worker: one call and its one answer, both serialised Call/Reply
/// messages with payloads beside them (see CallRequest and CallResponse in protos/sinew/rpc.proto).
class UnaryCall {
 public:
  virtual ~UnaryCall() = default;
  virtual const AuthenticatedPeer& remote() const = 0;
  /// Serialised sinew.proto.Call.
  virtual Frame& request() = 0;
  /// Time left until the client gives up, or nanoseconds::max().
  virtual std::chrono::nanoseconds time_left() const = 0;
  /// Calls `on_cancel` once when the client goes away first. At most one callback.
  virtual void notify_on_cancel(absl::AnyInvocable<void() &&> on_cancel) = 0;
  /// Answers with a serialised sinew.proto.Reply. Exactly one of reply and fail must be called,
  /// once.
  virtual void reply(Frame reply) = 0;
  virtual void fail(const absl::Status& status) = 0;
};

class UnaryHandler {
 public:
  virtual ~UnaryHandler() = default;
  /// Runs on a transport thread, must not block.
  virtual void on_unary_call(std::unique_ptr<UnaryCall> call) = 0;
};

class PollingDuty;

/// Moves frames between workers. Implementations: inproc/, grpc/; the faulty one of the tests wraps
/// either. Thread-safe.
class Transport {
 public:
  struct Limits {
    /// Bytes queued for one peer on the calls lane (payloads included) before send() refuses.
    std::size_t send_window_bytes = std::size_t{256} << 20;
    /// The same for the control lane.
    std::size_t control_window_bytes = std::size_t{16} << 20;
    /// Received bytes of the calls lane whose credit is still out before the transport stops
    /// reading that lane.
    std::size_t receive_window_bytes = std::size_t{256} << 20;
    /// Largest frame, payloads included, that is accepted.
    std::size_t max_frame_bytes = std::size_t{16} << 30;
    /// Most payloads in a frame.
    std::size_t max_payloads = 65536;
    /// Time for a connection to be made, handshake included.
    std::chrono::milliseconds connect_timeout = std::chrono::seconds(10);
  };

  virtual ~Transport() = default;

  /// Starts to accept. `acceptor` and `unary` (may be null) must outlive shutdown().
  /// kAlreadyExists when the address is taken, kInvalidArgument when it makes no sense; the text
  /// names it.
  virtual absl::Status start(Acceptor* acceptor, UnaryHandler* unary) = 0;

  /// Where others reach this worker, as text that connect() takes. Valid after start().
  virtual std::string address() const = 0;

  /// Begins to open a connection; on_up or on_down of `handler` tells how it went. `hello` is shown
  /// to the acceptor there. `expected_name` is the name that the other end's proof of identity must
  /// cover; empty: the host of the address must be covered.
  virtual std::shared_ptr<Connection> connect(const std::string& address, const std::string& hello,
                                              const std::string& expected_name,
                                              std::shared_ptr<ConnectionHandler> handler) = 0;

  /// Lets threads that wait for what this transport receives poll for it by themselves, until
  /// shutdown(). Null when there is nothing to poll.
  virtual std::shared_ptr<PollingDuty> polling_duty() const { return nullptr; }

  /// Numbers about what it has done, for WorkerCore::counters().
  virtual std::map<std::string, std::int64_t> counters() const { return {}; }

  /// Stops accepting, closes every connection, waits until no callback runs or will run.
  /// Idempotent. Must not be called from a callback.
  virtual void shutdown() = 0;
};

}  // namespace sinew::internal
