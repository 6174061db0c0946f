#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/planes/nccl/internal/core.h"

// Promises. Each end of a transfer makes one: the sender by its offer, the receiver once it has
// both the offer and memory for it. The leader, who may always change its mind until it has
// numbered the transfer, decides; the follower can only ask for its promise back.

namespace sinew::internal::nccl {
namespace {

// Of one peer, in each direction.
constexpr std::size_t kMaxTransfers = 4096;

absl::Status full(const Peer& peer) {
  return absl::ResourceExhaustedError(absl::StrCat(
      "there are ", kMaxTransfers, " transfers under way with worker '", peer.worker.name, "'"));
}

absl::Status check_match(const Transfer& transfer) {
  bool matches = transfer.buffers.size() == transfer.sizes.size() &&
                 transfer.buffers.front().device == transfer.link->key.own_device;
  for (std::size_t i = 0; matches && i < transfer.sizes.size(); ++i) {
    matches = transfer.buffers[i].size_bytes == transfer.sizes[i];
  }
  if (matches) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the buffers for offer ", transfer.ticket,
                                                 " of worker '", transfer.peer->worker.name,
                                                 "' are not those that it has offered"));
}

}  // namespace

// ---- Calls of the road above.

absl::Status Core::check_buffers(const std::vector<DeviceBuffer>& buffers) const {
  if (buffers.empty() || buffers.size() > kMaxBuffers) {
    return absl::InvalidArgumentError(absl::StrCat("a transfer of ", buffers.size(), " buffers"));
  }
  std::uint64_t total = 0;
  for (const DeviceBuffer& buffer : buffers) {
    if (buffer.device < 0 || buffer.device >= device_count_ ||
        buffer.device != buffers.front().device) {
      return absl::InvalidArgumentError("the buffers of a transfer are not of one device");
    }
    if (buffer.size_bytes > kMaxTransferBytes - total) {
      return absl::InvalidArgumentError("a transfer of more bytes than a device holds");
    }
    total += buffer.size_bytes;
  }
  return absl::OkStatus();
}

absl::Status Core::record_ready(Transfer& transfer) const {
  std::set<void*> streams;
  for (const DeviceBuffer& buffer : transfer.buffers) {
    if (!streams.insert(buffer.stream).second) continue;
    const auto event = options_.device->create_event(buffer.device);
    if (!event.ok()) return event.status();
    transfer.ready.push_back(*event);
    const absl::Status recorded = options_.device->record(*event, buffer.device, buffer.stream);
    if (!recorded.ok()) return recorded;
  }
  return absl::OkStatus();
}

void Core::destroy_events(Transfer& transfer) const {
  for (DeviceApi::Event event : transfer.ready) options_.device->destroy_event(event);
  transfer.ready.clear();
  if (transfer.finished != nullptr) options_.device->destroy_event(transfer.finished);
  transfer.finished = nullptr;
}

Core::Prepared Core::prepare(Direction direction, std::vector<DeviceBuffer> buffers,
                             DevicePlane::OnEnd on_end) const {
  Prepared prepared{std::make_shared<Transfer>(), check_buffers(buffers)};
  Transfer& transfer = *prepared.transfer;
  transfer.direction = direction;
  transfer.buffers = std::move(buffers);
  transfer.on_end = std::move(on_end);
  transfer.deadline = std::chrono::steady_clock::now() + options_.transfer_timeout;
  if (prepared.status.ok()) prepared.status = record_ready(transfer);
  return prepared;
}

std::uint64_t Core::offer(const WorkerInfo& worker, int to_device,
                          std::vector<DeviceBuffer> buffers, DevicePlane::OnEnd on_end) {
  const Prepared prepared = prepare(Direction::kOutgoing, std::move(buffers), std::move(on_end));
  bool dropped = false;
  {
    MutexLock lock(mutex_);
    dropped = !reports_;
    prepared.transfer->ticket = next_ticket_++;
    offer_locked(worker, to_device, prepared);
  }
  if (dropped) destroy_events(*prepared.transfer);
  transmit();
  return prepared.transfer->ticket;
}

void Core::offer_locked(const WorkerInfo& worker, int to_device, const Prepared& prepared) {
  const TransferPtr& transfer = prepared.transfer;
  Peer* peer = stopping_ ? nullptr : peer_locked(worker);
  if (peer == nullptr) {
    end_locked(transfer, absl::UnavailableError(
                             absl::StrCat("there is no NCCL plane to worker '", worker.name, "'")));
    return;
  }
  absl::Status status = prepared.status;
  if (status.ok()) status = usable_locked(*peer);
  if (status.ok() && peer->outgoing.size() >= kMaxTransfers) status = full(*peer);
  if (to_device < 0 || to_device >= kMaxDevices) {
    status = absl::InvalidArgumentError(absl::StrCat("there is no device ", to_device));
  }
  if (!status.ok()) {
    // The ticket may be on its way to the peer, which must not wait for the offer.
    if (!is_overfull(*peer)) {
      post_locked(*peer, End{transfer->ticket, Direction::kOutgoing, status});
    }
    end_locked(transfer, status);
    return;
  }
  const LinkKey key{transfer->buffers.front().device, to_device};
  transfer->peer = peer;
  transfer->link = &link_locked(*peer, key);
  transfer->link->wanted = true;
  transfer->promised_here = true;
  for (const DeviceBuffer& buffer : transfer->buffers) transfer->sizes.push_back(buffer.size_bytes);
  peer->outgoing[transfer->ticket] = transfer;
  post_locked(*peer, Offer{transfer->ticket, key, transfer->sizes});
  wake_watchdog_.notify_all();
}

void Core::withdraw(const WorkerInfo& worker, std::uint64_t ticket) {
  {
    MutexLock lock(mutex_);
    Peer* peer = known_peer_locked(worker);
    if (peer == nullptr) return;
    const auto found = peer->outgoing.find(ticket);
    if (found == peer->outgoing.end()) return;
    const TransferPtr transfer = found->second;
    if (!transfer->is_started()) retract_locked(transfer, absl::CancelledError("withdrawn"));
  }
  transmit();
}

void Core::accept(const WorkerInfo& worker, std::uint64_t ticket, std::vector<DeviceBuffer> buffers,
                  DevicePlane::OnEnd on_end) {
  const Prepared prepared = prepare(Direction::kIncoming, std::move(buffers), std::move(on_end));
  prepared.transfer->ticket = ticket;
  bool dropped = false;
  {
    MutexLock lock(mutex_);
    dropped = !reports_;
    if (!prepared.status.ok()) {
      end_locked(prepared.transfer, prepared.status);
    } else {
      accept_locked(worker, prepared.transfer);
    }
  }
  if (dropped) destroy_events(*prepared.transfer);
  // Those that cannot be read into are declined.
  if (!prepared.status.ok()) decline(worker, ticket);
  transmit();
}

void Core::accept_locked(const WorkerInfo& worker, const TransferPtr& transfer) {
  Peer* peer = stopping_ ? nullptr : peer_locked(worker);
  if (peer == nullptr) {
    end_locked(transfer, absl::UnavailableError(
                             absl::StrCat("there is no NCCL plane to worker '", worker.name, "'")));
    return;
  }
  const auto found = peer->incoming.find(transfer->ticket);
  if (found == peer->incoming.end()) {
    absl::Status status;
    if (transfer->ticket <= peer->highest_offer) {
      status = absl::UnavailableError(
          absl::StrCat("worker '", worker.name, "' has no such offer any more"));
    } else if (peer->incoming.size() >= kMaxTransfers) {
      status = full(*peer);
    } else if (peer->closed) {
      status = usable_locked(*peer);
    }
    if (!status.ok()) {
      end_locked(transfer, status);
      return;
    }
    transfer->peer = peer;
    peer->incoming[transfer->ticket] = transfer;
    wake_watchdog_.notify_all();
    return;
  }
  const TransferPtr offered = found->second;
  if (offered->on_end != nullptr || offered->declined) {
    end_locked(transfer, absl::FailedPreconditionError("the offer was answered before"));
    return;
  }
  transfer->peer = peer;
  transfer->link = offered->link;
  transfer->sizes = std::move(offered->sizes);
  transfer->promised_there = offered->promised_there;
  found->second = transfer;
  promise_locked(transfer);
}

// The receiver has memory for an offer that is there.
void Core::promise_locked(const TransferPtr& transfer) {
  Peer& peer = *transfer->peer;
  absl::Status status = check_match(*transfer);
  if (status.ok()) status = usable_locked(peer);
  if (!status.ok()) {
    refuse_locked(transfer, status);
    return;
  }
  transfer->link->wanted = true;
  transfer->promised_here = true;
  if (peer.follows) {
    queue_locked(transfer);
  } else {
    post_locked(peer, Accept{transfer->ticket});
    wake_watchdog_.notify_all();
  }
}

void Core::decline(const WorkerInfo& worker, std::uint64_t ticket) {
  {
    MutexLock lock(mutex_);
    Peer* peer = stopping_ ? nullptr : peer_locked(worker);
    if (peer == nullptr || ticket == 0) return;
    const auto found = peer->incoming.find(ticket);
    if (found != peer->incoming.end()) {
      const TransferPtr transfer = found->second;
      if (transfer->on_end != nullptr || transfer->declined) return;
      refuse_locked(transfer, absl::UnavailableError("declined"));
    } else if (ticket > peer->highest_offer && peer->incoming.size() < kMaxTransfers) {
      auto transfer = std::make_shared<Transfer>();
      transfer->direction = Direction::kIncoming;
      transfer->ticket = ticket;
      transfer->peer = peer;
      transfer->declined = true;
      transfer->deadline = std::chrono::steady_clock::now() + options_.transfer_timeout;
      peer->incoming[ticket] = transfer;
      wake_watchdog_.notify_all();
    }
  }
  transmit();
}

// ---- Ends.

// Only where this end has not promised, or leads.
void Core::refuse_locked(const TransferPtr& transfer, const absl::Status& status) {
  post_locked(*transfer->peer, End{transfer->ticket, transfer->direction, status});
  end_locked(transfer, status);
}

void Core::retract_locked(const TransferPtr& transfer, const absl::Status& status) {
  Peer& peer = *transfer->peer;
  if (peer.follows || !transfer->promised_here) {
    refuse_locked(transfer, status);
    return;
  }
  if (!transfer->retraction.ok()) return;
  transfer->retraction = status;
  transfer->deadline = std::chrono::steady_clock::now() + options_.abort_timeout;
  post_locked(peer, Retract{transfer->ticket, transfer->direction});
}

void Core::forget_locked(const Transfer& transfer) {
  if (transfer.peer == nullptr) return;
  auto& transfers = transfer.peer->transfers(transfer.direction);
  const auto found = transfers.find(transfer.ticket);
  if (found != transfers.end() && found->second.get() == &transfer) transfers.erase(found);
}

void Core::end_locked(const TransferPtr& transfer, const absl::Status& status) {
  if (transfer->phase == Transfer::Phase::kEnded) return;
  if (transfer->phase == Transfer::Phase::kQueued) {
    auto& queue = device_locked(transfer->link->key.own_device).queue;
    queue.erase(std::remove(queue.begin(), queue.end(), transfer), queue.end());
  }
  if (transfer->phase == Transfer::Phase::kActive) {
    Device& device = device_locked(transfer->buffers.front().device);
    --device.active;
    transfer->phase = Transfer::Phase::kEnded;
    pump_locked(device);
  }
  transfer->phase = Transfer::Phase::kEnded;
  forget_locked(*transfer);
  transfer->peer = nullptr;
  transfer->link = nullptr;
  // After the end nobody is told; whoever has made the transfer drops it.
  if (!reports_) return;
  ended_.push_back(Ended{transfer, status});
  wake_watchdog_.notify_all();
}

// ---- Messages.

void Core::on_locked(Peer& peer, Offer& offer) {
  const auto refuse = [&](const absl::Status& status) {
    mutex_.assert_held();
    post_locked(peer, End{offer.ticket, Direction::kIncoming, status});
  };
  if (offer.ticket <= peer.highest_offer) {
    ++counters_.protocol_errors;
    break_peer_locked(peer, absl::InvalidArgumentError("its offers are not in order"),
                      Cause::kIncompatible);
    return;
  }
  peer.highest_offer = offer.ticket;
  TransferPtr transfer;
  const auto early = peer.incoming.find(offer.ticket);
  if (early != peer.incoming.end()) transfer = early->second;
  if (offer.link.own_device >= device_count_) {
    const absl::Status status = absl::InvalidArgumentError(
        absl::StrCat("worker '", options_.self.name, "' has no device ", offer.link.own_device));
    refuse(status);
    if (transfer != nullptr) end_locked(transfer, status);
    return;
  }
  if (transfer != nullptr && transfer->declined) {
    refuse_locked(transfer, absl::UnavailableError("declined"));
    return;
  }
  if (transfer == nullptr) {
    if (peer.incoming.size() >= kMaxTransfers) {
      refuse(full(peer));
      return;
    }
    transfer = std::make_shared<Transfer>();
    transfer->direction = Direction::kIncoming;
    transfer->ticket = offer.ticket;
    transfer->peer = &peer;
    peer.incoming[offer.ticket] = transfer;
  }
  transfer->link = &link_locked(peer, offer.link);
  transfer->sizes = std::move(offer.sizes);
  transfer->promised_there = true;
  if (transfer->on_end != nullptr) promise_locked(transfer);
}

void Core::on_locked(Peer& peer, const Accept& accept) {
  const auto found = peer.outgoing.find(accept.ticket);
  // It may have ended here, of which the peer has been told.
  if (found == peer.outgoing.end()) return;
  const TransferPtr transfer = found->second;
  if (!peer.follows || transfer->promised_there) {
    ++counters_.protocol_errors;
    break_peer_locked(peer, absl::InvalidArgumentError("it accepts out of turn"),
                      Cause::kIncompatible);
    return;
  }
  transfer->promised_there = true;
  queue_locked(transfer);
}

void Core::on_locked(Peer& peer, const Retract& retract) {
  if (!peer.follows) {
    ++counters_.protocol_errors;
    break_peer_locked(peer, absl::InvalidArgumentError("it leads, but asks to be released"),
                      Cause::kIncompatible);
    return;
  }
  const auto& transfers = peer.transfers(retract.direction);
  const auto found = transfers.find(retract.ticket);
  if (found == transfers.end() || found->second->is_started()) return;
  const TransferPtr transfer = found->second;
  refuse_locked(transfer, absl::CancelledError(absl::StrCat("worker '", peer.worker.name,
                                                            "' has taken its part back")));
}

void Core::on_locked(Peer& peer, const End& end) {
  // An offer that could not be made has an end only.
  if (end.direction == Direction::kIncoming) {
    peer.highest_offer = std::max(peer.highest_offer, end.ticket);
  }
  const auto& transfers = peer.transfers(end.direction);
  const auto found = transfers.find(end.ticket);
  if (found == transfers.end()) return;
  const TransferPtr transfer = found->second;
  if (transfer->is_started()) {
    // A follower's crosses our word; it closes the link when it sees that. A leader has none.
    if (peer.follows) return;
    ++counters_.protocol_errors;
    break_peer_locked(peer, absl::InvalidArgumentError("it ends what it has started"),
                      Cause::kIncompatible);
    return;
  }
  end_locked(transfer,
             !transfer->retraction.ok()
                 ? transfer->retraction
                 : absl::Status(end.status.code(), absl::StrCat("worker '", peer.worker.name,
                                                                "': ", end.status.message())));
}

}  // namespace sinew::internal::nccl
