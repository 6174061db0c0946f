#include "sinew/rpc/internal/batch_queue.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sinew/rpc/membership/scheduler.h"

namespace sinew::internal {
absl::Status BatchQueue::check(const BatcherOptions& options) {
  if (options.max_batch == 0) {
    return absl::InvalidArgumentError("BatcherOptions::max_batch must be at least 1");
  }
  if (options.max_concurrent == 0) {
    return absl::InvalidArgumentError("BatcherOptions::max_concurrent must be at least 1");
  }
  if (options.max_wait < std::chrono::nanoseconds(0)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("BatcherOptions::max_wait must not be negative; this one is %d ns",
                        options.max_wait.count()));
  }
  if (options.max_queued < options.max_batch) {
    return absl::InvalidArgumentError(absl::StrCat(
        "BatcherOptions::max_queued is ", options.max_queued, ", so that a batch of max_batch = ",
        options.max_batch, " never fills: let at least as many wait"));
  }
  return absl::OkStatus();
}

absl::StatusOr<BatchQueue::Ticket> BatchQueue::add(Clock::TimePoint now,
                                                   Clock::TimePoint deadline) {
  if (waiting_.size() >= options_.max_queued) {
    ++totals_.rejected;
    return absl::ResourceExhaustedError(absl::StrCat(
        waiting_.size(), " calls wait for their batch already (max_queued = ", options_.max_queued,
        "): try again later"));
  }
  const Ticket ticket{++last_ticket_};
  waiting_.emplace(ticket, Waiting{deadline_after(now, options_.max_wait), deadline});
  if (deadline != Clock::TimePoint::max()) deadlines_.emplace(deadline, ticket);
  return ticket;
}

bool BatchQueue::remove(Ticket ticket) {
  const auto found = waiting_.find(ticket);
  if (found == waiting_.end()) return false;
  erase(ticket, found->second.deadline);
  ++totals_.given_up;
  return true;
}

std::vector<BatchQueue::Ticket> BatchQueue::take_expired(Clock::TimePoint now) {
  std::vector<Ticket> expired;
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    expired.push_back(deadlines_.begin()->second);
    remove(expired.back());
  }
  return expired;
}

std::vector<BatchQueue::Ticket> BatchQueue::take_batch(Clock::TimePoint now) {
  if (!may_begin() || (!is_complete() && waiting_.begin()->second.goes_at > now)) return {};
  std::vector<Ticket> batch;
  batch.reserve(std::min(waiting_.size(), options_.max_batch));
  while (!waiting_.empty() && batch.size() < options_.max_batch) {
    const auto first = waiting_.begin();
    batch.push_back(first->first);
    erase(first->first, first->second.deadline);
  }
  ++running_;
  ++totals_.batches;
  totals_.calls += batch.size();
  return batch;
}

void BatchQueue::batch_ended() { --running_; }

std::vector<BatchQueue::Ticket> BatchQueue::take_all() {
  std::vector<Ticket> all;
  all.reserve(waiting_.size());
  for (const auto& [ticket, call] : waiting_) all.push_back(ticket);
  waiting_.clear();
  deadlines_.clear();
  return all;
}

std::optional<Clock::TimePoint> BatchQueue::look_again() const {
  Clock::TimePoint next = Clock::TimePoint::max();
  if (!deadlines_.empty()) next = deadlines_.begin()->first;
  // A batch that must wait for another one goes when that ends.
  if (may_begin()) next = std::min(next, waiting_.begin()->second.goes_at);
  if (next == Clock::TimePoint::max()) return std::nullopt;
  return next;
}

BatcherStats BatchQueue::stats() const {
  BatcherStats stats = totals_;
  stats.queued = waiting_.size();
  stats.running = running_;
  return stats;
}

// No further call can join the next batch.
bool BatchQueue::is_complete() const {
  return waiting_.size() >= options_.max_batch ||
         (options_.expected > 0 && waiting_.size() >= options_.expected);
}

void BatchQueue::erase(Ticket ticket, Clock::TimePoint deadline) {
  if (deadline != Clock::TimePoint::max()) deadlines_.erase({deadline, ticket});
  waiting_.erase(ticket);
}

}  // namespace sinew::internal
