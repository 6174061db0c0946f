#include "sinew/optim/internal/subscription_state.h"

#include <utility>

#include "sinew/optim/internal/publication_bugs.h"

namespace sinew::internal {

using Step = SubscriptionState::Step;

namespace {
constexpr int kMostShareFailures = 3;
}  // namespace

Step SubscriptionState::next(Do what) {
  doing_ = what;
  return {what, ++attempt_, std::nullopt};
}

bool SubscriptionState::is_current(Attempt attempt) const {
  return attempt == attempt_ || SINEW_PUBLICATION_BUG(kTakesLateResults);
}

Step SubscriptionState::on_found(Attempt attempt) {
  if (!is_current(attempt)) return {};
  failed_ = PublicationTable::kNobody;
  return next(Do::kAsk);
}

Step SubscriptionState::on_not_found(Attempt attempt) {
  if (!is_current(attempt)) return {};
  after_pause_ = Do::kSeek;
  return next(Do::kPause);
}

Step SubscriptionState::on_pause_over(Attempt attempt) {
  if (!is_current(attempt)) return {};
  return next(after_pause_);
}

Step SubscriptionState::on_answer(Attempt attempt,
                                  const std::optional<PublicationTable::Answer>& answer) {
  if (!is_current(attempt)) return {};
  failed_ = PublicationTable::kNobody;
  if (!answer) return next(Do::kAsk);
  // A writer of before that has not noticed that there is another one.
  if (answer->version.number <= has_.number && !SINEW_PUBLICATION_BUG(kGoesBack)) {
    after_pause_ = Do::kSeek;
    return next(Do::kPause);
  }
  wanted_ = *answer;
  if (SINEW_PUBLICATION_BUG(kSaysWhatItFetches)) has_ = wanted_.version;
  if (answer->version.digest == has_.digest) {
    has_ = answer->version;
    Step step = next(Do::kAsk);
    step.switched = has_;
    return step;
  }
  if (answer->is_shared) return next(Do::kShare);
  return next(has_.number > 0 ? Do::kFetchChanges : Do::kFetchWhole);
}

Step SubscriptionState::on_ask_failed(Attempt attempt) {
  if (!is_current(attempt)) return {};
  after_pause_ = SINEW_PUBLICATION_BUG(kKeepsDeadWriter) ? Do::kAsk : Do::kSeek;
  return next(Do::kPause);
}

Step SubscriptionState::on_fetched(Attempt attempt, const std::string& digest) {
  if (!is_current(attempt)) return {};
  if (digest != wanted_.version.digest && !SINEW_PUBLICATION_BUG(kSwitchesUnverified)) {
    ++rejected_;
    if (doing_ == Do::kFetchChanges) {
      return next(SINEW_PUBLICATION_BUG(kChangesForever) ? Do::kFetchChanges : Do::kFetchWhole);
    }
    return fetch_failed();
  }
  if (doing_ == Do::kShare) share_failures_ = 0;
  has_ = wanted_.version;
  Step step = next(Do::kAsk);
  step.switched = has_;
  return step;
}

Step SubscriptionState::on_fetch_failed(Attempt attempt, Fault fault) {
  if (!is_current(attempt)) return {};
  if (doing_ == Do::kFetchChanges && fault != Fault::kLost) return next(Do::kFetchWhole);
  return fetch_failed();
}

Step SubscriptionState::fetch_failed() {
  if (doing_ == Do::kShare) ++share_failures_;
  failed_ = SINEW_PUBLICATION_BUG(kHidesFailure) ? PublicationTable::kNobody : wanted_.source;
  // Others are asked at once. After the writer there is no further source.
  if (wanted_.source != PublicationTable::kWriter || doing_ == Do::kShare) return next(Do::kAsk);
  after_pause_ = Do::kAsk;
  return next(Do::kPause);
}

PublicationTable::Ask SubscriptionState::ask(const std::string& pod) const {
  return {self_, share_failures_ < kMostShareFailures ? pod : "", has_, failed_};
}

}  // namespace sinew::internal
