#include "sinew/rpc/base/threads/polling_duty.h"

#include <sys/resource.h>

#include <algorithm>
#include <thread>

namespace sinew::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using SteadyClock = std::chrono::steady_clock;

// The duty lies for twice that at most.
constexpr auto kDutyWatchInterval = milliseconds(1);
// An event that takes less than this part of a wake-up to come was there before.
constexpr int kAtOnce = 4;
// Where events crowd, so many more are handled before the tasks that they lead to. With all of
// them, two workers that keep each other busy would take turns instead.
constexpr int kMaxMoreEvents = 2;

// How often the calling thread's core was given to another thread while it could have run.
std::int64_t cores_given_to_others() {
  rusage usage{};
  return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
}

}  // namespace

PollingDuty::PollingDuty(EventSource* source, nanoseconds max_poll, bool (*has_core)(TimePoint),
                         const WakeUpPrice& price)
    : source_(source),
      pool_polls_(max_poll, PollPolicy::Waits::kForOthers),
      waiter_polls_(max_poll, PollPolicy::Waits::kForItself),
      has_core_(has_core),
      price_(price),
      rules_(price.now()) {
  ProcessLife::add(this);
}

PollingDuty::~PollingDuty() { ProcessLife::remove(this); }

// The next event, polled for as far as that pays.
EventSource::Event PollingDuty::next(PollPolicy& policy, TimePoint deadline) {
  const TimePoint begun = SteadyClock::now();
  const nanoseconds price = price_.now();
  nanoseconds poll = policy.begin(begun, price);
  // Where it does not poll anyway nothing has to be found out.
  if (poll > nanoseconds(0) && !has_core_(begun)) poll = nanoseconds(0);
  nanoseconds polled{0};
  if (poll > nanoseconds(0)) {
    if (const auto event = this->poll(policy, begun, std::min(deadline, begun + poll)))
      return *event;
    polled = SteadyClock::now() - begun;
    count(polls_in_vain_, polled);
  }
  const EventSource::Event event = source_->next(deadline);
  const nanoseconds waited = SteadyClock::now() - begun;
  was_there_ = waited * kAtOnce < price;
  if (event.kind != EventSource::Event::Kind::kDeadline && !was_there_)
    policy.on_slept(waited, polled);
  return event;
}

// An event that has arrived by `until`. Between two polls the core is offered to threads that wait
// for it.
std::optional<EventSource::Event> PollingDuty::poll(PollPolicy& policy, TimePoint begun,
                                                    TimePoint until) {
  std::optional<std::int64_t> cores_given;
  for (TimePoint now = begun; now < until;) {
    const EventSource::Event event = source_->next(TimePoint::min());
    if (event.kind != EventSource::Event::Kind::kDeadline) {
      was_there_ = now == begun;
      // What was there before would not have slept.
      if (was_there_) return event;
      const nanoseconds waited = SteadyClock::now() - begun;
      policy.on_polled(waited);
      count(polls_paid_, waited);
      return event;
    }
    if (!cores_given.has_value()) cores_given = cores_given_to_others();
    const TimePoint offered = SteadyClock::now();
    std::this_thread::yield();
    now = SteadyClock::now();
    if (!policy.may_be_taken(now - offered)) continue;
    // A host may also take the core away from all threads of its guest; then no thread of this
    // guest needs it.
    const std::int64_t given = cores_given_to_others();
    if (given == *cores_given) continue;
    policy.on_core_taken(now, now - offered);
    return std::nullopt;
  }
  return std::nullopt;
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
  if (rules_.leader() != LeadRules::Leader::kNobody && !rules_.is_closed() && !rules_.is_ended()) {
    source_->interrupt();
  }
}

bool PollingDuty::stands_still() {
  MutexLock lock(mutex_);
  return rules_.leader() == LeadRules::Leader::kNobody || stands_still_ || rules_.is_closed() ||
         rules_.is_ended();
}

// For the leader: before it waits for an event, and before it handles one.
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

void PollingDuty::carry_out_locked(LeadRules::Wake wake) {
  if (wake == LeadRules::Wake::kOneParked) changed_.notify_one();
  if (rules_.is_closed() && rules_.leader() != LeadRules::Leader::kWaiter) {
    waiter_left_.notify_all();
  }
}

// ---- the pool

void PollingDuty::serve() {
  Executor::Helper helper(this);
  int thread = 0;
  {
    MutexLock lock(mutex_);
    thread = rules_.add_thread();
  }
  while (await_lead(thread)) lead_pool(helper);
}

bool PollingDuty::await_lead(int thread) {
  using Parked = LeadRules::Parked;
  MutexLock lock(mutex_);
  Parked next = rules_.park(thread);
  TimePoint until = TimePoint::max();
  while (next == Parked::kSleeps || next == Parked::kWatches) {
    if (next == Parked::kSleeps) {
      changed_.wait(mutex_);
      until = TimePoint::max();
      next = rules_.on_woken(thread);
      continue;
    }
    if (until == TimePoint::max()) until = SteadyClock::now() + kDutyWatchInterval;
    changed_.wait_until(mutex_, until);
    if (SteadyClock::now() < until) {
      next = rules_.on_woken(thread);
    } else {
      until = TimePoint::max();
      next = rules_.on_interval_over(thread);
    }
  }
  return next == Parked::kLeads;
}

void PollingDuty::lead_pool(Executor::Helper& helper) {
  bool ran_tasks = false;
  while (true) {
    stand_still_at_exit();
    const EventSource::Event event = next(pool_polls_, TimePoint::max());
    if (event.kind == EventSource::Event::Kind::kEnd) return on_source_ended();
    stand_still_at_exit();
    const bool is_crowded = ran_tasks && on_event_after_tasks();
    ran_tasks = false;
    {
      const Executor::Helper::Offer offer(may_help() ? &helper : nullptr);
      source_->handle(event);
      if (is_crowded) handle_more();
    }
    if (helper.has_tasks()) {
      if (!run_tasks(helper)) return;
      ran_tasks = true;
    } else if (lay_down_for_waiter()) {
      return;
    }
  }
}

void PollingDuty::on_source_ended() {
  // Code that still knows the duty does not hold up the end of the process.
  ProcessLife::remove(this);
  MutexLock lock(mutex_);
  rules_.end();
  changed_.notify_all();
}

bool PollingDuty::may_help() {
  MutexLock lock(mutex_);
  return rules_.may_help();
}

bool PollingDuty::on_event_after_tasks() {
  MutexLock lock(mutex_);
  return rules_.on_event_after_tasks(was_there_);
}

// Events that are there already: the answers to the calls in them then share a packet.
void PollingDuty::handle_more() {
  for (int i = 0; i < kMaxMoreEvents; ++i) {
    const EventSource::Event event = source_->next(TimePoint::min());
    // The end comes again.
    if (event.kind != EventSource::Event::Kind::kSomething) return;
    source_->handle(event);
  }
}

// Returns whether the calling thread leads again.
bool PollingDuty::run_tasks(Executor::Helper& helper) {
  const Executor::Helper::Workload tasks = helper.workload();
  {
    MutexLock lock(mutex_);
    rules_.set_wake_up(price_.now());
    carry_out_locked(rules_.lay_down_for_tasks(tasks.duration, tasks.is_brisk));
  }
  helper.run();
  MutexLock lock(mutex_);
  return rules_.lead_again();
}

void PollingDuty::begin_task_wait() {
  {
    MutexLock lock(mutex_);
    if (!rules_.begin_task_wait()) return;
  }
  if (source_->add_thread()) return;
  MutexLock lock(mutex_);
  rules_.not_added();
}

void PollingDuty::end_task_wait() {
  MutexLock lock(mutex_);
  rules_.end_task_wait();
}

bool PollingDuty::lay_down_for_waiter() {
  const TimePoint now = SteadyClock::now();
  MutexLock lock(mutex_);
  return rules_.lay_down_for_waiter(now);
}

// ---- those who wait

void PollingDuty::close() {
  using Leader = LeadRules::Leader;
  MutexLock lock(mutex_);
  rules_.close();
  if (rules_.leader() == Leader::kWaiter) source_->interrupt();
  while (rules_.leader() == Leader::kWaiter) waiter_left_.wait(mutex_);
}

void PollingDuty::interrupt() {
  MutexLock lock(mutex_);
  if (rules_.leader() == LeadRules::Leader::kWaiter) source_->interrupt();
}

void PollingDuty::woke_waiter() {
  MutexLock lock(mutex_);
  rules_.on_woke_waiter();
}

int PollingDuty::begin_wait(TimePoint now) {
  MutexLock lock(mutex_);
  rules_.set_wake_up(price_.now());
  return rules_.begin_wait(now);
}

bool PollingDuty::take_for_wait() {
  MutexLock lock(mutex_);
  return rules_.take_for_wait();
}

bool PollingDuty::may_lead_on(TimePoint begun) {
  const TimePoint now = SteadyClock::now();
  auto wake = LeadRules::Wake::kNobody;
  MutexLock lock(mutex_);
  const bool leads_on = rules_.may_lead_on(begun, now, wake);
  carry_out_locked(wake);
  return leads_on;
}

void PollingDuty::end_wait(int number, bool leads) {
  const TimePoint now = SteadyClock::now();
  MutexLock lock(mutex_);
  carry_out_locked(rules_.end_wait(number, leads, now));
}

PollingWait::PollingWait(PollingDuty* duty) : duty_(duty) {
  if (duty_ == nullptr) return;
  begun_ = SteadyClock::now();
  number_ = duty_->begin_wait(begun_);
}

PollingWait::~PollingWait() {
  if (duty_ != nullptr) duty_->end_wait(number_, leads_);
}

bool PollingWait::lead() {
  if (duty_ == nullptr || weary_) return false;
  if (!leads_) {
    leads_ = duty_->take_for_wait();
  } else if (has_polled_) {
    leads_ = duty_->may_lead_on(begun_);
    weary_ = !leads_;
  }
  return leads_;
}

void PollingWait::poll(PollingDuty::TimePoint deadline) {
  const EventSource::Event event = duty_->next(duty_->waiter_polls_, deadline);
  has_polled_ = true;
  duty_->stand_still_at_exit();
  if (event.kind == EventSource::Event::Kind::kSomething) duty_->source_->handle(event);
}

}  // namespace sinew::internal
