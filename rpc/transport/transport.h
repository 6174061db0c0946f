#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sinew/rpc/base/process_hold.h"
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

/// Under this URL the status with which an Acceptor refuses a connection may carry bytes (a payload
/// of absl::Status) that reach the opener with it, in the status of on_down.
inline constexpr char kRefusalPayload[] = "sinew.dev/refusal";

/// Under this URL the status of a unary call that failed may carry a serialised sinew.proto.Error,
/// which clients get as a detail of the status.
inline constexpr char kErrorPayload[] = "type.googleapis.com/sinew.proto.Error";

/// One connection between two workers, with independent lanes that each keep order. Once it is up,
/// both ends are the same: either may send anything on any lane.
///
/// It knows no windows. What send() is given it queues, and every lane is always read, so that
/// neither end can stop the other: how much may be under way is for the layer above to agree.
///
/// Thread-safe. Held by shared_ptr by both the transport and its user.
class Connection {
 public:
  virtual ~Connection() = default;

  /// Queues a frame. An idle lane sends at once, on the calling thread as far as that does not
  /// block; frames that become ready meanwhile leave together. Never blocks. kInvalidArgument for a
  /// frame over Transport::Limits or kMaxHeaderBytes (nothing is queued then), kUnavailable once
  /// the connection is down. Frames that were queued or sent when a connection breaks may or may
  /// not arrive.
  virtual absl::Status send(Lane lane, Frame frame) = 0;

  /// Of what send() was given: bytes that wait here until the other end takes them, about. No lock.
  virtual std::uint64_t kept_bytes() const { return 0; }

  /// Takes the connection down; on_down follows unless it came before. Idempotent.
  virtual void close(absl::Status reason) = 0;

  /// What the other end's handshake said: opaque bytes of the layer above.
  virtual const std::string& remote_hello() const = 0;
  virtual const AuthenticatedPeer& remote() const = 0;
  /// The process at the other end, where the kernel has vouched that it is that; null otherwise,
  /// and until it has. Also after the connection is down.
  virtual std::shared_ptr<const ProcessHold> remote_process() const { return nullptr; }
  /// Ways outside of the streams for large payloads, and whether they work, as texts.
  virtual std::vector<std::string> planes() const { return {}; }
};

/// Callbacks of one connection, in this order: on_up once (or never), on_frames, on_announced and
/// on_lost any number of times, on_down exactly once. Either end may be up first. They run on
/// transport threads: they must not block, and must not run user code. on_frames of one lane are
/// not concurrent with each other, but with on_announced they may be.
class ConnectionHandler {
 public:
  virtual ~ConnectionHandler() = default;
  virtual void on_up(const std::shared_ptr<Connection>& connection) = 0;
  virtual void on_frames(const std::shared_ptr<Connection>& connection, Lane lane,
                         std::vector<Frame> frames) = 0;
  /// A frame has been read whose payloads (or envelope) are large enough to travel outside of the
  /// lane; on_frames follows when they are complete.
  ///
  /// Nothing has been granted, fetched or allocated for them so far, and nothing is kept of them if
  /// this returns an error. kResourceExhausted: on_lost follows with it. Any other: the connection
  /// goes down with it. `size_bytes` is Frame::size_bytes() of the whole frame. Frames that were
  /// sent before this one may be delivered after this call.
  virtual absl::Status on_announced(const std::shared_ptr<Connection>& connection, Lane lane,
                                    absl::string_view header, std::uint64_t size_bytes,
                                    std::size_t payloads);
  /// Whether the other end may send ahead of its announcements as much as the transport allows.
  /// False: little, and it is not read from until it has announced what has arrived.
  virtual bool may_send_ahead() const { return true; }
  /// A frame that was announced does not come, since there is no room for it here: in place of
  /// on_frames. What was sent of it has been read and dropped; the connection is as it was.
  /// `size_bytes` and `payloads` as with on_announced. May run at the same time as the other
  /// callbacks.
  virtual void on_lost(const std::shared_ptr<Connection>& connection, Lane lane,
                       absl::string_view header, std::uint64_t size_bytes, std::size_t payloads,
                       const absl::Status& reason);
  /// `reason` is never OK. kUnavailable: broken, worth another try. kNotFound: the address refuses
  /// connections, or another process answers there: the peer is gone. kPermissionDenied,
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
/// messages with separate payloads (see CallRequest and CallResponse in protos/sinew/rpc.proto).
class UnaryCall {
 public:
  /// Keys may come several times. Those that end in "-bin" have any bytes as their values, others
  /// printable ASCII.
  using Metadata = std::multimap<std::string, std::string>;

  virtual ~UnaryCall() = default;
  virtual const AuthenticatedPeer& remote() const = 0;
  /// What the client said in addition to its request, at most 8 KiB.
  virtual const Metadata& metadata() const = 0;
  /// Serialised sinew.proto.Call.
  virtual Frame& request() = 0;
  /// Time left until the client gives up, or nanoseconds::max().
  virtual std::chrono::nanoseconds time_left() const = 0;
  /// Calls `on_cancel` once when the client goes away first. At most one callback.
  virtual void notify_on_cancel(absl::AnyInvocable<void() &&> on_cancel) = 0;
  /// Answers with a serialised sinew.proto.Reply. Exactly one of reply and fail must be called,
  /// once.
  virtual void reply(Frame reply) = 0;
  /// `status` may carry an error; see kErrorPayload.
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
    /// Largest frame, header and payloads included, that is sent or accepted.
    std::size_t max_frame_bytes = std::size_t{16} << 30;
    /// Largest envelope among it.
    std::size_t max_envelope_bytes = std::size_t{64} << 20;
    /// Most payloads in a frame.
    std::size_t max_payloads = 65536;
    /// Time for a connection to be made, handshake included.
    std::chrono::milliseconds connect_timeout = std::chrono::seconds(10);
    /// Connections that others may be opening to this worker at a time; who comes later is refused
    /// with kUnavailable.
    std::size_t max_handshakes = 1024;
  };

  virtual ~Transport() = default;

  /// Starts to accept. `acceptor` and `unary` (may be null) must outlive shutdown().
  /// kAlreadyExists when the address is taken, kInvalidArgument when it makes no sense; the text
  /// names it.
  virtual absl::Status start(Acceptor* acceptor, UnaryHandler* unary) = 0;

  /// Where others reach this worker, as text that connect() takes. Valid after start().
  virtual std::string address() const = 0;

  /// Begins to open a connection; on_up or on_down of `handler` tells how it went, unless
  /// shutdown() has begun before: then the connection is down, and `handler` may hear nothing.
  /// Never null. `hello` is shown to the acceptor there. `expected_name` is the name that the other
  /// end's proof of identity must cover; empty: the host of the address must be covered.
  virtual std::shared_ptr<Connection> connect(const std::string& address, const std::string& hello,
                                              const std::string& expected_name,
                                              std::shared_ptr<ConnectionHandler> handler) = 0;

  /// Lets threads that wait for what this transport receives poll for it by themselves, until
  /// shutdown(). Null when there is nothing to poll.
  virtual std::shared_ptr<PollingDuty> polling_duty() const { return nullptr; }

  /// Numbers about what it has done, for Worker::counters().
  virtual std::map<std::string, std::int64_t> counters() const { return {}; }

  /// Stops accepting, closes every connection, waits until no callback runs or will run.
  /// Idempotent. Must not be called from a callback.
  virtual void shutdown() = 0;
};

/// What send() says about a frame: kInvalidArgument with the size and the limit that it exceeds.
absl::Status check_limits(const Frame& frame, const Transport::Limits& limits);

}  // namespace sinew::internal
