#include "sinew/rpc/base/threads/polling_duty.h"

#include <algorithm>
#include <optional>
#include <thread>

#include "sinew/rpc/base/threads/run_delay.h"

namespace sinew::internal {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using SteadyClock = std::chrono::steady_clock;

// The duty lies for twice that at most.
constexpr auto kWatchInterval = milliseconds(1);
// Tasks that take longer are not worth that events wait for them.
constexpr nanoseconds kMaxAbsence = microseconds(250);
// Threads that wait again so soon find the duty where they have left it.
constexpr nanoseconds kShortGap = microseconds(200);
// A thread that waits for longer does not save a wake-up worth speaking of by leading.
constexpr nanoseconds kLongWait = milliseconds(1);
// An event that takes no longer to come was there before.
constexpr nanoseconds kAtOnce = microseconds(5);
// Where events crowd, so many more are handled before the tasks that they lead to. With all of
// them, two workers that keep each other busy would take turns instead.
constexpr int kMaxMoreEvents = 2;
// From then on the executor's own threads run all tasks that are not very short.
constexpr double kCrowded = 0.25;
// What each event leaves of the crowding then, so that it is measured again now and then.
constexpr double kCrowdingDecay = 0.98;

}  // namespace

PollingDuty::PollingDuty(EventSource* source, nanoseconds max_poll)
    : source_(source), pool_polls_(max_poll), waiter_polls_(max_poll) {
  ProcessLife::add(this);
}

PollingDuty::~PollingDuty() { ProcessLife::remove(this); }

nanoseconds PollingDuty::begin(PollPolicy& policy, TimePoint now) {
  const nanoseconds poll = policy.begin(now);
  // Where it does not poll anyway nothing has to be found out.
  if (poll <= nanoseconds(0)) return poll;
  const std::optional<RunDelay> lost = new_run_delay(now);
  if (!lost.has_value()) return poll;
  policy.on_run_delay(now, lost->delay, lost->time);
  return policy.begin(now);
}

// The next event, polled for as far as that pays. Between two looks the core is offered to whoever
// waits for it.
EventSource::Event PollingDuty::next(PollPolicy& policy, TimePoint deadline) {
  using Kind = EventSource::Event::Kind;
  const TimePoint begun = SteadyClock::now();
  const nanoseconds poll = begin(policy, begun);
  TimePoint now = begun;
  for (bool goes_on = true; goes_on && now - begun < poll && now < deadline;) {
    const EventSource::Event event = source_->next(TimePoint::min());
    if (event.kind != Kind::kDeadline) {
      was_there_ = now == begun;
      // What was there before would not have slept.
      if (was_there_) return event;
      const nanoseconds waited = SteadyClock::now() - begun;
      policy.on_polled(waited);
      count(polls_paid_, waited);
      return event;
    }
    const TimePoint offered = SteadyClock::now();
    std::this_thread::yield();
    now = SteadyClock::now();
    goes_on = policy.may_go_on(offered, now);
  }
  const nanoseconds polled = now - begun;
  if (now != begun) count(polls_in_vain_, polled);
  const EventSource::Event event = source_->next(deadline);
  const nanoseconds waited = SteadyClock::now() - begun;
  was_there_ = waited < kAtOnce;
  if (event.kind != Kind::kDeadline && !was_there_) policy.on_slept(waited, polled);
  return event;
}

void PollingDuty::handle(const EventSource::Event& event) {
  source_->handle(event);
  const int messages = messages_.exchange(0, std::memory_order_relaxed);
  if (messages == 0) return;
  pool_polls_.on_messages(messages);
  waiter_polls_.on_messages(messages);
}

void PollingDuty::brought(std::size_t messages) {
  messages_.fetch_add(static_cast<int>(messages), std::memory_order_relaxed);
}

void PollingDuty::count(std::atomic<std::int64_t>& polls, nanoseconds polled) {
  polls.fetch_add(1, std::memory_order_relaxed);
  polled_ns_.fetch_add(polled.count(), std::memory_order_relaxed);
}

PollingDuty::Stats PollingDuty::stats() const {
  return {polls_paid_.load(std::memory_order_relaxed),
          polls_in_vain_.load(std::memory_order_relaxed),
          nanoseconds(polled_ns_.load(std::memory_order_relaxed))};
}

// ---- the end of the process

void PollingDuty::look_up() {
  MutexLock lock(mutex_);
  if (leader_ != Leader::kNobody && !closed_ && !ended_) source_->interrupt();
}

bool PollingDuty::stands_still() {
  MutexLock lock(mutex_);
  return leader_ == Leader::kNobody || stands_still_ || closed_ || ended_;
}

// For whoever leads: before it waits for an event, and before it handles one.
void PollingDuty::stand_still_at_exit() {
  if (!ProcessLife::is_standstill()) return;
  {
    MutexLock lock(mutex_);
    stands_still_ = true;
  }
  ProcessLife::stand_still_at_exit();
  MutexLock lock(mutex_);
  stands_still_ = false;
}

// ---- the pool

void PollingDuty::serve() {
  Executor::Helper helper;
  while (await_lead()) lead_pool(helper);
}

bool PollingDuty::await_lead() {
  MutexLock lock(mutex_);
  ++parked_;
  while (!ended_ && !(promoted_ && leader_ == Leader::kNobody)) {
    if (!watch_ || watching_) {
      changed_.wait(mutex_);
      continue;
    }
    watching_ = true;
    const std::uint64_t changes = changes_;
    const TimePoint until = SteadyClock::now() + kWatchInterval;
    while (!ended_ && !promoted_ && SteadyClock::now() < until) changed_.wait_until(mutex_, until);
    watching_ = false;
    if (changes != changes_) continue;
    if (leader_ == Leader::kNobody) break;
    // Whoever leads does so for long, and wakes somebody when it is through.
    watch_ = false;
  }
  --parked_;
  if (ended_) return false;
  take_locked(Leader::kPool);
  return true;
}

void PollingDuty::lead_pool(Executor::Helper& helper) {
  bool was_absent = false;
  while (true) {
    stand_still_at_exit();
    const EventSource::Event event = next(pool_polls_, TimePoint::max());
    if (event.kind == EventSource::Event::Kind::kEnd) {
      // Whoever still knows of the duty does not hold up the end of the process.
      ProcessLife::remove(this);
      MutexLock lock(mutex_);
      ended_ = true;
      leader_ = Leader::kNobody;
      changed_.notify_all();
      return;
    }
    stand_still_at_exit();
    const bool crowded = was_absent && note_wait_after_absence(was_there_);
    was_absent = false;
    {
      const Executor::Helper::Offer offer(may_help() ? &helper : nullptr);
      handle(event);
      if (crowded) handle_more();
    }
    if (helper.has_tasks()) {
      lay_down_for(helper.workload());
      helper.run();
      if (!lead_again()) return;
      was_absent = true;
    } else if (lay_down_for_waiter()) {
      return;
    }
  }
}

bool PollingDuty::lead_again() {
  MutexLock lock(mutex_);
  if (leader_ != Leader::kNobody || ended_) return false;
  take_locked(Leader::kPool);
  return true;
}

// Whether the pool's leader is to run what the next event posts. Not without a stand-by: nobody
// would take the duty up if a task took long. Nor where events would wait for long tasks.
bool PollingDuty::may_help() {
  MutexLock lock(mutex_);
  woke_waiter_ = false;
  if (parked_ == 0) return false;
  if (crowding_ <= kCrowded || tasks_are_brisk_) return true;
  crowding_ *= kCrowdingDecay;
  return false;
}

// Events that are there already: the answers to the calls in them then share a packet.
void PollingDuty::handle_more() {
  for (int i = 0; i < kMaxMoreEvents; ++i) {
    const EventSource::Event event = source_->next(TimePoint::min());
    // The end comes again.
    if (event.kind != EventSource::Event::Kind::kSomething) return;
    handle(event);
  }
}

// Returns whether there is likely to be more than the event that has come.
bool PollingDuty::note_wait_after_absence(bool was_there) {
  MutexLock lock(mutex_);
  crowding_ += ((was_there ? 1.0 : 0.0) - crowding_) / 8;
  return crowding_ > kCrowded;
}

void PollingDuty::lay_down_for(const Executor::Helper::Workload& tasks) {
  MutexLock lock(mutex_);
  leader_ = Leader::kNobody;
  ++changes_;
  tasks_are_brisk_ = tasks.is_brisk;
  if (tasks.duration > kMaxAbsence) {
    promote_locked();
    return;
  }
  watch_ = true;
  if (!watching_) changed_.notify_one();
}

// Whether the event has woken a thread that is likely to wait again soon. The caller watches then.
bool PollingDuty::lay_down_for_waiter() {
  MutexLock lock(mutex_);
  if (!woke_waiter_ || average_gap_ > kShortGap || closed_) return false;
  // The one that was woken may not have noticed yet.
  if (youngest_wait_ != nullptr && is_young(youngest_wait_->older_, SteadyClock::now())) {
    return false;
  }
  leader_ = Leader::kNobody;
  ++changes_;
  watch_ = true;
  return true;
}

void PollingDuty::promote_locked() {
  promoted_ = true;
  changed_.notify_one();
}

void PollingDuty::take_locked(Leader leader) {
  leader_ = leader;
  promoted_ = false;
  ++changes_;
}

// ---- those who wait

void PollingDuty::close() {
  MutexLock lock(mutex_);
  closed_ = true;
  if (leader_ == Leader::kWaiter) source_->interrupt();
  while (leader_ == Leader::kWaiter) waiter_left_.wait(mutex_);
  if (leader_ == Leader::kNobody) promote_locked();
}

void PollingDuty::interrupt() {
  MutexLock lock(mutex_);
  if (leader_ == Leader::kWaiter) source_->interrupt();
}

void PollingDuty::woke_waiter() {
  MutexLock lock(mutex_);
  woke_waiter_ = true;
}

void PollingDuty::begin(PollingWait& wait) {
  MutexLock lock(mutex_);
  wait.older_ = youngest_wait_;
  if (youngest_wait_ != nullptr) youngest_wait_->younger_ = &wait;
  youngest_wait_ = &wait;
  const nanoseconds gap = std::min<nanoseconds>(wait.begun_ - last_wait_ended_, kLongWait);
  average_gap_ += (gap - average_gap_) / 4;
}

void PollingDuty::end(PollingWait& wait) {
  const TimePoint now = SteadyClock::now();
  MutexLock lock(mutex_);
  if (wait.older_ != nullptr) wait.older_->younger_ = wait.younger_;
  (wait.younger_ == nullptr ? youngest_wait_ : wait.younger_->older_) = wait.older_;
  last_wait_ended_ = now;
  if (!wait.leads_) return;
  leader_ = Leader::kNobody;
  ++changes_;
  const bool back_soon = watching_ && average_gap_ < kShortGap && !is_young(youngest_wait_, now);
  if (!back_soon || closed_) promote_locked();
  if (closed_) waiter_left_.notify_all();
}

// Whether a thread waits for what may come any moment.
bool PollingDuty::is_young(const PollingWait* wait, TimePoint now) {
  return wait != nullptr && now - wait->begun_ < kLongWait;
}

bool PollingDuty::take_for_waiter() {
  MutexLock lock(mutex_);
  if (leader_ != Leader::kNobody || promoted_ || closed_) return false;
  take_locked(Leader::kWaiter);
  return true;
}

// Returns whether a waiting thread that leads goes on with it.
bool PollingDuty::lead_on(bool waits_for_long) {
  MutexLock lock(mutex_);
  if (!waits_for_long && !closed_) return true;
  leader_ = Leader::kNobody;
  ++changes_;
  promote_locked();
  if (closed_) waiter_left_.notify_all();
  return false;
}

PollingWait::PollingWait(PollingDuty* duty) : duty_(duty) {
  if (duty_ == nullptr) return;
  begun_ = SteadyClock::now();
  duty_->begin(*this);
}

PollingWait::~PollingWait() {
  if (duty_ != nullptr) duty_->end(*this);
}

bool PollingWait::lead() {
  if (duty_ == nullptr || weary_) return false;
  if (!leads_) {
    leads_ = duty_->take_for_waiter();
  } else if (has_polled_) {
    leads_ = duty_->lead_on(SteadyClock::now() - begun_ > kLongWait);
    weary_ = !leads_;
  }
  return leads_;
}

void PollingWait::poll(PollingDuty::TimePoint deadline) {
  const EventSource::Event event = duty_->next(duty_->waiter_polls_, deadline);
  has_polled_ = true;
  duty_->stand_still_at_exit();
  if (event.kind == EventSource::Event::Kind::kSomething) duty_->handle(event);
}

}  // namespace sinew::internal
