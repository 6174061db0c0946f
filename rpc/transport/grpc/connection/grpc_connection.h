#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/planes/plane_set.h"
#include "sinew/rpc/transport/grpc/bulk/bulk_receiver.h"
#include "sinew/rpc/transport/grpc/bulk/bulk_sender.h"
#include "sinew/rpc/transport/grpc/bulk/located_payloads.h"
#include "sinew/rpc/transport/grpc/connection/frame_delivery.h"
#include "sinew/rpc/transport/grpc/connection/lane_stream.h"
#include "sinew/rpc/transport/grpc/connection/lane_writer.h"
#include "sinew/rpc/transport/grpc/connection/transport_core.h"
#include "sinew/rpc/transport/transport.h"

namespace sinew::internal {

/// What both ends of a connection share: everything but how it comes up (OpenedConnection,
/// AcceptedConnection).
///
///   opening --(the handshake is done: announce_up)--> up --(take_down)--> down
///      \------------------------(take_down)-----------------------------/
///
/// on_up, on_frames and on_down keep their order because entering a callback and going down exclude
/// each other under `mutex_`, and on_down is posted by the one that ends last: the callback that
/// was running or take_down().
class GrpcConnection : public Connection,
                       protected StreamEvents,
                       public std::enable_shared_from_this<GrpcConnection> {
 public:
  absl::Status send(Lane lane, Frame frame) final;
  std::uint64_t kept_bytes() const final;
  void close(absl::Status reason) final;
  const std::string& remote_hello() const final { return remote_hello_; }
  const AuthenticatedPeer& remote() const final { return remote_; }
  std::shared_ptr<const ProcessHold> remote_process() const final { return planes_.process(); }
  std::vector<std::string> planes() const final { return planes_.texts(); }

 protected:
  /// `core` is asked for a hold by start().
  explicit GrpcConnection(std::shared_ptr<TransportCore> core);
  ~GrpcConnection() override;

  TransportCore& core() const { return *core_; }
  const std::shared_ptr<TransportCore>& shared_core() const { return core_; }
  std::shared_ptr<StreamEvents> as_events() { return {shared_from_this(), this}; }
  /// Enters the connection into the core and arms the connect timeout. False: the transport shuts
  /// down, or has; the connection is down then and has no callbacks.
  bool enter();
  /// Puts on_down off until leave_callback(). False when the connection is down.
  bool enter_handshake();
  void leave_callback();
  /// Who hears about this connection. Called by the constructing thread, or between
  /// enter_handshake() and leave_callback(), so that the handler hears of a connection that goes
  /// down meanwhile.
  void set_handler(std::shared_ptr<ConnectionHandler> handler);
  void set_remote(std::string hello, AuthenticatedPeer remote);
  /// What this end has said of itself. Before announce_up().
  void set_local_hello(std::string hello) { local_hello_ = std::move(hello); }

  /// False when the connection is down: the stream has been ended then.
  bool add_stream(std::shared_ptr<LaneStream> stream);
  /// A message of the handshake; the writer of the control stream was opened as busy.
  void write_handshake(LaneStream& stream, grpc::ByteBuffer message);
  std::shared_ptr<LaneStream> stream(StreamKind kind);
  bool is_up() const;
  /// The handler to call, or null when no callback may run (any more). Puts on_down off until
  /// leave_callback().
  std::shared_ptr<ConnectionHandler> enter_callback();
  /// Reports on_up; the caller reads the lanes after that. False when the connection is down.
  bool announce_up(ConnectionEnds::Role role);
  void on_read(StreamKind stream, grpc::ByteBuffer message) final;
  /// As long as the calls lane has no stream of its own its frames ride on the control lane's.
  /// Whether this one may; end_rides() may come of the question.
  virtual bool may_ride(const PacketFrame& frame, std::size_t size_bytes) = 0;
  /// So many have arrived.
  virtual void on_riders(std::size_t) {}
  /// Something waits for the calls lane's stream, as with want_bulk().
  virtual void want_calls() {}
  /// What leaves from here on waits for the calls lane's stream.
  void end_rides();
  void open_calls(std::shared_ptr<LaneStream> stream);
  /// Something waits for the bulk stream, which may be there already, or may come to. The
  /// acceptor's end need not do anything: the opener's has sent what is granted there, or grants
  /// what is announced here.
  virtual void want_bulk() {}
  /// A message that belongs to the handshake.
  virtual void on_handshake_read(StreamKind stream, grpc::ByteBuffer message) = 0;
  /// What a broken stream means before the connection was up.
  virtual absl::Status explain_end(const absl::Status& status, bool said_by_acceptor) const = 0;
  /// The connection is down and no callback runs any more: lets go of what belongs to the
  /// handshake.
  virtual void release() {}

  /// `reason` is what on_down says, `for_peer` what the other end is told where that is possible.
  void take_down(absl::Status reason, const absl::Status& for_peer);
  void take_down(const absl::Status& reason) { take_down(reason, reason); }

  void on_written(StreamKind stream) override;
  void on_ended(StreamKind stream, const absl::Status& status, bool said_by_acceptor) final;
  LaneWriter& writer(Lane lane) { return *writers_[static_cast<std::size_t>(lane)]; }
  BulkSender& bulk_sender() { return bulk_sender_; }

 private:
  enum class Phase { kOpening, kUp, kDown };

  void on_control_packet(Packet packet);
  void on_calls_packet(Packet packet);
  bool accept_riders(std::vector<PacketFrame> frames);
  /// The packet, unless riders that left before it have not come yet.
  std::optional<Packet> hold_back(Packet packet);
  /// The number of frames that wait to leave; 0: the frame does not ride.
  std::optional<std::size_t> ride(PacketFrame& frame, std::size_t size_bytes);
  void on_bulk_packet(Packet packet);
  void read_bulk_on(std::size_t most_unannounced);
  void arm_linger_timer();
  void start_linger_timer();
  bool linger(bool sender_has_time);
  struct Arrived {
    std::vector<Frame> ready;
    /// Follows them: so nothing overtakes a frame that is complete.
    std::vector<BulkReceiver::ToFetch> to_fetch;
  };
  /// False when the connection went down.
  bool accept_frames(Lane lane, std::vector<PacketFrame> frames);
  /// The frame goes to where it is complete.
  absl::Status accept_frame(Lane lane, PacketFrame&& frame, Arrived& arrived);
  absl::Status ask_handler(Lane lane, const PacketFrame& frame);
  void process(Lane lane, Arrived arrived);
  void fetch_one(const BulkReceiver::ToFetch& wanted);
  void on_fetch_end(std::uint64_t transfer, absl::Cord bytes, const absl::Status& status);
  /// The sender need not keep it any more.
  void end_fetch(std::uint64_t transfer, std::size_t size_bytes,
                 absl::StatusOr<std::optional<BulkReceiver::Completed>> completed);
  void hand_over(BulkReceiver::Completed completed);
  void deliver(Lane lane, std::vector<Frame> frames);

  /// What travels outside of the packets of a frame.
  struct Beside {
    BulkSender::Transfers transfers;
    std::vector<std::uint64_t> located;
  };
  /// Moves what is too large for a packet out of the frame.
  PacketFrame split(Frame frame, Beside& beside);
  void submit(BulkSender::Transfers transfers);
  absl::Status grant(const std::vector<std::uint64_t>& transfers);
  void send_beside(absl::Cord payload, PlaneSet::Location location, PayloadTicket& ticket,
                   Beside& beside);
  absl::Status down_status() const;

  void post_on_down_locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void run_on_down();

  const std::shared_ptr<TransportCore> core_;
  std::array<std::unique_ptr<LaneWriter>, kLaneCount> writers_;
  BulkSender bulk_sender_;
  BulkReceiver bulk_receiver_;
  /// The next message of the bulk stream is not being read: see kUnannouncedOfStrangers.
  std::atomic<bool> bulk_waits_{false};
  PlaneSet planes_;
  LocatedPayloads located_;
  std::array<std::unique_ptr<FrameDelivery>, kLaneCount> deliveries_;
  /// kNeeded: something lingers since the timer went off last.
  enum class LingerTimer { kOff, kRunning, kNeeded };
  std::atomic<LingerTimer> linger_timer_{LingerTimer::kOff};

  Mutex rides_mutex_;
  /// Changes once, under the lock.
  std::atomic<bool> calls_ride_{true};
  std::uint64_t riders_sent_ ABSL_GUARDED_BY(rides_mutex_) = 0;
  std::uint64_t riders_come_ ABSL_GUARDED_BY(rides_mutex_) = 0;
  /// Of the calls lane's stream, the first one.
  std::optional<Packet> held_back_ ABSL_GUARDED_BY(rides_mutex_);

  // Written before on_up, constant after.
  std::string local_hello_;
  std::string remote_hello_;
  AuthenticatedPeer remote_;

  mutable Mutex mutex_;
  Phase phase_ ABSL_GUARDED_BY(mutex_) = Phase::kOpening;
  absl::Status down_reason_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<ConnectionHandler> handler_ ABSL_GUARDED_BY(mutex_);
  std::array<std::shared_ptr<LaneStream>, kStreamCount> streams_ ABSL_GUARDED_BY(mutex_);
  int callbacks_running_ ABSL_GUARDED_BY(mutex_) = 0;
  bool on_down_posted_ ABSL_GUARDED_BY(mutex_) = false;
  TimerQueue::TimerId connect_timer_ ABSL_GUARDED_BY(mutex_) = 0;
  TransportCore::Hold hold_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
