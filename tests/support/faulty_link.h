#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/transport/transport.h"
#include "sinew/tests/support/fault_plan_impl.h"

namespace sinew::internal {

/// One connection through a faulty transport: the connection that its user sees, and the handler
/// that the inner transport sees. What arrives goes through a queue that one thread at a time
/// empties, so that frames which a timer or a test lets go later do not run beside those of the
/// inner transport.
class FaultyLink final : public Connection,
                         public ConnectionHandler,
                         public std::enable_shared_from_this<FaultyLink> {
 public:
  FaultyLink(std::shared_ptr<FaultPlan::Impl> plan, std::shared_ptr<ConnectionHandler> handler,
             std::string address, bool opened_here)
      : plan_(std::move(plan)),
        address_(std::move(address)),
        opened_here_(opened_here),
        handler_(std::move(handler)) {}

  void set_number(std::uint64_t number) { number_ = number; }
  void set_inner(const std::shared_ptr<Connection>& inner) {
    MutexLock lock(mutex_);
    if (inner_ == nullptr) inner_ = inner;
  }
  const std::string& address() const { return address_; }

  // Connection.
  absl::Status send(Lane lane, Frame frame) override;
  void close(absl::Status reason) override;
  const std::string& remote_hello() const override {
    static const std::string& none = *new std::string;
    const std::shared_ptr<Connection> inner = this->inner();
    return inner == nullptr ? none : inner->remote_hello();
  }
  const AuthenticatedPeer& remote() const override {
    static const AuthenticatedPeer& nobody = *new AuthenticatedPeer;
    const std::shared_ptr<Connection> inner = this->inner();
    return inner == nullptr ? nobody : inner->remote();
  }
  std::shared_ptr<const ProcessHold> remote_process() const override {
    const std::shared_ptr<Connection> inner = this->inner();
    return inner == nullptr ? nullptr : inner->remote_process();
  }

  // ConnectionHandler.
  void on_up(const std::shared_ptr<Connection>& connection) override;
  void on_frames(const std::shared_ptr<Connection>& connection, Lane lane,
                 std::vector<Frame> frames) override;
  /// Passes by the queue: what is refused here is refused before it costs memory. Not asked of a
  /// handler that does not know of the connection yet.
  absl::Status on_announced(const std::shared_ptr<Connection>& connection, Lane lane,
                            absl::string_view header, std::uint64_t size_bytes,
                            std::size_t payloads) override;
  bool may_send_ahead() const override;
  /// Passes by the queue, as it may.
  void on_lost(const std::shared_ptr<Connection>& connection, Lane lane, absl::string_view header,
               std::uint64_t size_bytes, std::size_t payloads, const absl::Status& reason) override;
  void on_down(const std::shared_ptr<Connection>& connection, const absl::Status& reason) override;

  /// A frame that a rule lets go now.
  void resume(FaultDirection direction, Lane lane, Frame frame);
  /// Takes the connection down as the network would.
  void break_now(const std::string& why);
  /// Goes on after freeze().
  void thaw();
  /// Tells the handler what is left to tell, on_down at last, frozen or not. No callback runs
  /// afterwards.
  void finish();

 private:
  enum class Drain { kUnlessFrozen, kAlways };
  struct Arrival {
    enum class Kind { kUp, kFrames, kDown };
    Kind kind;
    Lane lane = Lane::kControl;
    std::vector<Frame> frames;
    absl::Status reason;
  };
  struct Reordered {
    std::uint64_t id;
    Frame frame;
    int behind;
  };
  struct Departure {
    Lane lane;
    Frame frame;
  };

  std::shared_ptr<Connection> inner() const {
    MutexLock lock(mutex_);
    return inner_;
  }
  std::vector<Reordered>& reordered_locked(FaultDirection direction, Lane lane)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return reordered_[static_cast<std::size_t>(direction)][static_cast<std::size_t>(lane)];
  }
  /// What goes on now in place of `frame`: nothing, the frame, or it and others.
  std::vector<Frame> apply(FaultDirection direction, Lane lane, Frame frame);
  std::vector<Frame> overtaken_by_one(FaultDirection direction, Lane lane);
  void reorder(const FaultPlan::Impl::Verdict& verdict, FaultDirection direction, Lane lane,
               Frame frame);
  void resume_later(std::chrono::nanoseconds delay, FaultDirection direction, Lane lane,
                    Frame frame);
  void arrive(Arrival arrival);
  void drain(Drain how);
  void deliver(Arrival arrival);

  const std::shared_ptr<FaultPlan::Impl> plan_;
  const std::string address_;
  const bool opened_here_;
  std::uint64_t number_ = 0;

  mutable Mutex mutex_;
  CondVar drained_;
  std::shared_ptr<Connection> inner_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<ConnectionHandler> handler_ ABSL_GUARDED_BY(mutex_);
  std::deque<Arrival> arrivals_ ABSL_GUARDED_BY(mutex_);
  std::deque<Departure> frozen_departures_ ABSL_GUARDED_BY(mutex_);
  /// on_up has been called.
  bool told_up_ ABSL_GUARDED_BY(mutex_) = false;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  /// on_down is queued: nothing may be queued behind it.
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::string broken_why_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t next_reordered_ ABSL_GUARDED_BY(mutex_) = 0;
  std::array<std::array<std::vector<Reordered>, kLaneCount>, 2> reordered_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
