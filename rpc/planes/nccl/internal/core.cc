#include "sinew/rpc/planes/nccl/internal/core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/planes/nccl/environment.h"

namespace sinew::internal::nccl {
namespace {

// Notes to a peer that may be on their way; the rest waits here. The link keeps each until the peer
// has handled it.
constexpr int kMaxNotesOnTheWay = 16;
// A note travels inside its lane: beyond 128 KiB it could be overtaken.
constexpr std::size_t kMaxNoteBytes = std::size_t{64} << 10;
// What a peer that takes nothing may make us keep.
constexpr std::size_t kMaxWaiting = 8192;
// Threads that hang in NCCL keep memory of the device; from here on the plane stays out of use.
constexpr std::int64_t kMaxLeftBehind = 8;

}  // namespace

Core::Core(NcclPlaneOptions options)
    : options_(std::move(options)),
      version_(options_.nccl->version()),
      device_count_(std::min(options_.device->device_count(), kMaxDevices)) {}

void Core::start() {
  if (version_ < kMinNcclVersion) {
    log(absl::StrCat("tensors of GPUs go by gRPC, not by NCCL: ", version_, " is too old"));
  }
  watchdog_ = std::thread([this] { run_watchdog(); });
}

// ---- Peers.

Peer* Core::known_peer_locked(const WorkerInfo& worker) const {
  const auto found = peers_.find(worker.incarnation);
  return found == peers_.end() ? nullptr : found->second.get();
}

Peer* Core::peer_locked(const WorkerInfo& worker) {
  if (Peer* known = known_peer_locked(worker)) return known;
  if (lost_.count(worker.incarnation) != 0 || worker.incarnation == options_.self.incarnation) {
    return nullptr;
  }
  auto peer = std::make_unique<Peer>();
  peer->worker = worker;
  // The same rank twice is no lasting state, but both ends must decide alike.
  peer->follows = std::make_pair(options_.self.rank, options_.self.incarnation) <
                  std::make_pair(worker.rank, worker.incarnation);
  return (peers_[worker.incarnation] = std::move(peer)).get();
}

Link& Core::link_locked(Peer& peer, LinkKey key) {
  std::unique_ptr<Link>& link = peer.links[key];
  if (link == nullptr) {
    link = std::make_unique<Link>();
    link->peer = &peer;
    link->key = key;
    link->retry_delay = options_.first_retry_delay;
  }
  return *link;
}

absl::Status Core::usable_locked(const Peer& peer) const {
  const auto unusable = [&peer](const char* why) {
    return absl::UnavailableError(absl::StrCat("the NCCL plane to '", peer.worker.name, "' ", why));
  };
  if (peer.closed) return unusable("was closed");
  if (version_ < kMinNcclVersion) return unusable("needs a newer NCCL");
  if (is_overfull(peer)) return unusable("gets no answer");
  if (counters_.threads_left_behind >= kMaxLeftBehind) {
    return unusable("is out of use: too many calls of NCCL hang");
  }
  if (peer.failed_openings >= options_.max_failed_openings) {
    return unusable("could not be opened, again and again");
  }
  const TimePoint now = std::chrono::steady_clock::now();
  for (const auto& [key, link] : peer.links) {
    if (now < link->retry_at) return unusable("has failed a moment ago");
  }
  return absl::OkStatus();
}

bool Core::is_usable(const WorkerInfo& peer) const {
  {
    MutexLock lock(mutex_);
    if (stopping_ || device_count_ == 0 || version_ < kMinNcclVersion ||
        lost_.count(peer.incarnation) != 0 || peer.incarnation == options_.self.incarnation ||
        counters_.threads_left_behind >= kMaxLeftBehind) {
      return false;
    }
    const Peer* known = known_peer_locked(peer);
    if (known != nullptr && !usable_locked(*known).ok()) return false;
  }
  return options_.peer_has_plane == nullptr || options_.peer_has_plane(peer);
}

void Core::on_peer_lost(const WorkerInfo& worker) {
  forget_lost();
  MutexLock lock(mutex_);
  lost_[worker.incarnation] = worker;
  Peer* peer = known_peer_locked(worker);
  if (peer == nullptr) return;
  end_all_locked(*peer, absl::UnavailableError(absl::StrCat("worker '", worker.name, "' is lost")),
                 Cause::kFailed);
  peers_.erase(worker.incarnation);
}

// A peer that no list names any more is not sent to, and sends nothing.
void Core::forget_lost() {
  if (options_.peer_has_plane == nullptr) return;
  std::map<Incarnation, WorkerInfo> lost;
  {
    MutexLock lock(mutex_);
    lost = lost_;
  }
  for (const auto& [incarnation, worker] : lost) {
    if (options_.peer_has_plane(worker)) continue;
    MutexLock lock(mutex_);
    lost_.erase(incarnation);
  }
}

// Without an answer from the peer: it is lost, has broken a rule, or this plane stops.
void Core::end_all_locked(Peer& peer, const absl::Status& status, Cause cause) {
  for (const auto& [key, link] : peer.links) close_link_locked(*link, status, cause, Tell::kPeer);
  for (const Direction direction : {Direction::kOutgoing, Direction::kIncoming}) {
    // Only what was accepted or declined before its offer came belongs to no link.
    const auto rest = peer.transfers(direction);
    for (const auto& [ticket, transfer] : rest) end_locked(transfer, status);
  }
}

void Core::break_peer_locked(Peer& peer, const absl::Status& why, Cause cause) {
  if (peer.closed) return;
  news_.push_back(absl::StrCat("the NCCL plane to '", peer.worker.name,
                               "' is closed, tensors go by gRPC: ", why.message()));
  end_all_locked(peer, absl::UnavailableError(why.message()), cause);
  peer.closed = true;
}

// ---- Messages.

bool Core::is_overfull(const Peer& peer) { return peer.waiting.size() >= kMaxWaiting; }

void Core::post_locked(Peer& peer, Message message) { peer.waiting.push_back(std::move(message)); }

void Core::on_message(const WorkerInfo& worker, const std::string& bytes) {
  absl::StatusOr<std::vector<Message>> messages = decode(bytes);
  {
    MutexLock lock(mutex_);
    Peer* peer = stopping_ ? nullptr : peer_locked(worker);
    if (peer == nullptr) return;
    if (!messages.ok()) {
      ++counters_.protocol_errors;
      break_peer_locked(*peer, messages.status(), Cause::kIncompatible);
    } else {
      for (Message& message : *messages) {
        // Messages cause answers, so a peer that does not take those is not served either. Without
        // this message no later one has a meaning.
        if (is_overfull(*peer)) {
          break_peer_locked(*peer, absl::ResourceExhaustedError("it takes no messages"),
                            Cause::kFailed);
          break;
        }
        handle_locked(*peer, message);
      }
    }
    wake_watchdog_.notify_all();
  }
  transmit();
}

void Core::handle_locked(Peer& peer, Message& message) {
  if (peer.closed) {
    // Who offers must not wait in vain.
    if (const Offer* offer = std::get_if<Offer>(&message)) {
      post_locked(peer, End{offer->ticket, Direction::kIncoming,
                            absl::UnavailableError("the NCCL plane is closed")});
    }
    return;
  }
  std::visit(
      [this, &peer](auto& body) {
        mutex_.assert_held();
        on_locked(peer, body);
      },
      message);
}

void Core::transmit() {
  MutexLock lock(mutex_);
  // The thread that sends looks again before it ends.
  if (stopped_ || sends_) return;
  sends_ = true;
  while (true) {
    std::vector<Packed> notes = pack_locked();
    std::vector<std::string> news;
    news.swap(news_);
    if (notes.empty() && news.empty()) break;
    lock.unlock();
    for (Packed& each : notes) {
      options_.send(each.to, std::move(each.note),
                    [weak = weak_from_this(), peer = each.to.incarnation] {
                      if (auto self = weak.lock()) self->on_note_ended(peer);
                    });
    }
    for (const std::string& text : news) log(text);
    lock.lock();
  }
  sends_ = false;
  changed_.notify_all();
}

std::vector<Core::Packed> Core::pack_locked() {
  std::vector<Packed> notes;
  for (const auto& [incarnation, peer] : peers_) {
    while (!peer->waiting.empty() && peer->notes_on_the_way < kMaxNotesOnTheWay) {
      std::vector<Message> packed;
      std::size_t bytes = 0;
      while (!peer->waiting.empty()) {
        bytes += most_bytes(peer->waiting.front());
        if (!packed.empty() && bytes > kMaxNoteBytes) break;
        packed.push_back(std::move(peer->waiting.front()));
        peer->waiting.pop_front();
      }
      ++peer->notes_on_the_way;
      notes.push_back({peer->worker, encode(packed)});
    }
  }
  return notes;
}

// On a thread of the sender, also before options_.send has returned.
void Core::on_note_ended(Incarnation incarnation) {
  {
    MutexLock lock(mutex_);
    const auto found = peers_.find(incarnation);
    if (found == peers_.end()) return;
    --found->second->notes_on_the_way;
    if (found->second->waiting.empty()) return;
  }
  transmit();
}

void Core::log(const std::string& text) const {
  if (options_.log != nullptr) options_.log(text);
}

// ---- The end.

void Core::stop() {
  {
    MutexLock lock(mutex_);
    if (stopping_) {
      while (!stopped_) changed_.wait(mutex_);
      return;
    }
    stopping_ = true;
    const absl::Status status = absl::CancelledError("the NCCL plane stops");
    for (const auto& [incarnation, peer] : peers_) {
      end_all_locked(*peer, status, Cause::kStopped);
    }
    for (const auto& [id, device] : devices_) device->wake.notify_all();
    wake_watchdog_.notify_all();
  }
  transmit();
  if (watchdog_.joinable()) watchdog_.join();
  join_launchers();
  MutexLock lock(mutex_);
  // Those who came before stop() may still be sending.
  while (sends_) changed_.wait(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

void Core::join_launchers() {
  const TimePoint give_up = std::chrono::steady_clock::now() + options_.abort_timeout;
  std::vector<std::thread> ended;
  bool hangs = false;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, device] : devices_) {
      if (!device->launcher.joinable()) continue;
      while (!device->launcher_ended && std::chrono::steady_clock::now() < give_up) {
        changed_.wait_until(mutex_, give_up);
      }
      if (device->launcher_ended) {
        ended.push_back(std::move(device->launcher));
      } else {
        // It holds this object, and touches nothing else when it comes back.
        device->launcher.detach();
        ++device->generation;
        ++counters_.threads_left_behind;
        hangs = true;
      }
    }
  }
  for (std::thread& launcher : ended) launcher.join();
  if (hangs) log("a call of NCCL does not return: its thread is left behind");
}

NcclCounters Core::counters() const {
  MutexLock lock(mutex_);
  NcclCounters counters = counters_;
  for (const auto& [id, device] : devices_) {
    counters.communicators += static_cast<std::int64_t>(device->communicators.size());
  }
  for (const auto& [incarnation, peer] : peers_) {
    counters.transfers += static_cast<std::int64_t>(peer->outgoing.size() + peer->incoming.size());
  }
  for (const auto& teardown : teardowns_) {
    counters.transfers += static_cast<std::int64_t>(teardown->transfers.size());
  }
  counters.aborts_under_way = static_cast<std::int64_t>(teardowns_.size());
  return counters;
}

}  // namespace sinew::internal::nccl
