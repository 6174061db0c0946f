#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/planes/device_plane.h"
#include "sinew/rpc/planes/nccl/internal/abort_thread.h"
#include "sinew/rpc/planes/nccl/internal/messages.h"
#include "sinew/rpc/planes/nccl/nccl_api.h"

/// What a plane knows. All of it is guarded by the core's mutex, except where it says otherwise.
namespace sinew::internal::nccl {

using TimePoint = std::chrono::steady_clock::time_point;

struct Link;
struct Peer;

/// What one end knows of one transfer.
struct Transfer {
  enum class Phase {
    /// A promise is missing or, at the follower, the leader's word.
    kWaiting,
    /// Both ends have promised; in the queue of the device. Numbered at the follower only.
    kQueued,
    /// Has a place on the device; belongs to the communicator.
    kActive,
    /// Of the sender: its device is through, and the receiver has not said that it has all.
    kDelivering,
    kEnded,
  };

  Direction direction = Direction::kOutgoing;
  std::uint64_t ticket = 0;
  // Valid until the phase is kEnded or the communicator is closed.
  Peer* peer = nullptr;
  /// Null: accepted before the offer came.
  Link* link = nullptr;
  /// Of the offer.
  std::vector<std::uint64_t> sizes;
  std::vector<DeviceBuffer> buffers;
  DevicePlane::OnEnd on_end;
  /// When the buffers were offered or accepted.
  TimePoint since;
  /// Recorded on the streams of the buffers, without those that have been seen to happen. Used by
  /// the thread that makes the transfer, then by the watchdog, without the mutex.
  std::vector<DeviceApi::Event> ready;
  /// All have happened.
  bool is_ready = false;
  /// Recorded behind the transfer.
  DeviceApi::Event finished = nullptr;

  Phase phase = Phase::kWaiting;
  /// The buffers are ready, and the peer knows of it or need not.
  bool promised_here = false;
  bool promised_there = false;
  /// Of the sender: the receiver has said that it has all.
  bool is_delivered = false;
  /// An offer that has not come will not be accepted.
  bool declined = false;
  /// This end, which follows, wants its promise back; the reason.
  absl::Status retraction;
  std::uint64_t number = 0;
  TimePoint deadline = TimePoint::max();

  bool is_started() const {
    return number != 0 || phase == Phase::kActive || phase == Phase::kDelivering;
  }
  std::uint64_t size_bytes() const {
    std::uint64_t total = 0;
    for (const DeviceBuffer& buffer : buffers) total += buffer.size_bytes;
    return total;
  }
};
using TransferPtr = std::shared_ptr<Transfer>;

/// One communicator of a link, from the wish for it until it is closed.
struct Communicator {
  enum class State {
    /// Waits for a place on the device.
    kQueued,
    kNeedsId,
    kHasId,
    kConnecting,
    kReady
  };

  // Constant. The link is valid until `closed`.
  Link* link = nullptr;
  std::uint64_t epoch = 0;
  int device = 0;
  int rank = 0;

  State state = State::kQueued;
  /// While it connects, and until what came of it is over.
  bool has_place = false;
  std::string id;
  NcclApi::Comm comm = nullptr;
  DeviceApi::Stream stream = nullptr;
  /// The launcher is in a call for it, without the mutex.
  bool in_call = false;
  /// The launcher begins no call for it any more.
  bool closed = false;
  /// The launcher was left behind in a call for it; it is aborted all the same.
  bool abandoned = false;
  /// From when it has its place.
  TimePoint connect_deadline = TimePoint::max();
  TimePoint next_poll;
  std::uint64_t last_number = 0;
  std::deque<TransferPtr> to_launch;
  /// NCCL has taken it but has not launched it yet.
  TransferPtr launching;
  std::deque<TransferPtr> running;
};
using CommunicatorPtr = std::shared_ptr<Communicator>;

/// One pair of devices of one pair of workers.
struct Link {
  Peer* peer = nullptr;
  LinkKey key;
  /// Of the latest communicator, or of the latest one that was refused.
  std::uint64_t epoch = 0;
  CommunicatorPtr communicator;
  /// This end has promised something since the link was closed, so a communicator may be made. What
  /// was promised may have ended before the leader's word comes.
  bool wanted = false;
  TimePoint retry_at = TimePoint::min();
  std::chrono::nanoseconds retry_delay{0};
};

struct Peer {
  WorkerInfo worker;
  /// The other one makes the communicators and numbers the transfers.
  bool follows = false;
  /// Out of use for good.
  bool closed = false;
  /// Communicators in a row that did not come about.
  int failed_openings = 0;
  /// What is to be said, in order, and how many notes with what was said before are on their way.
  std::deque<Message> waiting;
  int notes_on_the_way = 0;
  std::map<std::uint64_t, TransferPtr> outgoing;
  std::map<std::uint64_t, TransferPtr> incoming;
  std::uint64_t highest_offer = 0;
  std::map<LinkKey, std::unique_ptr<Link>> links;

  std::map<std::uint64_t, TransferPtr>& transfers(Direction direction) {
    return direction == Direction::kOutgoing ? outgoing : incoming;
  }
};

/// A communicator that is on its way out, and the transfers that end with it.
struct Teardown {
  enum class Stage { kWaitForCall, kAborting, kDraining };

  CommunicatorPtr communicator;
  std::vector<TransferPtr> transfers;
  absl::Status status;
  // For the watchdog alone.
  Stage stage = Stage::kWaitForCall;
  TimePoint deadline;
  std::shared_ptr<AbortThread> abort;
  DeviceApi::Event drained = nullptr;
};

/// Waits for a place on a device: one of the two.
struct Turn {
  TransferPtr transfer;
  CommunicatorPtr opening;
};

struct Device {
  int id = 0;
  /// Leaders' transfers without, followers' with a number.
  std::deque<Turn> queue;
  /// Places that are taken.
  int active = 0;
  std::vector<CommunicatorPtr> communicators;
  std::size_t next_communicator = 0;
  CondVar wake;
  std::thread launcher;
  /// Threads of earlier ones were left behind.
  int generation = 0;
  bool launcher_ended = false;
};

/// A transfer whose end is to be reported.
struct Ended {
  TransferPtr transfer;
  absl::Status status;
};

}  // namespace sinew::internal::nccl
