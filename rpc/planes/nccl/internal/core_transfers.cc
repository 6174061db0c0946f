#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/planes/nccl/internal/core.h"

// Promises. Each end of a transfer makes one once its device is through with all that comes before:
// the sender when the bytes are computed, the receiver when it has the offer and memory that
// nothing else touches. So kernels of NCCL never wait for other work of a device, nor does an
// abort. The leader, who may always change its mind until it has numbered the transfer, decides;
// the follower can only ask for its promise back.

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
  // Often there is nothing to wait for.
  return look_ready(transfer).status();
}

// Without the mutex: no other thread looks at the events.
absl::StatusOr<bool> Core::look_ready(Transfer& transfer) const {
  while (!transfer.ready.empty()) {
    const absl::StatusOr<bool> done = options_.device->is_done(transfer.ready.back());
    if (!done.ok() || !*done) return done;
    options_.device->destroy_event(transfer.ready.back());
    transfer.ready.pop_back();
  }
  return true;
}

std::chrono::nanoseconds Core::time_for(const Transfer& transfer) const {
  std::uint64_t bytes = 0;
  for (const std::uint64_t size : transfer.sizes) bytes += size;
  return options_.transfer_timeout + options_.time_per_byte * static_cast<std::int64_t>(bytes);
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
  transfer.since = std::chrono::steady_clock::now();
  transfer.deadline = transfer.since + options_.transfer_timeout;
  if (prepared.status.ok()) prepared.status = record_ready(transfer);
  transfer.is_ready = transfer.ready.empty();
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
  for (const DeviceBuffer& buffer : transfer->buffers) transfer->sizes.push_back(buffer.size_bytes);
  peer->outgoing[transfer->ticket] = transfer;
  post_locked(*peer, Offer{transfer->ticket, key, transfer->sizes, transfer->is_ready});
  if (transfer->is_ready) {
    promise_locked(transfer);
  } else {
    transfer->deadline = std::chrono::steady_clock::now() + options_.ready_timeout;
    unready_.push_back(transfer);
  }
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
    if (!transfer->is_ready) unready_.push_back(transfer);
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
  transfer->deadline = std::chrono::steady_clock::now() + options_.ready_timeout;
  found->second = transfer;
  if (!transfer->is_ready) unready_.push_back(transfer);
  const absl::Status fits = match_locked(*transfer);
  if (!fits.ok()) {
    refuse_locked(transfer, fits);
  } else if (transfer->is_ready) {
    promise_locked(transfer);
  }
  wake_watchdog_.notify_all();
}

// Whether a receiver's memory is for the offer that is there.
absl::Status Core::match_locked(const Transfer& transfer) {
  absl::Status status = check_match(transfer);
  return status.ok() ? usable_locked(*transfer.peer) : status;
}

// The device is through with what comes before; at the receiver there is an offer, too.
void Core::promise_locked(const TransferPtr& transfer) {
  transfer->link->wanted = true;
  transfer->promised_here = true;
  const bool sends = transfer->direction == Direction::kOutgoing;
  if (!sends && !transfer->peer->follows) {
    post_locked(*transfer->peer, Accept{transfer->ticket});
  }
  // The receiver's device may be busy for as long as this one.
  if (sends) transfer->deadline = std::chrono::steady_clock::now() + options_.ready_timeout;
  if (transfer->promised_there) both_promised_locked(transfer);
}

void Core::both_promised_locked(const TransferPtr& transfer) {
  transfer->deadline = std::chrono::steady_clock::now() + time_for(*transfer);
  if (transfer->peer->follows) queue_locked(transfer);
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
    queue.erase(std::remove_if(queue.begin(), queue.end(),
                               [&](const Turn& turn) { return turn.transfer == transfer; }),
                queue.end());
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
  // After the end there is no notice; the code that has made the transfer drops it.
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
  transfer->promised_there = offer.ready;
  if (transfer->on_end == nullptr) return;
  transfer->deadline = std::chrono::steady_clock::now() + options_.ready_timeout;
  const absl::Status fits = match_locked(*transfer);
  if (!fits.ok()) {
    refuse_locked(transfer, fits);
  } else if (transfer->is_ready) {
    promise_locked(transfer);
  }
}

void Core::on_locked(Peer& peer, const Ready& ready) {
  const auto found = peer.incoming.find(ready.ticket);
  // It may have ended here, of which the peer has been told, or was declined before its offer came.
  if (found == peer.incoming.end() || found->second->link == nullptr) {
    if (ready.ticket <= peer.highest_offer) return;
  } else if (!found->second->promised_there) {
    const TransferPtr transfer = found->second;
    transfer->promised_there = true;
    if (transfer->promised_here) both_promised_locked(transfer);
    return;
  }
  ++counters_.protocol_errors;
  break_peer_locked(peer, absl::InvalidArgumentError("it is ready out of turn"),
                    Cause::kIncompatible);
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
  if (transfer->promised_here) both_promised_locked(transfer);
}

void Core::on_locked(Peer& peer, const Done& done) {
  const auto found = peer.outgoing.find(done.ticket);
  if (found == peer.outgoing.end()) return;
  const TransferPtr transfer = found->second;
  if (transfer->phase == Transfer::Phase::kDelivering) {
    end_locked(transfer, absl::OkStatus());
  } else if (transfer->phase == Transfer::Phase::kActive && !transfer->is_delivered) {
    transfer->is_delivered = true;
  } else {
    ++counters_.protocol_errors;
    break_peer_locked(peer, absl::InvalidArgumentError("it has what was not sent"),
                      Cause::kIncompatible);
  }
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
