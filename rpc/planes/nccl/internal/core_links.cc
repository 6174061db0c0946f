#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/planes/nccl/internal/core.h"

// Communicators, numbers, and who may launch.
//
// A device has only so many places, for transfers and for communicators that are being opened. The
// leader takes a place on its own device, then numbers the transfer, or makes the id, and tells the
// follower, which waits for a place on its device. Since leaders have lower ranks than followers, a
// worker that holds a place waits only for one of a higher rank, and the highest does not wait: no
// cycle can form, whatever the kernels wait for. The leader gives the follower time to get there:
// twice what the follower has.

namespace sinew::internal::nccl {

Device& Core::device_locked(int id) {
  std::unique_ptr<Device>& device = devices_[id];
  if (device == nullptr) {
    device = std::make_unique<Device>();
    device->id = id;
  }
  return *device;
}

void Core::make_communicator_locked(Link& link, std::uint64_t epoch, std::string id) {
  auto communicator = std::make_shared<Communicator>();
  communicator->link = &link;
  communicator->epoch = epoch;
  communicator->device = link.key.own_device;
  communicator->rank = link.peer->follows ? 0 : 1;
  communicator->id = std::move(id);
  link.epoch = epoch;
  link.communicator = communicator;
  Device& device = device_locked(communicator->device);
  device.communicators.push_back(communicator);
  if (!device.launcher.joinable()) start_launcher_locked(device);
  device.queue.push_back(Turn{nullptr, communicator});
  pump_locked(device);
  wake_watchdog_.notify_all();
}

void Core::begin_opening_locked(Device& device, Communicator& communicator) {
  const bool leads = communicator.id.empty();
  communicator.state = leads ? Communicator::State::kNeedsId : Communicator::State::kHasId;
  communicator.connect_deadline =
      std::chrono::steady_clock::now() + (leads ? 2 : 1) * options_.connect_timeout;
  communicator.has_place = true;
  ++device.active;
  device.wake.notify_all();
}

void Core::release_place_locked(Communicator& communicator) {
  if (!communicator.has_place) return;
  communicator.has_place = false;
  Device& device = device_locked(communicator.device);
  --device.active;
  pump_locked(device);
}

// ---- Who may launch.

// At the leader: both ends have promised.
void Core::queue_locked(const TransferPtr& transfer) {
  Link& link = *transfer->link;
  if (link.communicator == nullptr) {
    if (std::chrono::steady_clock::now() < link.retry_at) {
      refuse_locked(transfer, usable_locked(*transfer->peer));
      return;
    }
    make_communicator_locked(link, link.epoch + 1, "");
  }
  Device& device = device_locked(link.key.own_device);
  transfer->phase = Transfer::Phase::kQueued;
  device.queue.push_back(Turn{transfer, nullptr});
  pump_locked(device);
}

// Gives the device's free places to the communicators that are to be opened, and to the transfers
// whose communicators are ready.
void Core::pump_locked(Device& device) {
  for (auto next = device.queue.begin();
       next != device.queue.end() && device.active < options_.max_active_transfers;) {
    const Turn turn = *next;
    if (turn.opening != nullptr) {
      next = device.queue.erase(next);
      begin_opening_locked(device, *turn.opening);
      continue;
    }
    const CommunicatorPtr& communicator = turn.transfer->link->communicator;
    if (communicator == nullptr || communicator->state != Communicator::State::kReady) {
      ++next;
      continue;
    }
    next = device.queue.erase(next);
    activate_locked(device, turn.transfer);
  }
}

void Core::activate_locked(Device& device, const TransferPtr& transfer) {
  Communicator& communicator = *transfer->link->communicator;
  Peer& peer = *transfer->peer;
  if (peer.follows) {
    transfer->number = ++communicator.last_number;
    post_locked(peer, Start{transfer->link->key, communicator.epoch, transfer->number,
                            transfer->ticket, transfer->direction});
  }
  transfer->phase = Transfer::Phase::kActive;
  transfer->deadline =
      std::chrono::steady_clock::now() + (peer.follows ? 2 : 1) * time_for(*transfer);
  ++device.active;
  communicator.to_launch.push_back(transfer);
  device.wake.notify_all();
  wake_watchdog_.notify_all();
}

// ---- The end of a communicator.

void Core::close_link_locked(Link& link, const absl::Status& status, Cause cause, Tell tell) {
  Peer& peer = *link.peer;
  const CommunicatorPtr communicator = std::move(link.communicator);
  link.communicator = nullptr;
  link.wanted = false;
  // Refuses the communicator that the leader may be about to make.
  if (communicator == nullptr) ++link.epoch;
  if (tell == Tell::kPeer) {
    post_locked(peer, Abort{link.key, link.epoch, cause, std::string(status.message())});
  }
  if (cause == Cause::kFailed) {
    link.retry_at = std::chrono::steady_clock::now() + link.retry_delay;
    link.retry_delay = std::min(2 * link.retry_delay, options_.max_retry_delay);
  }
  std::vector<TransferPtr> affected;
  for (const Direction direction : {Direction::kOutgoing, Direction::kIncoming}) {
    for (const auto& [ticket, transfer] : peer.transfers(direction)) {
      if (transfer->link == &link && transfer->phase != Transfer::Phase::kActive) {
        affected.push_back(transfer);
      }
    }
  }
  // The peer may hear of them only after it has closed the link.
  for (const TransferPtr& transfer : affected) {
    if (transfer->phase == Transfer::Phase::kDelivering) {
      end_locked(transfer, status);
    } else {
      refuse_locked(transfer, status);
    }
  }
  if (communicator != nullptr) tear_down_locked(communicator, status);
}

void Core::tear_down_locked(const CommunicatorPtr& communicator, const absl::Status& status) {
  communicator->closed = true;
  if (communicator->state == Communicator::State::kHasId ||
      communicator->state == Communicator::State::kConnecting) {
    Peer& peer = *communicator->link->peer;
    if (++peer.failed_openings == options_.max_failed_openings) {
      news_.push_back(absl::StrCat("the NCCL plane to '", peer.worker.name,
                                   "' is closed, tensors go by gRPC: ", peer.failed_openings,
                                   " communicators in a row did not come about"));
    }
  }
  Device& device = device_locked(communicator->device);
  auto& communicators = device.communicators;
  communicators.erase(std::remove(communicators.begin(), communicators.end(), communicator),
                      communicators.end());
  auto& queue = device.queue;
  queue.erase(std::remove_if(queue.begin(), queue.end(),
                             [&](const Turn& turn) { return turn.opening == communicator; }),
              queue.end());
  auto teardown = std::make_shared<Teardown>();
  teardown->communicator = communicator;
  teardown->status = status;
  teardown->deadline = std::chrono::steady_clock::now() + options_.abort_timeout;
  auto& transfers = teardown->transfers;
  transfers.assign(communicator->running.begin(), communicator->running.end());
  if (communicator->launching != nullptr) transfers.push_back(communicator->launching);
  transfers.insert(transfers.end(), communicator->to_launch.begin(), communicator->to_launch.end());
  // Their peer may be forgotten before they end.
  for (const TransferPtr& transfer : transfers) {
    forget_locked(*transfer);
    transfer->peer = nullptr;
    transfer->link = nullptr;
  }
  communicator->link = nullptr;
  communicator->running.clear();
  communicator->to_launch.clear();
  teardowns_.push_back(std::move(teardown));
  wake_watchdog_.notify_all();
}

void Core::fail_locked(CommunicatorPtr communicator, const char* what, const absl::Status& status) {
  if (communicator->closed) return;
  Link& link = *communicator->link;
  const absl::Status failure = absl::UnavailableError(
      absl::StrCat("NCCL to worker '", link.peer->worker.name, "', devices ", link.key.own_device,
                   " and ", link.key.peer_device, ": ", what, ": ", status.message()));
  news_.push_back(absl::StrCat(failure.message(), "; tensors go by gRPC for now"));
  close_link_locked(link, failure, Cause::kFailed, Tell::kPeer);
}

// ---- Messages.

void Core::on_locked(Peer& peer, const Open& open) {
  const auto wrong = [&](const char* what) {
    mutex_.assert_held();
    ++counters_.protocol_errors;
    break_peer_locked(peer, absl::InvalidArgumentError(what), Cause::kIncompatible);
  };
  if (peer.follows) return wrong("it makes a communicator, but does not lead");
  if (open.link.own_device >= device_count_) return wrong("it means a device that is not there");
  Link& link = link_locked(peer, open.link);
  if (open.epoch <= link.epoch) return;
  if (link.communicator != nullptr) return wrong("it makes a second communicator");
  if (open.version != version_) {
    break_peer_locked(
        peer,
        absl::UnavailableError(absl::StrCat("it has NCCL ", open.version, ", worker '",
                                            options_.self.name, "' has ", version_)),
        Cause::kIncompatible);
    return;
  }
  if (!link.wanted) {
    // All that it was for has ended when the link was closed here.
    link.epoch = open.epoch - 1;
    close_link_locked(link, absl::UnavailableError("nothing is to be transferred"), Cause::kFailed,
                      Tell::kPeer);
    return;
  }
  make_communicator_locked(link, open.epoch, open.id);
}

void Core::on_locked(Peer& peer, const Start& start) {
  const auto wrong = [&](const char* what) {
    mutex_.assert_held();
    ++counters_.protocol_errors;
    break_peer_locked(peer, absl::InvalidArgumentError(what), Cause::kIncompatible);
  };
  if (peer.follows) return wrong("it numbers transfers, but does not lead");
  const auto found_link = peer.links.find(start.link);
  if (found_link == peer.links.end() || start.epoch > found_link->second->epoch) {
    return wrong("it starts a transfer before there is a communicator");
  }
  Link& link = *found_link->second;
  // It was closed here, and what it was to move has ended.
  if (link.communicator == nullptr || start.epoch != link.communicator->epoch) return;
  if (start.number != link.communicator->last_number + 1) return wrong("it skips a number");
  const auto& transfers = peer.transfers(start.direction);
  const auto found = transfers.find(start.ticket);
  if (found == transfers.end()) {
    const std::uint64_t last =
        start.direction == Direction::kOutgoing ? next_ticket_ - 1 : peer.highest_offer;
    if (start.ticket > last) return wrong("it starts what was never offered");
    // It ended here with an earlier communicator, of which the peer had not heard.
    fail_locked(link.communicator, "a transfer",
                absl::UnavailableError("it is wanted at one end only"));
    return;
  }
  const TransferPtr transfer = found->second;
  if (transfer->link != &link || !transfer->promised_here || transfer->number != 0) {
    return wrong("it starts what is not to be started");
  }
  link.communicator->last_number = start.number;
  transfer->number = start.number;
  transfer->phase = Transfer::Phase::kQueued;
  // Each that has a place before it has a time of its own, and so has the leader.
  transfer->deadline = TimePoint::max();
  Device& device = device_locked(link.key.own_device);
  device.queue.push_back(Turn{transfer, nullptr});
  pump_locked(device);
}

void Core::on_locked(Peer& peer, const Abort& abort) {
  if (abort.cause != Cause::kFailed) {
    if (abort.cause == Cause::kIncompatible) {
      break_peer_locked(peer, absl::UnavailableError(absl::StrCat("it says: ", abort.reason)),
                        Cause::kStopped);
    } else {
      end_all_locked(peer,
                     absl::UnavailableError(absl::StrCat("worker '", peer.worker.name, "' stops")),
                     Cause::kStopped);
      peer.closed = true;
    }
    return;
  }
  if (abort.link.own_device >= device_count_) return;
  Link& link = link_locked(peer, abort.link);
  // What this end has closed itself, or what came after that.
  if (abort.epoch < link.epoch || (abort.epoch == link.epoch && link.communicator == nullptr)) {
    return;
  }
  if (link.communicator == nullptr) link.epoch = abort.epoch - 1;
  close_link_locked(
      link, absl::UnavailableError(absl::StrCat("worker '", peer.worker.name, "': ", abort.reason)),
      Cause::kFailed, Tell::kNobody);
  link.epoch = std::max(link.epoch, abort.epoch);
}

}  // namespace sinew::internal::nccl
