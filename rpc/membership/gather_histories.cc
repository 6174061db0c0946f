#include "sinew/rpc/membership/gather_histories.h"

#include <algorithm>
#include <iterator>
#include <string>

namespace sinew::internal {
namespace {

std::size_t bytes_of(const GatherHistories::Outcome& outcome) {
  if (!outcome.ok()) return outcome.status().message().size();
  std::size_t bytes = outcome->size() * sizeof(std::string);
  for (const std::string& value : *outcome) bytes += value.size();
  return bytes;
}

}  // namespace

GatherKey GatherHistories::begin(std::string names, std::uint32_t epoch,
                                 const std::vector<WorkerInfo>& members) {
  History& history = histories_[{names, epoch}];
  if (history.next == 0) {
    for (const WorkerInfo& member : members) history.members.push_back(member.incarnation);
  }
  return {std::move(names), (std::uint64_t{epoch} << 32) | history.next++};
}

const GatherHistories::History* GatherHistories::history_of(const GatherKey& key) const {
  const auto found = histories_.find(set_of(key));
  return found == histories_.end() ? nullptr : &found->second;
}

bool GatherHistories::has_begun(const GatherKey& key) const {
  const History* history = history_of(key);
  return history != nullptr && key.number() < history->next;
}

void GatherHistories::add_end(const GatherKey& key, const Outcome& outcome) {
  const std::size_t bytes = bytes_of(outcome);
  if (bytes > kBytes) return;
  const Set set = set_of(key);
  History& history = histories_[set];
  history.ends.emplace_back(key.number(), outcome);
  bytes_ += bytes;
  if (history.ends.size() > kEnds) drop_end(history);
  lately_.erase(std::remove(lately_.begin(), lately_.end(), set), lately_.end());
  lately_.push_back(set);
  if (lately_.size() > kSets) drop_oldest_set();
  // The last one that is left fits.
  while (bytes_ > kBytes) {
    if (lately_.size() > 1) {
      drop_oldest_set();
    } else {
      drop_end(history);
    }
  }
}

void GatherHistories::drop_end(History& history) {
  bytes_ -= bytes_of(history.ends.front().second);
  history.ends.pop_front();
}

void GatherHistories::drop_oldest_set() {
  const auto oldest = histories_.find(lately_.front());
  lately_.pop_front();
  while (!oldest->second.ends.empty()) drop_end(oldest->second);
  // Otherwise its numbers go on.
  if (oldest->second.is_past) histories_.erase(oldest);
}

const GatherHistories::Outcome* GatherHistories::find(const GatherKey& key) const {
  const History* history = history_of(key);
  if (history == nullptr) return nullptr;
  for (const auto& [number, outcome] : history->ends) {
    if (number == key.number()) return &outcome;
  }
  return nullptr;
}

void GatherHistories::on_lost(Incarnation incarnation) {
  for (auto each = histories_.begin(); each != histories_.end();) {
    History& history = each->second;
    const auto& members = history.members;
    if (std::find(members.begin(), members.end(), incarnation) == members.end()) {
      ++each;
      continue;
    }
    // Somebody who has not heard of the loss may still ask for what failed because of it.
    history.is_past = true;
    each = history.ends.empty() ? histories_.erase(each) : std::next(each);
  }
}

}  // namespace sinew::internal
