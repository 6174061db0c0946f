#include "sinew/rref/internal/name_search.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sinew/rref/internal/name_bugs.h"

namespace sinew::internal {
namespace {

using Step = NameSearch::Step;

double seconds(NameSearch::Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

NameSearch::NameSearch(std::string worker, std::string object, TimePoint now, TimePoint deadline)
    : worker_name_(std::move(worker)),
      object_(std::move(object)),
      begun_(now),
      deadline_(deadline) {}

Step NameSearch::begin() { return seek(); }

Step NameSearch::seek() {
  state_ = State::kSeeks;
  Step step;
  step.kind = Step::Kind::kSeek;
  step.hold = Duration::max();
  if (!SINEW_NAME_BUG(kSeeksTheLost)) step.worker = worker_;
  step.worker.name = worker_name_;
  return step;
}

Step NameSearch::pause(TimePoint now) {
  pause_ = pause_ == Duration(0) ? kFirstPause : std::min(2 * pause_, kMostPause);
  Step step = seek();
  step.hold = std::min<Duration>(pause_, deadline_ - now);
  return step;
}

Step NameSearch::on_member(const WorkerInfo& worker, TimePoint now) {
  worker_ = worker;
  if (!SINEW_NAME_BUG(kKeepsOldNames)) nearest_.reset();
  vanished_ = 0;
  pause_ = Duration(0);
  const bool is_overdue = now >= deadline_ && !SINEW_NAME_BUG(kIgnoresDeadline);
  return is_overdue ? fail_overdue(now) : ask(now);
}

// A question is kept at the worker until shortly before the deadline: what it has by then is what
// the error says. The last one is kept until the deadline.
Step NameSearch::ask(TimePoint now) {
  state_ = State::kAsks;
  hold_ = kMostHold;
  if (deadline_ != TimePoint::max()) {
    const Duration left = std::max(deadline_ - now, Duration(0));
    const Duration margin = std::min(kMostMargin, (deadline_ - begun_) / 8);
    hold_ = std::min(hold_, left > 2 * margin ? left - margin : left);
  }
  asked_at_ = now;
  Step step;
  step.kind = Step::Kind::kAsk;
  step.worker = worker_;
  step.hold = hold_;
  return step;
}

Step NameSearch::on_published() {
  state_ = State::kFetches;
  Step step;
  step.kind = Step::Kind::kFetch;
  step.worker = worker_;
  return step;
}

Step NameSearch::on_absent(std::vector<std::string> nearest, std::size_t published, TimePoint now) {
  nearest_ = std::move(nearest);
  published_ = published;
  pause_ = Duration(0);
  if (SINEW_NAME_BUG(kAbsenceIsFinal)) return fail_overdue(now);
  if (now >= deadline_ && !SINEW_NAME_BUG(kIgnoresDeadline)) return fail_overdue(now);
  // The two clocks may differ a little. To ask it again and again would be a flood.
  if (now - asked_at_ < hold_ - hold_ / 8 && !SINEW_NAME_BUG(kTrustsHastyDenial)) {
    return fail(absl::InternalError(
        absl::StrFormat("'%s' cannot be found: worker '%s' says after %.3g s that it has no such "
                        "name, and was to wait %.3g s for it",
                        address(), worker_name_, seconds(now - asked_at_), seconds(hold_))));
  }
  return ask(now);
}

Step NameSearch::on_fetched() {
  state_ = State::kOver;
  Step step;
  step.kind = Step::Kind::kSucceed;
  return step;
}

Step NameSearch::on_fetch_failed(const absl::Status& error, Fate fate, TimePoint now) {
  if (!absl::IsNotFound(error) || SINEW_NAME_BUG(kVanishingIsFinal)) {
    return on_error(error, fate, now);
  }
  if (now >= deadline_) return fail_overdue(now);
  // It was taken back after the worker had said that it is there.
  if (++vanished_ > kMostVanished && !SINEW_NAME_BUG(kVanishesForever)) return fail_likewise();
  return ask(now);
}

Step NameSearch::on_ask_failed(const absl::Status& error, Fate fate, TimePoint now) {
  return on_error(error, fate, now);
}

Step NameSearch::on_error(const absl::Status& error, Fate fate, TimePoint now) {
  if (absl::IsDeadlineExceeded(error) || now >= deadline_) {
    if (!SINEW_NAME_BUG(kIgnoresDeadline)) return fail_overdue(now);
  }
  if (SINEW_NAME_BUG(kAsksAfterRefusal)) return ask(now);
  if (!absl::IsUnavailable(error) || SINEW_NAME_BUG(kLossIsFinal)) return fail_likewise();
  lost_ = error;
  if (fate == Fate::kMayLive && !SINEW_NAME_BUG(kGivesUpTheSilent)) return pause(now);
  pause_ = Duration(0);
  return seek();
}

Step NameSearch::on_seek_failed(const absl::Status& error, TimePoint now) {
  if (!absl::IsDeadlineExceeded(error)) return fail_likewise();
  if (pause_ != Duration(0) && now < deadline_) return ask(now);
  std::string text = absl::StrCat("'", address(), "' was not found: ", error.message());
  // What the membership knows of the worker, and what this search has seen of it.
  if (!lost_.ok() && !absl::StrContains(text, lost_.message())) {
    absl::StrAppend(&text, "; it was asked before, in vain: ", lost_.message());
  }
  return fail(absl::DeadlineExceededError(text));
}

Step NameSearch::fail_overdue(TimePoint now) {
  std::string why;
  if (!nearest_.has_value()) {
    why = absl::StrCat("worker '", worker_name_, "' is there, but has not answered in time");
  } else if (nearest_->empty()) {
    why = absl::StrCat("worker '", worker_name_, "' is there, but has published nothing");
  } else {
    why = absl::StrCat("worker '", worker_name_, "' is there, but has published no '", object_,
                       "'; it has '", absl::StrJoin(*nearest_, "', '"), "'");
    if (nearest_->size() < published_) {
      absl::StrAppend(&why, " and ", published_ - nearest_->size(), " more");
    }
  }
  return fail(absl::DeadlineExceededError(absl::StrFormat("'%s' was not found within %.3g s: %s",
                                                          address(), seconds(now - begun_), why)));
}

Step NameSearch::fail(const absl::Status& error) {
  state_ = State::kOver;
  Step step;
  step.kind = Step::Kind::kFail;
  step.worker.name = worker_name_;
  step.error = error;
  return step;
}

Step NameSearch::fail_likewise() {
  Step step = fail({});
  step.kind = Step::Kind::kFailLikewise;
  return step;
}

void NameSearch::append_key(std::string& key) const {
  absl::StrAppend(&key, static_cast<int>(state_), "/", worker_.incarnation.value, "/",
                  lost_.ok() ? 0 : 1, pause_ == Duration(0) ? 0 : 1, "/", vanished_, "/");
  if (nearest_.has_value()) absl::StrAppend(&key, absl::StrJoin(*nearest_, ","));
}

}  // namespace sinew::internal
