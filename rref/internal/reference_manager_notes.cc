// The part of ReferenceManager that talks to those of other workers.

#include <chrono>
#include <iterator>
#include <utility>

#include "absl/strings/str_format.h"
#include "sinew/rpc/calls/worker_services.h"
#include "sinew/rref.pb.h"
#include "sinew/rref/internal/ledger_codec.h"
#include "sinew/rref/internal/reference_manager.h"

namespace sinew::internal {
namespace {

// A note travels inside its lane, so that it is not late.
constexpr std::size_t kMaxMessagesPerNote = 512;
constexpr std::size_t kMaxNoteBytes = std::size_t{64} << 10;
// A peer of which others have told this worker before the list of members did.
constexpr auto kUnknownPeerPause = std::chrono::milliseconds(200);

}  // namespace

ReferenceManager::Queued ReferenceManager::make_queued(ledger::Send send) {
  Queued queued;
  proto::LedgerMessage message;
  write_message(send.message, message);
  queued.bytes = message.SerializeAsString();
  if (const auto* deletion = std::get_if<ledger::Delete>(&send.message)) {
    queued.rref = deletion->rref;
    queued.fork = deletion->fork;
    queued.deleted = std::move(send.deleted);
  }
  return queued;
}

ReferenceManager::Channel& ReferenceManager::channel_locked(const WorkerInfo& peer) {
  return channels_.try_emplace(peer.incarnation, peer).first->second;
}

// On the thread that had something to say: to wake another one takes longer than to say it.
void ReferenceManager::flush() {
  std::vector<Packed> notes;
  {
    MutexLock lock(mutex_);
    if (stopped_ || dirty_.empty()) return;
    for (const Incarnation incarnation : dirty_) {
      const auto found = channels_.find(incarnation);
      if (found != channels_.end()) pack_locked(found->second, notes);
    }
    dirty_.clear();
  }
  // Without the lock: a note that cannot be sent has ended when send_note() returns.
  for (Packed& note : notes) {
    services_.send_note(
        note.to, layer(), std::move(note.body),
        [weak = weak_from_this(), to = note.to, number = note.number](CarrierEnd how) {
          if (auto self = weak.lock()) self->on_note_ended(to, number, how);
        });
  }
}

void ReferenceManager::pack_locked(Channel& channel, std::vector<Packed>& notes) {
  if (channel.known_at != Clock::TimePoint::min()) return;
  while (!channel.waiting.empty() && channel.on_the_way.size() < kMaxNotesOnTheWay) {
    proto::LedgerNote note;
    std::vector<Queued> packed;
    std::size_t bytes = 0;
    while (!channel.waiting.empty() && packed.size() < kMaxMessagesPerNote &&
           (packed.empty() || bytes + channel.waiting.front().bytes.size() <= kMaxNoteBytes)) {
      bytes += channel.waiting.front().bytes.size();
      note.add_messages()->ParseFromString(channel.waiting.front().bytes);
      packed.push_back(std::move(channel.waiting.front()));
      channel.waiting.pop_front();
    }
    notes.push_back({channel.peer, ++last_note_, note.SerializeAsString()});
    channel.on_the_way.emplace(last_note_, std::move(packed));
  }
}

void ReferenceManager::on_note_ended(const WorkerInfo& peer, std::uint64_t number, CarrierEnd how) {
  {
    MutexLock lock(mutex_);
    const auto found = channels_.find(peer.incarnation);
    if (stopped_ || found == channels_.end()) return;
    Channel& channel = found->second;
    const auto note = channel.on_the_way.find(number);
    if (note == channel.on_the_way.end()) return;  // The peer is fenced.
    std::vector<Queued> messages = std::move(note->second);
    channel.on_the_way.erase(note);
    if (how == CarrierEnd::kNotSent) {
      channel.waiting.insert(channel.waiting.begin(), std::make_move_iterator(messages.begin()),
                             std::make_move_iterator(messages.end()));
      channel.known_at = services_.clock().now() + kUnknownPeerPause;
      arm_timer_locked();
    }
    if (!channel.waiting.empty()) dirty_.insert(peer.incarnation);
  }
  flush();
  finish_drains();
}

void ReferenceManager::on_note(const WorkerInfo& from, std::string body) {
  proto::LedgerNote note;
  if (!note.ParseFromString(body)) {
    services_.log(absl::StrFormat(
        "worker '%s' sent a message about references that cannot be parsed", from.name));
    return;
  }
  for (const proto::LedgerMessage& received : note.messages()) {
    apply([&](ledger::Ledger& ledger) -> ledger::Handled {
      mutex_.assert_held();
      if (ledger.is_lost(from)) return {};
      absl::StatusOr<ledger::LedgerMessage> message = read_message(received);
      if (!message.ok()) return {message.status(), {}};
      return ledger.handle(*message, from, now());
    });
  }
}

}  // namespace sinew::internal
