#include "sinew/tests/threads/support/run_model.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/tests/threads/support/explore.h"

namespace sinew::internal::sim {
namespace {

using Runner = RunRules::Runner;
using Helper = RunRules::Helper;

// Of a settling: longer than a task may lie.
constexpr int kSettlingTicks = 4;
constexpr int kMaxSteps = 400;

}  // namespace

RunModel::RunModel(const RunWorld& world)
    : world_(world), rules_(world.num_threads, std::chrono::microseconds(30)) {
  for (std::size_t i = 0; i < world.parked; ++i) {
    rules_.park();
    threads_.at(i).state = Thread::State::kParked;
  }
}

RunModel::Thread* RunModel::find(Thread::State state) {
  const auto found = std::find_if(threads_.begin(), threads_.end(),
                                  [state](const Thread& each) { return each.state == state; });
  return found == threads_.end() ? nullptr : &*found;
}

std::size_t RunModel::count(Thread::State state) const {
  return static_cast<std::size_t>(
      std::count_if(threads_.begin(), threads_.end(),
                    [state](const Thread& each) { return each.state == state; }));
}

// ---- what wakes whom

void RunModel::post(Task task, Helper helper) {
  queue_.push_back(task);
  // Offered once, and then it is on its way.
  const Helper offered = helper_.state == HelperThread::State::kNone ? helper : Helper::kNone;
  const RunRules::Wake wake = rules_.post(1, offered);
  if (wake.runner == Runner::kHelper) {
    helper_.is_expected = offered == Helper::kBusy;
    helper_.is_given_up = false;
    helper_.state =
        helper_.is_expected ? HelperThread::State::kBusy : HelperThread::State::kOnItsWay;
  }
  carry_out(wake);
}

void RunModel::carry_out(RunRules::Wake wake) {
  // A thread that watches, or is to, is the one that watches.
  if (wake.one_to_watch) find(Thread::State::kParked)->state = Thread::State::kToldToWatch;
  switch (wake.runner) {
    case Runner::kParked:
      find(Thread::State::kParked)->state = Thread::State::kOnItsWay;
      return;
    case Runner::kWatcher: {
      Thread* watcher = find(Thread::State::kWatches);
      if (watcher == nullptr) watcher = find(Thread::State::kToldToWatch);
      watcher->state = Thread::State::kToldToRun;
      return;
    }
    case Runner::kNewThread:
      find(Thread::State::kNone)->state = Thread::State::kOnItsWay;
      return;
    case Runner::kHelper:
    case Runner::kNobody:
      return;
  }
}

void RunModel::end() {
  ended_ = true;
  for (Runner next = rules_.wake_to_end(); next != Runner::kNobody; next = rules_.wake_to_end()) {
    carry_out({next, false});
  }
  look_at_helper();
}

void RunModel::look_at_helper() {
  if (helper_.is_expected && !rules_.counts_on_busy_helper()) {
    helper_.is_expected = false;
    helper_.is_given_up = true;
  }
}

void RunModel::tick() {
  for (Thread& each : threads_) {
    if (each.state == Thread::State::kWatches) each.is_over = true;
  }
}

// ---- threads

bool RunModel::may_return(const Thread& thread) const {
  // What it waits for is done by the tasks that are neither endless nor wait.
  const auto is_short = [](const Thread& each) {
    return each.state == Thread::State::kRuns && each.task == Task::kShort;
  };
  const bool helper_runs =
      helper_.state == HelperThread::State::kRuns && helper_.task == Task::kShort;
  return thread.state == Thread::State::kWaits && !helper_runs &&
         std::none_of(threads_.begin(), threads_.end(), is_short) &&
         std::count(queue_.begin(), queue_.end(), Task::kShort) == 0;
}

bool RunModel::may_step(const Thread& thread) const {
  switch (thread.state) {
    case Thread::State::kOnItsWay:
    case Thread::State::kTakes:
    case Thread::State::kReturned:
    case Thread::State::kParks:
    case Thread::State::kToldToWatch:
    case Thread::State::kToldToRun:
      return true;
    case Thread::State::kRuns:
      return thread.task != Task::kEndless;
    case Thread::State::kWaits:
      return may_return(thread);
    case Thread::State::kWatches:
      return thread.is_over;
    case Thread::State::kNone:
    case Thread::State::kParked:
    case Thread::State::kEnded:
      return false;
  }
  return false;
}

void RunModel::step(Thread& thread) {
  using State = Thread::State;
  switch (thread.state) {
    case State::kOnItsWay:
    case State::kToldToRun:
      rules_.arrive();
      thread.state = State::kTakes;
      return;
    case State::kTakes:
      return take(thread);
    case State::kRuns:
    case State::kReturned:
      return finish(thread);
    case State::kWaits:
      rules_.end_wait();
      thread.state = State::kReturned;
      return;
    case State::kParks:
      if (ended_) {
        rules_.join();
        thread.state = State::kTakes;
      } else {
        rules_.park();
        thread.state = State::kParked;
      }
      return;
    case State::kToldToWatch:
      rules_.begin_interval();
      thread.is_over = false;
      thread.state = State::kWatches;
      return;
    case State::kWatches:
      return interval_over(thread);
    case State::kNone:
    case State::kParked:
    case State::kEnded:
      return;
  }
}

void RunModel::take(Thread& thread) {
  if (!rules_.may_take()) {
    rules_.stop();
    if (ended_) {
      thread.state = Thread::State::kEnded;
    } else {
      rules_.park();
      thread.state = Thread::State::kParked;
    }
    return;
  }
  thread.task = queue_.front();
  queue_.erase(queue_.begin());
  thread.state = Thread::State::kRuns;
  carry_out(rules_.take().wake);
}

void RunModel::finish(Thread& thread) {
  if (thread.task == Task::kWaiting && thread.state == Thread::State::kRuns) {
    thread.state = Thread::State::kWaits;
    carry_out(rules_.begin_wait());
    return;
  }
  rules_.ran(std::chrono::nanoseconds(0));
  thread.state = Thread::State::kTakes;
}

void RunModel::interval_over(Thread& thread) {
  const RunRules::Watch next = rules_.end_interval();
  look_at_helper();
  switch (next) {
    case RunRules::Watch::kGoesOn:
      rules_.begin_interval();
      thread.is_over = false;
      return;
    case RunRules::Watch::kParks:
      thread.state = Thread::State::kParks;
      return;
    case RunRules::Watch::kRuns:
      thread.state = Thread::State::kTakes;
      return;
  }
}

bool RunModel::may_step_helper() const {
  switch (helper_.state) {
    case HelperThread::State::kOnItsWay:
    case HelperThread::State::kTakes:
      return true;
    case HelperThread::State::kRuns:
      return helper_.task == Task::kShort;
    case HelperThread::State::kNone:
    case HelperThread::State::kBusy:
      return false;
  }
  return false;
}

void RunModel::step_helper() {
  switch (helper_.state) {
    case HelperThread::State::kBusy:
      helper_.state = HelperThread::State::kOnItsWay;
      return;
    case HelperThread::State::kOnItsWay:
      if (helper_.is_given_up) {
        rules_.join();
      } else {
        rules_.helper_arrives(std::exchange(helper_.is_expected, false));
      }
      helper_.state = HelperThread::State::kTakes;
      return;
    case HelperThread::State::kTakes:
      if (!rules_.may_take()) {
        rules_.stop();
        helper_ = HelperThread{};
        return;
      }
      helper_.task = queue_.front();
      queue_.erase(queue_.begin());
      helper_.state = HelperThread::State::kRuns;
      carry_out(rules_.take().wake);
      // Its waits are like those of other threads, which have them.
      if (helper_.task == Task::kWaiting) helper_.task = Task::kShort;
      return;
    case HelperThread::State::kRuns:
      rules_.ran(std::chrono::nanoseconds(0));
      helper_.state = HelperThread::State::kTakes;
      return;
    case HelperThread::State::kNone:
      return;
  }
}

// ---- what may come next

void RunModel::each_next(const Visit& visit) const {
  const auto next_is = [&](const std::string& step, const auto& change) {
    RunModel next = *this;
    change(next);
    visit(next, step);
  };
  for (std::size_t i = 0; i < threads_.size(); ++i) {
    if (!may_step(threads_.at(i))) continue;
    next_is(absl::StrCat("thread ", i), [i](RunModel& next) { next.step(next.threads_.at(i)); });
  }
  if (may_step_helper() || helper_.state == HelperThread::State::kBusy) {
    next_is("helper", [](RunModel& next) { next.step_helper(); });
  }
  for (const Helper helper : {Helper::kNone, Helper::kFree, Helper::kBusy}) {
    if (ended_ || (helper != Helper::kNone && !world_.helper)) continue;
    const auto posts = [&](Task task, int RunWorld::*left) {
      if (world_.*left == 0) return;
      next_is(absl::StrCat("post ", static_cast<int>(task), " helper ", static_cast<int>(helper)),
              [&](RunModel& next) {
                --(next.world_.*left);
                next.post(task, helper);
              });
    };
    posts(Task::kShort, &RunWorld::short_tasks);
    posts(Task::kEndless, &RunWorld::endless_tasks);
    posts(Task::kWaiting, &RunWorld::waiting_tasks);
  }
  if (world_.ticks > 0) {
    next_is("tick", [](RunModel& next) {
      --next.world_.ticks;
      next.tick();
    });
  }
  if (world_.ends && !ended_) next_is("end", [](RunModel& next) { next.end(); });
}

// ---- what must hold

std::string RunModel::broken() const {
  std::size_t running = count(Thread::State::kRuns) + count(Thread::State::kReturned);
  if (helper_.state == HelperThread::State::kRuns) ++running;
  // Threads that come back from a wait are not held up.
  if (running > world_.num_threads + count(Thread::State::kReturned)) {
    return absl::StrCat(running, " tasks run at once");
  }
  const std::size_t watching = count(Thread::State::kWatches) + count(Thread::State::kToldToWatch);
  if (watching > 1) return absl::StrCat(watching, " threads watch");
  if (rules_.is_watched() != (watching == 1)) return "the rules know another one that watches";
  if (rules_.waking() > rules_.running()) return "more are on their way than run";
  return "";
}

std::string RunModel::settle() const {
  RunModel model = *this;
  int ticks = 0;
  for (int steps = 0; steps < kMaxSteps; ++steps) {
    if (!model.step_any()) {
      if (ticks++ == kSettlingTicks) return model.unsettled();
      model.tick();
    }
    if (std::string wrong = model.broken(); !wrong.empty()) return wrong;
  }
  return "the threads do not come to rest";
}

bool RunModel::step_any() {
  for (Thread& each : threads_) {
    if (!may_step(each)) continue;
    step(each);
    return true;
  }
  if (!may_step_helper()) return false;
  step_helper();
  return true;
}

std::string RunModel::unsettled() const {
  const auto is_endless = [](const Thread& each) {
    return each.state == Thread::State::kRuns && each.task == Task::kEndless;
  };
  auto endless = std::count_if(threads_.begin(), threads_.end(), is_endless);
  if (helper_.state == HelperThread::State::kRuns) ++endless;
  // Else all that may run are busy for ever.
  if (static_cast<std::size_t>(endless) < world_.num_threads) {
    if (!queue_.empty()) return "a task lies";
    if (count(Thread::State::kWaits) > 0) return "a wait does not end";
  }
  if (queue_.empty() && count(Thread::State::kWatches) > 0) {
    return "a thread goes on watching although nothing is left";
  }
  if (ended_ && count(Thread::State::kParked) > 0) return "a thread does not end";
  return "";
}

std::string RunModel::key() const {
  std::string key;
  for (const Thread& each : threads_) {
    absl::StrAppend(&key, static_cast<int>(each.state), "/", static_cast<int>(each.task),
                    each.is_over, ";");
  }
  absl::StrAppend(&key, static_cast<int>(helper_.state), static_cast<int>(helper_.task),
                  helper_.is_expected, helper_.is_given_up, "|");
  for (const Task task : queue_) absl::StrAppend(&key, static_cast<int>(task));
  absl::StrAppend(&key, "|", world_.short_tasks, world_.endless_tasks, world_.waiting_tasks,
                  world_.ticks, ended_, "|");
  rules_.append_key(key);
  return key;
}

std::string explore(const RunWorld& world, std::size_t* states) {
  return explore_from(RunModel(world), states);
}

}  // namespace sinew::internal::sim
