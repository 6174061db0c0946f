#include "sinew/tests/threads/support/lead_model.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/tests/threads/support/explore.h"

namespace sinew::internal::sim {
namespace {

using Parked = LeadRules::Parked;
using Leader = LeadRules::Leader;
using Wake = LeadRules::Wake;

constexpr auto kTick = std::chrono::microseconds(500);
constexpr auto kWatchInterval = std::chrono::milliseconds(1);
// Of a settling: longer than the duty may lie.
constexpr int kSettlingTicks = 8;
constexpr int kMaxSteps = 400;

}  // namespace

LeadModel::LeadModel(const LeadWorld& world) : world_(world) {
  for (Waiter& waiter : waiters_) waiter.waits_left = world.waits;
  for (int i = 0; i < 2; ++i) start_thread();
}

void LeadModel::start_thread() {
  pool_.at(static_cast<std::size_t>(rules_.add_thread())).state = PoolThread::State::kToPark;
}

LeadModel::Event LeadModel::pop() {
  Event event = events_.front();
  // The end comes again and again.
  if (event.kind != Event::Kind::kEnd) events_.pop_front();
  return event;
}

void LeadModel::wake(Wake wake) {
  if (wake == Wake::kNobody) return;
  const auto hears = [](const PoolThread& thread) {
    return thread.state == PoolThread::State::kParked && !thread.signalled;
  };
  // A signal that nobody can hear is lost.
  const auto hearing = std::count_if(pool_.begin(), pool_.end(), hears);
  signals_ = std::min(signals_ + 1, static_cast<int>(hearing));
}

// ---- threads of the pool

bool LeadModel::may_step_pool(std::size_t index) const {
  const PoolThread& thread = pool_.at(index);
  switch (thread.state) {
    case PoolThread::State::kParked:
      return thread.signalled || (thread.parked == Parked::kWatches && now_ >= thread.until);
    case PoolThread::State::kLeads:
      return has_event();
    case PoolThread::State::kRuns:
      return thread.task != Task::kEndless && thread.task != Task::kLongEndless &&
             !(thread.task == Task::kWaitsForEver && thread.task_waits);
    case PoolThread::State::kToPark:
    case PoolThread::State::kHandles:
      return true;
    case PoolThread::State::kNotStarted:
    case PoolThread::State::kEnded:
      return false;
  }
  return false;
}

void LeadModel::step_pool(std::size_t index) {
  PoolThread& thread = pool_.at(index);
  const int number = static_cast<int>(index);
  switch (thread.state) {
    case PoolThread::State::kToPark:
      thread.until = TimePoint::max();
      return on_parked(thread, rules_.park(number));
    case PoolThread::State::kParked: {
      thread.signalled = false;
      const bool is_over = thread.parked == Parked::kWatches && now_ >= thread.until;
      if (is_over || thread.parked == Parked::kSleeps) thread.until = TimePoint::max();
      return on_parked(thread, is_over ? rules_.on_interval_over(number) : rules_.on_woken(number));
    }
    case PoolThread::State::kLeads:
      return take_event(thread);
    case PoolThread::State::kHandles:
      return finish_event(thread);
    case PoolThread::State::kRuns:
      return go_on(thread);
    case PoolThread::State::kNotStarted:
    case PoolThread::State::kEnded:
      return;
  }
}

// With its task.
void LeadModel::go_on(PoolThread& thread) {
  const bool is_to_wait = thread.task == Task::kWaits || thread.task == Task::kWaitsForEver;
  if (is_to_wait && !thread.task_waits) {
    thread.task_waits = true;
    if (!rules_.begin_task_wait()) return;
    world_.has_no_room ? rules_.not_added() : start_thread();
    return;
  }
  if (std::exchange(thread.task_waits, false)) rules_.end_task_wait();
  thread.task = Task::kNone;
  thread.ran_tasks = rules_.lead_again();
  thread.state = thread.ran_tasks ? PoolThread::State::kLeads : PoolThread::State::kToPark;
}

void LeadModel::on_parked(PoolThread& thread, Parked next) {
  thread.parked = next;
  thread.state = next == Parked::kLeads  ? PoolThread::State::kLeads
                 : next == Parked::kEnds ? PoolThread::State::kEnded
                                         : PoolThread::State::kParked;
  if (next == Parked::kWatches && thread.until == TimePoint::max()) {
    thread.until = now_ + kWatchInterval;
  }
  if (next == Parked::kLeads) thread.ran_tasks = false;
}

void LeadModel::take_event(PoolThread& thread) {
  thread.event = pop();
  if (thread.event.kind == Event::Kind::kEnd) {
    thread.state = PoolThread::State::kEnded;
    rules_.end();
    for (PoolThread& each : pool_) each.signalled = each.state == PoolThread::State::kParked;
    signals_ = 0;
    return;
  }
  if (std::exchange(thread.ran_tasks, false)) (void)rules_.on_event_after_tasks(has_event());
  thread.helps = rules_.may_help();
  thread.state = PoolThread::State::kHandles;
  handle(thread.event, nullptr);
}

void LeadModel::finish_event(PoolThread& thread) {
  const bool has_task = thread.event.kind == Event::Kind::kTask && thread.helps;
  thread.task = has_task ? thread.event.task : Task::kNone;
  thread.event = Event();
  if (has_task) {
    const bool is_long = thread.task == Task::kLong || thread.task == Task::kLongEndless;
    wake(rules_.lay_down_for_tasks(
        is_long ? std::chrono::milliseconds(1) : std::chrono::milliseconds(0), !is_long));
    thread.state = PoolThread::State::kRuns;
  } else {
    thread.state =
        rules_.lay_down_for_waiter(now_) ? PoolThread::State::kToPark : PoolThread::State::kLeads;
  }
}

// A task that the thread does not run itself is run by one of an executor, which is not in the
// model.
void LeadModel::handle(const Event& event, const Waiter* by) {
  if (event.kind != Event::Kind::kAnswer) return;
  Waiter& waiter = waiters_.at(static_cast<std::size_t>(event.waiter));
  waiter.answered = true;
  if (by != &waiter && waiter.state == Waiter::State::kAsleep) rules_.on_woke_waiter();
}

// ---- threads that wait

bool LeadModel::may_step_waiter(std::size_t index) const {
  const Waiter& waiter = waiters_.at(index);
  switch (waiter.state) {
    case Waiter::State::kIdle:
      return waiter.waits_left > 0;
    case Waiter::State::kAsleep:
      return waiter.answered;
    case Waiter::State::kLeads:
      return has_event();
    case Waiter::State::kDecides:
    case Waiter::State::kHandles:
      return true;
  }
  return false;
}

void LeadModel::step_waiter(std::size_t index) {
  Waiter& waiter = waiters_.at(index);
  switch (waiter.state) {
    case Waiter::State::kIdle: {
      const int left = waiter.waits_left - 1;
      waiter = Waiter();
      waiter.waits_left = left;
      waiter.begun = now_;
      waiter.number = rules_.begin_wait(now_);
      waiter.asked = true;
      waiter.state = Waiter::State::kDecides;
      return;
    }
    case Waiter::State::kDecides:
    case Waiter::State::kAsleep:
      return decide(waiter);
    case Waiter::State::kLeads:
      waiter.event = pop();
      waiter.has_polled = true;
      waiter.state = Waiter::State::kHandles;
      return;
    case Waiter::State::kHandles:
      handle(std::exchange(waiter.event, Event()), &waiter);
      waiter.state = Waiter::State::kDecides;
      return;
  }
}

void LeadModel::decide(Waiter& waiter) {
  if (waiter.answered) {
    wake(rules_.end_wait(waiter.number, waiter.leads, now_));
    const int left = waiter.waits_left;
    waiter = Waiter();
    waiter.waits_left = left;
    return;
  }
  if (!waiter.weary && !waiter.leads) {
    waiter.leads = rules_.take_for_wait();
  } else if (!waiter.weary && waiter.has_polled) {
    auto woken = Wake::kNobody;
    waiter.leads = rules_.may_lead_on(waiter.begun, now_, woken);
    waiter.weary = !waiter.leads;
    wake(woken);
  }
  waiter.state = waiter.leads ? Waiter::State::kLeads : Waiter::State::kAsleep;
}

void LeadModel::answer_by_event(std::size_t index) {
  waiters_.at(index).asked = false;
  events_.push_back({Event::Kind::kAnswer, static_cast<int>(index), Task::kNone});
}

void LeadModel::answer_elsewhere(std::size_t index) {
  Waiter& waiter = waiters_.at(index);
  waiter.asked = false;
  waiter.answered = true;
  if (rules_.leader() == Leader::kWaiter) events_.push_back(Event());
}

void LeadModel::close() {
  closed_ = true;
  rules_.close();
  if (rules_.leader() == Leader::kWaiter) events_.push_back(Event());
}

// ---- what may come next

void LeadModel::each_next(const Visit& visit) const {
  for (std::size_t i = 0; i < pool_.size(); ++i) {
    if (may_step_pool(i)) {
      LeadModel next = *this;
      next.step_pool(i);
      visit(next, absl::StrCat("pool ", i));
    }
    if (signals_ > 0 && pool_.at(i).state == PoolThread::State::kParked && !pool_.at(i).signalled) {
      LeadModel next = *this;
      next.pool_.at(i).signalled = true;
      --next.signals_;
      visit(next, absl::StrCat("wakes ", i));
    }
  }
  for (std::size_t i = 0; i < waiters_.size(); ++i) {
    if (!may_step_waiter(i)) continue;
    LeadModel next = *this;
    next.step_waiter(i);
    visit(next, absl::StrCat("waiter ", i));
  }
  each_input(visit);
}

void LeadModel::each_input(const Visit& visit) const {
  for (std::size_t i = 0; i < waiters_.size(); ++i) {
    if (!waiters_.at(i).asked) continue;
    if (!ended_) {
      LeadModel by_event = *this;
      by_event.answer_by_event(i);
      visit(by_event, absl::StrCat("answer ", i));
    }
    LeadModel elsewhere = *this;
    elsewhere.answer_elsewhere(i);
    visit(elsewhere, absl::StrCat("answer elsewhere ", i));
  }
  for (const Task task : {Task::kShort, Task::kLong, Task::kEndless, Task::kLongEndless,
                          Task::kWaits, Task::kWaitsForEver}) {
    const bool is_long = task == Task::kLong || task == Task::kLongEndless;
    const bool is_endless = task == Task::kEndless || task == Task::kLongEndless;
    const bool waits = task == Task::kWaits || task == Task::kWaitsForEver;
    if (world_.tasks == 0 || closed_ || (is_long && !world_.long_tasks)) continue;
    if (is_endless && (!world_.endless_tasks || world_.waiting_tasks)) continue;
    if (waits && !world_.waiting_tasks) continue;
    LeadModel next = *this;
    --next.world_.tasks;
    next.events_.push_back({Event::Kind::kTask, 0, task});
    visit(next, absl::StrCat("task ", static_cast<int>(task)));
  }
  if (world_.ticks > 0) {
    LeadModel next = *this;
    --next.world_.ticks;
    next.now_ += kTick;
    visit(next, "tick");
  }
  if (world_.closes && !closed_) {
    LeadModel next = *this;
    next.close();
    visit(next, "close");
  }
  // close() has returned.
  if (closed_ && !ended_ && rules_.leader() != Leader::kWaiter) {
    LeadModel next = *this;
    next.ended_ = true;
    next.events_.push_back({Event::Kind::kEnd, 0, Task::kNone});
    visit(next, "end");
  }
}

// ---- what must hold

std::string LeadModel::broken() const {
  int pool = 0;
  int waiters = 0;
  for (const PoolThread& each : pool_) {
    pool += each.state == PoolThread::State::kLeads || each.state == PoolThread::State::kHandles;
  }
  for (const Waiter& each : waiters_) {
    waiters += each.leads;
    if (each.leads && each.weary) return "who is weary leads";
  }
  if (pool + waiters > 1) return absl::StrCat(pool + waiters, " threads poll");
  const Leader leader = pool > 0 ? Leader::kPool : waiters > 0 ? Leader::kWaiter : Leader::kNobody;
  if (!rules_.is_ended() && rules_.leader() != leader) return "the rules know another leader";
  return "";
}

std::string LeadModel::settle() const {
  LeadModel model = *this;
  int ticks = 0;
  for (int steps = 0; steps < kMaxSteps; ++steps) {
    if (!model.step_any()) {
      if (ticks++ == kSettlingTicks) return model.unsettled();
      model.now_ += kTick;
    }
    if (std::string wrong = model.broken(); !wrong.empty()) return wrong;
  }
  return "the threads do not come to rest";
}

// One step of a thread, or else an answer. False: there is none to take.
bool LeadModel::step_any() {
  for (std::size_t i = 0; i < pool_.size(); ++i) {
    PoolThread& thread = pool_.at(i);
    if (may_step_pool(i)) {
      step_pool(i);
      return true;
    }
    if (signals_ > 0 && thread.state == PoolThread::State::kParked) {
      --signals_;
      thread.signalled = true;
      return true;
    }
  }
  for (std::size_t i = 0; i < waiters_.size(); ++i) {
    if (!may_step_waiter(i)) continue;
    step_waiter(i);
    return true;
  }
  for (std::size_t i = 0; i < waiters_.size(); ++i) {
    if (!waiters_.at(i).asked) continue;
    ended_ ? answer_elsewhere(i) : answer_by_event(i);
    return true;
  }
  return false;
}

std::string LeadModel::unsettled() const {
  if (has_event() && !ended_) return "an event is not handled";
  for (const Waiter& each : waiters_) {
    if (each.state != Waiter::State::kIdle) return "an answered wait does not end";
  }
  if (ended_) {
    const bool all = std::all_of(pool_.begin(), pool_.end(), [](const PoolThread& thread) {
      return thread.state == PoolThread::State::kEnded ||
             thread.state == PoolThread::State::kRuns ||
             thread.state == PoolThread::State::kNotStarted;
    });
    return all ? "" : "a thread of the pool does not end";
  }
  if (rules_.leader() != Leader::kPool) return "nobody looks for events";
  const auto parked = std::count_if(pool_.begin(), pool_.end(), [](const PoolThread& thread) {
    return thread.state == PoolThread::State::kParked;
  });
  // In the place of one whose task waits there is another one.
  if (world_.waiting_tasks && !world_.has_no_room && !closed_ && parked == 0) {
    return "nobody stands by";
  }
  const bool watches = std::any_of(pool_.begin(), pool_.end(), [](const PoolThread& thread) {
    return thread.state == PoolThread::State::kParked && thread.parked == Parked::kWatches;
  });
  return watches ? "a thread goes on watching although nothing happens" : "";
}

std::string LeadModel::key() const {
  std::string key;
  const auto age = [this](TimePoint time) {
    return std::clamp<std::int64_t>((now_ - time) / kTick, -4, 4);
  };
  for (const PoolThread& each : pool_) {
    absl::StrAppend(&key, static_cast<int>(each.state), static_cast<int>(each.parked),
                    each.signalled, age(each.until), ",", static_cast<int>(each.event.kind),
                    each.event.waiter, static_cast<int>(each.event.task), each.helps,
                    each.ran_tasks, static_cast<int>(each.task), each.task_waits, ";");
  }
  for (const Waiter& each : waiters_) {
    absl::StrAppend(&key, static_cast<int>(each.state), each.waits_left, each.asked, each.answered,
                    each.leads, each.has_polled, each.weary, static_cast<int>(each.event.kind),
                    each.event.waiter, static_cast<int>(each.event.task),
                    each.number < 0 ? 0 : age(each.begun), ";");
  }
  for (const Event& each : events_) {
    absl::StrAppend(&key, static_cast<int>(each.kind), each.waiter, static_cast<int>(each.task));
  }
  absl::StrAppend(&key, "|", signals_, closed_, ended_, world_.tasks, world_.ticks, "|");
  rules_.append_key(now_, key);
  return key;
}

std::string explore(const LeadWorld& world, std::size_t* states) {
  return explore_from(LeadModel(world), states);
}

}  // namespace sinew::internal::sim
