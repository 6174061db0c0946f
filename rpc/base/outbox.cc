#include "sinew/rpc/base/outbox.h"

namespace sinew::internal {

std::uint64_t OutboxSchedule::add(std::chrono::nanoseconds now) {
  pending_.emplace(++last_sequence_, Pending{now, options_.first_retry, false});
  return last_sequence_;
}

std::vector<std::uint64_t> OutboxSchedule::take_due(std::chrono::nanoseconds now) {
  std::vector<std::uint64_t> due;
  for (auto& [sequence, pending] : pending_) {
    if (!in_window(sequence)) break;
    if (pending.due > now) continue;
    due.push_back(sequence);
    pending.sent = true;
    pending.due = now + pending.delay;
    pending.delay = std::min(2 * pending.delay, options_.max_retry);
  }
  return due;
}

std::optional<std::chrono::nanoseconds> OutboxSchedule::next_due() const {
  std::optional<std::chrono::nanoseconds> next;
  for (const auto& [sequence, pending] : pending_) {
    if (!in_window(sequence)) break;
    if (!next.has_value() || pending.due < *next) next = pending.due;
  }
  return next;
}

std::vector<std::uint64_t> OutboxSchedule::acknowledge(const ControlAck& ack) {
  std::vector<std::uint64_t> done;
  // The peer may say anything: what was never transmitted cannot have arrived.
  while (!pending_.empty() && pending_.begin()->first <= ack.cumulative &&
         pending_.begin()->second.sent) {
    done.push_back(pending_.begin()->first);
    pending_.erase(pending_.begin());
  }
  for (std::uint64_t sequence : ack.selective) {
    auto pending = pending_.find(sequence);
    if (pending == pending_.end() || !pending->second.sent) continue;
    done.push_back(sequence);
    pending_.erase(pending);
  }
  return done;
}

void OutboxSchedule::clear() { pending_.clear(); }

Inbox::Verdict Inbox::accept(Incarnation sender, std::uint64_t sequence) {
  if (sender != sender_ || sequence == 0) return Verdict::kForeign;
  if (sequence > cumulative_ + kWindow) return Verdict::kTooFar;
  ack_due_ = true;
  if (sequence <= cumulative_ || !beyond_.insert(sequence).second) return Verdict::kRepeated;
  while (!beyond_.empty() && *beyond_.begin() == cumulative_ + 1) {
    beyond_.erase(beyond_.begin());
    ++cumulative_;
  }
  return Verdict::kNew;
}

ControlAck Inbox::take_ack() {
  ack_due_ = false;
  ControlAck ack;
  ack.cumulative = cumulative_;
  for (std::uint64_t sequence : beyond_) {
    if (ack.selective.size() == ControlAck::kMaxSelective) break;
    ack.selective.push_back(sequence);
  }
  return ack;
}

}  // namespace sinew::internal
