// The part of ReferenceManager that tells what there is, and gives it up at shutdown.

#include "absl/container/btree_map.h"
#include "absl/strings/match.h"
#include "sinew/rpc/calls/state_report.h"
#include "sinew/rpc/calls/type_text.h"
#include "sinew/rpc/calls/worker_services.h"
#include "sinew/rref/internal/reference_manager.h"

namespace sinew::internal {

bool ReferenceManager::is_drained_locked(DrainScope scope) const {
  for (const auto& [incarnation, channel] : channels_) {
    if (!channel.is_silent()) return false;
  }
  const ledger::LedgerCounters count = ledger_.counters();
  if (count.users + count.pending_children != 0) return false;
  // What only this program holds of its own values is no leak, and who is fenced can neither use
  // nor return what is kept for it.
  return scope == DrainScope::kThisWorker || count.forks == count.forks_of_lost;
}

std::vector<std::string> ReferenceManager::report_locked() const {
  // Deleted here, but the owner may not know: to it they are held as before.
  absl::btree_map<ForkId, ledger::LiveReference> deleted;
  const auto note = [&deleted](const Channel& channel, const Queued& queued) {
    if (queued.deleted.creation_site.empty()) return;
    ledger::LiveReference& reference = deleted[ledger::public_part(queued.fork)];
    reference.role = ledger::Role::kUser;
    reference.rref = queued.rref;
    reference.fork = queued.fork;
    reference.peers = {channel.peer};
    reference.description = queued.deleted;
  };
  for (const auto& [incarnation, channel] : channels_) {
    for (const Queued& queued : channel.waiting) note(channel, queued);
    for (const auto& [number, queued] : channel.on_the_way) {
      for (const Queued& each : queued) note(channel, each);
    }
  }
  std::vector<std::string> lines;
  for (ledger::LiveReference& reference : ledger_.live_references()) {
    if (reference.role == ledger::Role::kOwner) {
      if (reference.peers.empty()) continue;
      note_type_locked(reference);
    } else if (absl::StartsWith(reference.state, "gone")) {
      // It is of no use, but the program still has handles of it.
      const auto found = deleted.find(ledger::public_part(reference.fork));
      if (found != deleted.end()) found->second.local_handles = reference.local_handles;
      continue;
    }
    lines.push_back(ledger::to_text(reference));
  }
  for (auto& [fork, reference] : deleted) {
    reference.state = "deleted here, of which the owner may not have heard";
    lines.push_back(ledger::to_text(reference));
  }
  return lines;
}

Future<std::vector<std::string>> ReferenceManager::drain_async(DrainScope scope,
                                                               Clock::TimePoint deadline) {
  Promise<std::vector<std::string>> promise(services_.executor().get());
  Future<std::vector<std::string>> future = promise.future();
  apply([&](ledger::Ledger& ledger) {
    mutex_.assert_held();
    drains_.push_back({scope, deadline, promise});
    return ledger.release_all_users(now());
  });
  return future;
}

void ReferenceManager::finish_drains() {
  std::vector<std::pair<Promise<std::vector<std::string>>, std::vector<std::string>>> finished;
  {
    MutexLock lock(mutex_);
    for (auto at = drains_.begin(); at != drains_.end();) {
      const bool drained = is_drained_locked(at->scope);
      if (!drained && at->deadline > services_.clock().now()) {
        ++at;
        continue;
      }
      finished.emplace_back(at->promise, drained ? std::vector<std::string>() : report_locked());
      at = drains_.erase(at);
    }
  }
  for (auto& [promise, report] : finished) promise.try_set_value(std::move(report));
}

void ReferenceManager::report(StateReport& report) const {
  if (!report.wants("references")) return;
  MutexLock lock(mutex_);
  const ledger::LedgerCounters count = ledger_.counters();
  const std::size_t all = count.owner_entries + count.users;
  if (all > StateReport::kMostOfOne) report.leave_out("references", all - StateReport::kMostOfOne);
  // No more than are told: calls wait for the lock.
  for (ledger::LiveReference& reference : ledger_.live_references(StateReport::kMostOfOne)) {
    proto::HeldReference* const held =
        report.add(*report.state().mutable_references(), "references");
    if (held == nullptr) return;
    const bool is_owner = reference.role == ledger::Role::kOwner;
    held->set_role(is_owner ? proto::HeldReference::OWNER : proto::HeldReference::USER);
    held->set_creator(reference.rref.creator.value);
    held->set_serial(reference.rref.serial);
    note_type_locked(reference);
    held->set_type(reference.description.type_name);
    held->set_site(reference.description.creation_site);
    for (const WorkerInfo& peer : reference.peers) write_identity(peer, *held->add_peers());
    held->set_state(reference.state);
    held->set_local_handles(reference.local_handles);
    const auto slot = slots_.find(reference.rref);
    if (is_owner && slot != slots_.end()) held->set_age_us(report.age_us(slot->second->since));
  }
}

// The value itself knows best of what type it is.
void ReferenceManager::note_type_locked(ledger::LiveReference& reference) const {
  const auto slot = slots_.find(reference.rref);
  const bool made = slot != slots_.end() && slot->second->future.done() &&
                    slot->second->future.error() == nullptr;
  if (made) reference.description.type_name = type_text(*slot->second->future.value().type);
}

}  // namespace sinew::internal
