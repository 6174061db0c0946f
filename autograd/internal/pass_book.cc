#include "sinew/autograd/internal/pass_book.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/autograd/internal/pass_bugs.h"

namespace sinew::internal {
namespace {

// Far more than pairs of workers that ask and start passes; a peer must not fill the memory.
constexpr std::size_t kMaxWords = std::size_t{1} << 16;
// A worker that is asked again hears of them. What is beyond them it hears of by the abort itself.
constexpr std::size_t kMaxOwed = 1024;

}  // namespace

PassBook::Joined PassBook::join(const PassId& id) {
  const auto ended = ended_.find(id.initiator);
  if (ended != ended_.end() && !SINEW_PASS_BUG(kJoinsTheEnded)) {
    const Ended& last = ended->second;
    if (last.serial == id.serial && last.done) return {Joining::kIsDone, std::nullopt};
    if (last.serial >= id.serial) return {Joining::kIsOver, std::nullopt};
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
  note_end(*running_, {running_->serial, false, {}});
  return {Joining::kBegins, std::exchange(running_, id)};
}

PassBook::Ending PassBook::end(const PassId& id, PassPart::End end,
                               std::vector<Incarnation> asked) {
  Ending ending;
  if (end != PassPart::End::kFailedUntold) {
    ending.abort = note_end(id, {id.serial, end == PassPart::End::kDone, std::move(asked)});
    if (runs(id)) running_.reset();
  }
  if (end != PassPart::End::kDone && !SINEW_PASS_BUG(kKeepsFailed)) {
    ending.added = Added::kIsTakenBack;
  }
  return ending;
}

std::vector<Incarnation> PassBook::note_end(const PassId& id, Ended end) {
  Ended& last = ended_[id.initiator];
  if (id.serial > last.serial) {
    last = std::move(end);
    return {};
  }
  // One that is done may fail yet, at its initiator.
  if (id.serial < last.serial || end.done || SINEW_PASS_BUG(kDoneIsForEver)) return {};
  last.done = false;
  return std::exchange(last.asked, {});
}

PassBook::Word* PassBook::word_of(const Speaker& speaker) {
  const auto found = words_.find(speaker);
  if (found != words_.end()) return &found->second;
  return words_.size() >= kMaxWords ? nullptr : &words_[speaker];
}

PassBook::Asked PassBook::ask(const PassId& id, Incarnation by) {
  Word* word = word_of({by, id.initiator});
  if (word == nullptr) return Asked::kTooMany;
  if (id.serial <= word->given_up && !SINEW_PASS_BUG(kAsksAfterGivingUp)) return Asked::kTooLate;
  word->asked = std::max(word->asked, id.serial);
  return Asked::kInTime;
}

bool PassBook::has_asked(const PassId& id, Incarnation by) const {
  const auto found = words_.find({by, id.initiator});
  return found != words_.end() && id.serial <= found->second.asked;
}

void PassBook::give_up(const PassId& id, Incarnation by) {
  Word* word = word_of({by, id.initiator});
  if (word != nullptr) word->given_up = std::max(word->given_up, id.serial);
}

void PassBook::owe(const PassId& failed, Incarnation worker) {
  if (owed_.size() < kMaxOwed) owed_.insert({{worker, failed.initiator}, failed.serial});
}

void PassBook::settle(const PassId& failed, Incarnation worker) {
  owed_.erase({{worker, failed.initiator}, failed.serial});
}

std::vector<PassId> PassBook::owed_to(Incarnation worker) const {
  std::vector<PassId> failed;
  if (SINEW_PASS_BUG(kForgetsFailures)) return failed;
  for (auto at = owed_.lower_bound({{worker, Incarnation{}}, 0});
       at != owed_.end() && at->first.first == worker; ++at) {
    failed.push_back({at->first.second, at->second});
  }
  return failed;
}

void PassBook::append_key(std::string& key) const {
  if (running_.has_value()) absl::StrAppend(&key, running_->initiator.value, "#", running_->serial);
  key += '|';
  for (const auto& [initiator, last] : ended_) {
    absl::StrAppend(&key, initiator.value, "#", last.serial, last.done, ",");
    for (const Incarnation worker : last.asked) absl::StrAppend(&key, worker.value, ".");
  }
  key += '|';
  for (const auto& [speaker, word] : words_) {
    absl::StrAppend(&key, speaker.first.value, ">", speaker.second.value, "#", word.asked, "-",
                    word.given_up, ",");
  }
  key += '|';
  for (const auto& [speaker, serial] : owed_) {
    absl::StrAppend(&key, speaker.first.value, ">", speaker.second.value, "#", serial, ",");
  }
}

}  // namespace sinew::internal
