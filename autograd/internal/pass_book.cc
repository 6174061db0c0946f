#include "sinew/autograd/internal/pass_book.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/autograd/internal/pass_bugs.h"

namespace sinew::internal {
namespace {

// A worker that is asked again hears of them. What is beyond them it hears of by the abort itself.
constexpr std::size_t kMaxOwed = 1024;

}  // namespace

PassBook::Joined PassBook::join(const PassId& id) {
  const auto ended = ended_.find(id.initiator);
  if (ended != ended_.end() && ended->second >= id.serial && !SINEW_PASS_BUG(kJoinsTheEnded)) {
    return {Joining::kIsOver, std::nullopt};
  }
  if (!running_.has_value()) {
    running_ = id;
    return {Joining::kBegins, std::nullopt};
  }
  if (*running_ == id) return {Joining::kRuns, std::nullopt};
  const bool superseded = running_->initiator == id.initiator && running_->serial < id.serial;
  // Two calls of backward() at one worker are the program's mistake; from elsewhere an older pass
  // can only be one whose end has not been heard of.
  if (!superseded || id.initiator == self_) return {Joining::kMustWait, std::nullopt};
  note_end(*running_);
  return {Joining::kBegins, std::exchange(running_, id)};
}

PassBook::Added PassBook::end(const PassId& id, PassPart::End end) {
  if (end != PassPart::End::kFailedUntold) {
    note_end(id);
    if (runs(id)) running_.reset();
  }
  const bool stays = end == PassPart::End::kDone || SINEW_PASS_BUG(kKeepsFailed);
  return stays ? Added::kStays : Added::kIsTakenBack;
}

void PassBook::note_end(const PassId& id) {
  std::uint64_t& last = ended_[id.initiator];
  last = std::max(last, id.serial);
}

void PassBook::owe(std::uint64_t failed, Incarnation worker) {
  if (owed_.size() < kMaxOwed) owed_.emplace(worker, failed);
}

void PassBook::settle(std::uint64_t failed, Incarnation worker) { owed_.erase({worker, failed}); }

std::vector<std::uint64_t> PassBook::owed_to(Incarnation worker) const {
  std::vector<std::uint64_t> failed;
  if (SINEW_PASS_BUG(kForgetsFailures)) return failed;
  for (auto at = owed_.lower_bound({worker, 0}); at != owed_.end() && at->first == worker; ++at) {
    failed.push_back(at->second);
  }
  return failed;
}

void PassBook::append_key(std::string& key) const {
  if (running_.has_value()) absl::StrAppend(&key, running_->initiator.value, "#", running_->serial);
  key += '|';
  for (const auto& [initiator, last] : ended_) {
    absl::StrAppend(&key, initiator.value, "#", last, ",");
  }
  key += '|';
  for (const auto& [worker, failed] : owed_) absl::StrAppend(&key, worker.value, "#", failed, ",");
}

}  // namespace sinew::internal
