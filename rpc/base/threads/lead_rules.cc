#include "sinew/rpc/base/threads/lead_rules.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/threads/lead_bugs.h"

namespace sinew::internal {
namespace {

using Duration = LeadRules::Duration;

// Wake-ups. Tasks that take longer are not worth that events wait for them.
constexpr int kMaxAbsence = 8;
// Threads that wait again so soon find the duty where they have left it.
constexpr int kShortGap = 7;
// A thread that waits for longer does not save a wake-up worth speaking of by leading.
constexpr int kLongWait = 32;
// Waits that last longer on the average are too often cut off by that: the duty then goes back and
// forth between the wait and the pool, and each time a thread is woken.
constexpr int kShortWait = 20;
// At the beginning waits are rare, and short.
constexpr int kFirstGap = kLongWait;
constexpr int kFirstWait = 3;

// One leads, one stands by.
constexpr int kUsualThreads = 2;
// With as many it has no more, and the executor's own threads run tasks where too many of its wait.
constexpr int kMostThreads = 8;
// From then on the executor's own threads run all tasks that are not very short.
constexpr double kCrowded = 0.25;
// What each event leaves of the crowding then, so that it is measured again now and then.
constexpr double kCrowdingDecay = 0.98;

}  // namespace

LeadRules::LeadRules(Duration wake_up)
    : wake_up_(wake_up), average_gap_(kFirstGap * wake_up), average_wait_(kFirstWait * wake_up) {}

void LeadRules::take(Leader leader) {
  leader_ = leader;
  promoted_ = false;
  ++changes_;
}

void LeadRules::lay_down() {
  leader_ = Leader::kNobody;
  ++changes_;
}

LeadRules::Wake LeadRules::promote() {
  promoted_ = true;
  return Wake::kOneParked;
}

// ---- threads of the pool

int LeadRules::add_thread() {
  if (coming_ > 0) --coming_;
  return threads_++;
}

LeadRules::Parked LeadRules::park(int thread) {
  ++parked_;
  return next(thread, false);
}

LeadRules::Parked LeadRules::next(int thread, bool interval_is_over) {
  bool lies = false;
  if (watcher_ == thread) {
    if (!interval_is_over && !ended_ && !promoted_) return Parked::kWatches;
    watcher_ = -1;
    if (changes_ == watched_since_) {
      lies = leader_ == Leader::kNobody && !SINEW_LEAD_BUG(kWatcherTrustsAll);
      // The leader leads for long, and wakes another thread when it is done.
      if (!lies) watch_ = false;
    }
  }
  if (ended_ || lies || (promoted_ && leader_ == Leader::kNobody)) {
    --parked_;
    if (ended_) return Parked::kEnds;
    take(Leader::kPool);
    return Parked::kLeads;
  }
  if (!watch_ || watcher_ >= 0) return Parked::kSleeps;
  watcher_ = thread;
  watched_since_ = changes_;
  return Parked::kWatches;
}

bool LeadRules::may_help() {
  woke_waiter_ = false;
  if (parked_ == 0 || away_ > waiting_) return false;
  if (crowding_ <= kCrowded || tasks_are_brisk_) return true;
  crowding_ *= kCrowdingDecay;
  return false;
}

bool LeadRules::on_event_after_tasks(bool was_there) {
  crowding_ += ((was_there ? 1.0 : 0.0) - crowding_) / 8;
  return crowding_ > kCrowded;
}

LeadRules::Wake LeadRules::lay_down_for_tasks(Duration length, bool are_brisk) {
  lay_down();
  ++away_;
  tasks_are_brisk_ = are_brisk;
  if (length > kMaxAbsence * wake_up_) return promote();
  if (SINEW_LEAD_BUG(kNobodyWatches)) return Wake::kNobody;
  watch_ = true;
  return watcher_ < 0 ? Wake::kOneParked : Wake::kNobody;
}

bool LeadRules::begin_task_wait() {
  ++waiting_;
  const int all = threads_ + coming_;
  const bool is_short = all - waiting_ < kUsualThreads && all < kMostThreads;
  if (!is_short || closed_ || ended_ || SINEW_LEAD_BUG(kNobodyReplaces)) return false;
  ++coming_;
  return true;
}

bool LeadRules::lead_again() {
  --away_;
  if (ended_ || (leader_ != Leader::kNobody && !SINEW_LEAD_BUG(kTwoLead))) return false;
  take(Leader::kPool);
  return true;
}

bool LeadRules::lay_down_for_waiter(TimePoint now) {
  if (!woke_waiter_ || closed_) return false;
  if (average_gap_ > kShortGap * wake_up_ || average_wait_ > kShortWait * wake_up_) return false;
  // The one that was woken may not have noticed yet.
  if (is_young(1, now)) return false;
  lay_down();
  // The caller parks.
  watch_ = true;
  return true;
}

void LeadRules::end() {
  ended_ = true;
  leader_ = Leader::kNobody;
}

// ---- threads that wait

// Whether a thread waits for what may come any moment.
bool LeadRules::is_young(std::size_t place_from_the_youngest, TimePoint now) const {
  if (waits_.size() <= place_from_the_youngest) return false;
  return now - waits_[waits_.size() - 1 - place_from_the_youngest].begun < kLongWait * wake_up_;
}

int LeadRules::begin_wait(TimePoint now) {
  waits_.push_back({next_wait_, now});
  const Duration gap = std::min<Duration>(now - last_wait_ended_, kLongWait * wake_up_);
  average_gap_ += (gap - average_gap_) / 4;
  return next_wait_++;
}

bool LeadRules::take_for_wait() {
  if (leader_ != Leader::kNobody || promoted_ || closed_) return false;
  take(Leader::kWaiter);
  return true;
}

bool LeadRules::may_lead_on(TimePoint begun, TimePoint now, Wake& wake) {
  wake = Wake::kNobody;
  if (now - begun <= kLongWait * wake_up_ && !closed_) return true;
  lay_down();
  if (!SINEW_LEAD_BUG(kNobodyPromoted)) wake = promote();
  return false;
}

LeadRules::Wake LeadRules::end_wait(int wait, bool leads, TimePoint now) {
  const auto found = std::find_if(waits_.rbegin(), waits_.rend(),
                                  [wait](const Wait& each) { return each.number == wait; });
  const Duration length = std::min<Duration>(now - found->begun, 2 * kLongWait * wake_up_);
  average_wait_ += (length - average_wait_) / 8;
  waits_.erase(std::next(found).base());
  last_wait_ended_ = now;
  if (!leads) return Wake::kNobody;
  lay_down();
  const bool is_back_soon =
      watcher_ >= 0 && average_gap_ < kShortGap * wake_up_ && !is_young(0, now);
  return is_back_soon && !closed_ ? Wake::kNobody : promote();
}

void LeadRules::append_key(TimePoint now, std::string& key) const {
  const bool is_watched_since = watcher_ >= 0 && changes_ == watched_since_;
  absl::StrAppend(&key, static_cast<int>(leader_), promoted_, closed_, ended_, watch_, watcher_,
                  is_watched_since, parked_, ",", threads_, coming_, away_, waiting_, ",",
                  woke_waiter_, tasks_are_brisk_, crowding_ > kCrowded,
                  average_gap_ > kShortGap * wake_up_, average_wait_ > kShortWait * wake_up_);
  for (std::size_t i = 0; i < waits_.size(); ++i) absl::StrAppend(&key, is_young(i, now));
}

}  // namespace sinew::internal
