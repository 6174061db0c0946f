#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/transport/inproc/inproc_network.h"
#include "sinew/rpc/transport/transport.h"

namespace sinew::internal {

class InprocConnection;
struct InprocEndpoint;
struct InprocLink;
struct InprocUnaryState;

/// The ends of a link, and the index of InprocLink::sides.
enum class InprocEnd : std::uint8_t { kOpener = 0, kAcceptor = 1 };
inline InprocEnd other_end(InprocEnd end) {
  return end == InprocEnd::kOpener ? InprocEnd::kAcceptor : InprocEnd::kOpener;
}

/// One end of a connection. Everything is guarded by InprocCore::mutex_.
struct InprocSide {
  enum class Phase { kWaiting, kUp, kDown };
  /// Frames on their way to this end.
  struct LaneQueue {
    std::deque<Frame> frames;
    bool scheduled = false;
  };

  std::shared_ptr<InprocEndpoint> endpoint;
  // These two are held until on_down has been called.
  std::shared_ptr<InprocConnection> connection;
  std::shared_ptr<ConnectionHandler> handler;
  Phase phase = Phase::kWaiting;
  /// No longer OK: this end goes down with it, and sends and receives nothing more.
  absl::Status down_reason;
  std::array<LaneQueue, kLaneCount> lanes;
};

struct InprocLink {
  std::uint64_t number = 0;
  std::string opener_hello;
  std::string expected_name;
  std::array<InprocSide, 2> sides;
  InprocSide& side(InprocEnd end) { return sides[static_cast<std::size_t>(end)]; }
};

struct InprocPendingEvent {
  using Kind = InprocEvent::Kind;
  std::uint64_t sequence = 0;
  Kind kind = Kind::kFrames;
  std::shared_ptr<InprocLink> link;
  InprocEnd end = InprocEnd::kOpener;
  Lane lane = Lane::kControl;
  std::shared_ptr<InprocUnaryState> unary;
};

/// What one transport is to the network. What is below `identity` is guarded by
/// InprocCore::mutex_.
struct InprocEndpoint {
  // Constant once the network knows it.
  std::string address;
  Transport::Limits limits;
  AuthenticatedPeer identity;

  Acceptor* acceptor = nullptr;
  UnaryHandler* unary_handler = nullptr;
  bool listening = false;
  bool closing = false;
  /// Shut down: nothing happens here any more.
  bool finished = false;
  bool frozen = false;
  /// One of its events is happening.
  bool running = false;
  std::list<InprocPendingEvent> events;
  absl::flat_hash_set<std::shared_ptr<InprocLink>> links;
  absl::flat_hash_set<std::shared_ptr<InprocUnaryState>> unary_calls;
  std::multimap<std::chrono::steady_clock::time_point, std::weak_ptr<InprocLink>> connect_deadlines;
  /// Signalled for its delivery thread, and for threads that wait until it no longer runs.
  CondVar changed;
};

/// One unary call. Guarded by InprocCore::mutex_ below `deadline`.
struct InprocUnaryState {
  AuthenticatedPeer client;
  Frame request;
  std::chrono::nanoseconds time_left = std::chrono::nanoseconds::max();
  std::chrono::steady_clock::time_point started;

  std::shared_ptr<InprocEndpoint> endpoint;
  bool finished = false;
  /// It finished by abort_unary().
  bool aborted = false;
  absl::Status status;
  Frame answer;
  absl::AnyInvocable<void() &&> on_cancel;
  CondVar changed;
};

/// The state machine behind a network: links, events, and what becomes possible when. No threads
/// and no clock of its own; the network (stepped) or the transports' threads drive it. Callbacks
/// run with the mutex released, and so does the destruction of frames, whose payloads may run
/// anything when they go.
class InprocCore : public std::enable_shared_from_this<InprocCore> {
 public:
  explicit InprocCore(InprocMode mode) : mode_(mode) {}

  InprocMode mode() const { return mode_; }

  // Transports.
  std::shared_ptr<InprocEndpoint> add_endpoint(std::string name, const Transport::Limits& limits,
                                               std::vector<std::string> proven_names);
  absl::Status listen(const std::shared_ptr<InprocEndpoint>& endpoint, Acceptor* acceptor,
                      UnaryHandler* unary_handler);
  std::shared_ptr<Connection> connect(const std::shared_ptr<InprocEndpoint>& opener,
                                      const std::string& address, const std::string& hello,
                                      const std::string& expected_name,
                                      std::shared_ptr<ConnectionHandler> handler);
  /// No new connections; every connection of the endpoint begins to go down. What remains to be
  /// called is among its events.
  void begin_shutdown(const std::shared_ptr<InprocEndpoint>& endpoint);
  /// Runs the endpoint's events until begin_shutdown() and the last of them.
  void run_endpoint(const std::shared_ptr<InprocEndpoint>& endpoint);
  /// Runs what is left after begin_shutdown() on the calling thread.
  void finish_shutdown(const std::shared_ptr<InprocEndpoint>& endpoint);

  // Connections.
  absl::Status send(const std::shared_ptr<InprocLink>& link, InprocEnd from, Lane lane,
                    Frame frame);
  void close(const std::shared_ptr<InprocLink>& link, InprocEnd from, const absl::Status& reason);

  // Unary calls.
  void start_unary(const std::shared_ptr<InprocUnaryState>& call, const std::string& address);
  void finish_unary(const std::shared_ptr<InprocUnaryState>& call, absl::Status status,
                    Frame answer);
  /// Ends a call for a reason that is news to the worker.
  void abort_unary(const std::shared_ptr<InprocUnaryState>& call, absl::Status status);
  void notify_unary_cancelled(const std::shared_ptr<InprocUnaryState>& call,
                              absl::AnyInvocable<void() &&> on_cancel);
  absl::StatusOr<Frame> wait_unary(const std::shared_ptr<InprocUnaryState>& call,
                                   std::chrono::nanoseconds timeout);
  bool unary_finished(const std::shared_ptr<InprocUnaryState>& call);

  // The network's hooks.
  void set_chooser(InprocNetwork::Chooser chooser);
  void set_max_frames_per_event(std::size_t frames);
  std::vector<InprocEvent> events();
  bool step();
  std::size_t break_connections(std::string_view one, std::string_view other);
  bool break_connection(std::uint64_t number);
  void set_frozen(std::string_view address, bool frozen);

 private:
  using Events = std::list<InprocPendingEvent>;
  struct Candidate {
    std::shared_ptr<InprocEndpoint> endpoint;
    Events::iterator event;
  };

  void schedule_locked(const std::shared_ptr<InprocEndpoint>& endpoint, InprocPendingEvent event)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void schedule_frames_locked(const std::shared_ptr<InprocLink>& link, InprocEnd end, Lane lane)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void schedule_unary_locked(const std::shared_ptr<InprocUnaryState>& call, InprocEvent::Kind kind)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void schedule_lanes_locked(const std::shared_ptr<InprocLink>& link, InprocEnd end)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Begins to take one end down. Nothing happens when it goes down already.
  void seal_locked(const std::shared_ptr<InprocLink>& link, InprocEnd end, absl::Status reason)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void expire_connects_locked(InprocEndpoint& endpoint) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void wait_locked(InprocEndpoint& endpoint) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<Candidate> candidates_locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::size_t choose_locked(const std::vector<Candidate>& candidates)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  InprocPendingEvent take_locked(const Candidate& candidate) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void run(const std::shared_ptr<InprocEndpoint>& endpoint, InprocPendingEvent event)
      ABSL_LOCKS_EXCLUDED(mutex_);
  /// The status with which the opener's check of the other end's proof of identity fails, or OK.
  static absl::Status check_identity(const InprocLink& link, const InprocEndpoint& acceptor);
  void run_connect(const std::shared_ptr<InprocLink>& link) ABSL_LOCKS_EXCLUDED(mutex_);
  void run_up(const std::shared_ptr<InprocLink>& link) ABSL_LOCKS_EXCLUDED(mutex_);
  /// Takes what is delivered next.
  std::vector<Frame> take_frames_locked(const std::shared_ptr<InprocLink>& link, InprocEnd end,
                                        Lane lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Takes the link down because the handler of `end` has not admitted a frame.
  void refuse_frames(const std::shared_ptr<InprocLink>& link, InprocEnd end,
                     const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mutex_);
  void finish_accept(const std::shared_ptr<InprocLink>& link) ABSL_LOCKS_EXCLUDED(mutex_);
  void run_frames(const std::shared_ptr<InprocLink>& link, InprocEnd end, Lane lane)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void run_down(const std::shared_ptr<InprocLink>& link, InprocEnd end) ABSL_LOCKS_EXCLUDED(mutex_);
  void run_unary_call(const std::shared_ptr<InprocUnaryState>& call) ABSL_LOCKS_EXCLUDED(mutex_);
  void run_unary_cancel(const std::shared_ptr<InprocUnaryState>& call) ABSL_LOCKS_EXCLUDED(mutex_);

  const InprocMode mode_;
  mutable Mutex mutex_;
  absl::flat_hash_map<std::string, std::shared_ptr<InprocEndpoint>> listeners_
      ABSL_GUARDED_BY(mutex_);
  /// Every endpoint that has not been shut down, in the order of their making.
  std::vector<std::shared_ptr<InprocEndpoint>> endpoints_ ABSL_GUARDED_BY(mutex_);
  InprocNetwork::Chooser chooser_ ABSL_GUARDED_BY(mutex_);
  std::size_t max_frames_per_event_ ABSL_GUARDED_BY(mutex_) = SIZE_MAX;
  std::uint64_t next_sequence_ ABSL_GUARDED_BY(mutex_) = 1;
  std::uint64_t next_link_ ABSL_GUARDED_BY(mutex_) = 1;
  std::uint64_t next_name_ ABSL_GUARDED_BY(mutex_) = 0;
};

/// One end of a link, as its user sees it.
class InprocConnection final : public Connection {
 public:
  InprocConnection(std::shared_ptr<InprocCore> core, std::shared_ptr<InprocLink> link,
                   InprocEnd end)
      : core_(std::move(core)), link_(std::move(link)), end_(end) {}

  absl::Status send(Lane lane, Frame frame) override;
  void close(absl::Status reason) override { core_->close(link_, end_, reason); }
  const std::string& remote_hello() const override { return remote_hello_; }
  const AuthenticatedPeer& remote() const override { return remote_; }

  /// Before on_up: nothing reads these earlier.
  void set_remote(std::string hello, AuthenticatedPeer remote) {
    remote_hello_ = std::move(hello);
    remote_ = std::move(remote);
  }

 private:
  const std::shared_ptr<InprocCore> core_;
  const std::shared_ptr<InprocLink> link_;
  const InprocEnd end_;
  std::string remote_hello_;
  AuthenticatedPeer remote_;
};

}  // namespace sinew::internal
