#include "sinew/rpc/base/threads/run_rules.h"

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/threads/run_bugs.h"

namespace sinew::internal {
namespace {

// Work of so many wake-ups is worth a thread, even if each task is short: a part is done before the
// thread is there, and both threads pay for sharing the rest.
constexpr int kWorthAThread = 8;

}  // namespace

bool RunRules::is_brisk() const {
  return average_task_ < wake_up_ && workload() < kWorthAThread * wake_up_ * running_;
}

RunRules::Wake RunRules::to_run(Runner who, Wake wake) {
  ++running_;
  ++waking_;
  wake.runner = who;
  return wake;
}

// Sees to it that one more thread looks at the queue, unless enough do. One that is on its way
// suffices: it wakes the next when it finds more than it can feed on.
RunRules::Wake RunRules::add_runner(Helper helper) {
  if (waking_ > 0 || running_ >= num_threads_) return {};
  Wake wake;
  if (helper == Helper::kFree) return to_run(Runner::kHelper, Wake());
  // What it runs before may take long, or even wait for what is left to it here.
  if (helper == Helper::kBusy && (SINEW_RUN_BUG(kNobodyWatchesHelper) || have_watched(wake))) {
    helper_is_busy_ = true;
    return to_run(Runner::kHelper, wake);
  }
  if (running_ > 0 && is_brisk() && (SINEW_RUN_BUG(kNobodyWatches) || have_watched(wake))) {
    return wake;
  }
  if (parked_ > 0) {
    --parked_;
    return to_run(Runner::kParked, Wake());
  }
  if (is_watched_) {
    is_watched_ = false;
    return to_run(Runner::kWatcher, Wake());
  }
  return to_run(Runner::kNewThread, Wake());
}

// Sees to it that a parked thread watches; false if there is none.
bool RunRules::have_watched(Wake& wake) {
  left_to_others_ = true;
  if (is_watched_) return true;
  if (parked_ == 0) return false;
  --parked_;
  is_watched_ = true;
  wake.one_to_watch = true;
  return true;
}

// ---- tasks

RunRules::Wake RunRules::post(std::size_t tasks, Helper helper) {
  queued_ += tasks;
  return queued_ > 0 ? add_runner(helper) : Wake();
}

RunRules::Taken RunRules::take() {
  --queued_;
  ++tasks_started_;
  Taken taken;
  if (queued_ == 0) return taken;
  taken.wake = add_runner(Helper::kNone);
  taken.more_follow = have_watched(taken.wake);
  return taken;
}

// ---- threads that run

bool RunRules::not_started() {
  --running_;
  --waking_;
  return running_ > 0;
}

void RunRules::helper_arrives(bool was_busy) {
  --waking_;
  if (was_busy) helper_is_busy_ = false;
}

RunRules::Wake RunRules::begin_wait() {
  ++blocked_;
  --running_;
  return queued_ > 0 && !SINEW_RUN_BUG(kNobodyTakesThePlace) ? add_runner(Helper::kNone) : Wake();
}

void RunRules::end_wait() {
  --blocked_;
  ++running_;
}

// ---- threads that do not

void RunRules::begin_interval() {
  started_before_ = tasks_started_;
  left_to_others_ = false;
}

// Unwatched, a helper that does not come would keep others from being woken.
void RunRules::stop_watching() {
  is_watched_ = false;
  if (!helper_is_busy_ || SINEW_RUN_BUG(kHelperIsCountedOn)) return;
  helper_is_busy_ = false;
  --running_;
  --waking_;
}

RunRules::Watch RunRules::end_interval() {
  if (queued_ > 0 && tasks_started_ == started_before_) {
    // The helper's place is another one's, too.
    if (running_ >= num_threads_ && !helper_is_busy_) return Watch::kGoesOn;
    stop_watching();
    ++running_;
    return Watch::kRuns;
  }
  if (queued_ > 0 || left_to_others_) return Watch::kGoesOn;
  stop_watching();
  return Watch::kParks;
}

RunRules::Runner RunRules::wake_to_end() {
  if (parked_ > 0) {
    --parked_;
    return to_run(Runner::kParked, Wake()).runner;
  }
  if (!is_watched_) return Runner::kNobody;
  stop_watching();
  return to_run(Runner::kWatcher, Wake()).runner;
}

void RunRules::append_key(std::string& key) const {
  absl::StrAppend(&key, queued_, ",", parked_, ",", running_, ",", waking_, ",", blocked_, ",",
                  helper_is_busy_, is_watched_, left_to_others_, tasks_started_ == started_before_,
                  is_brisk());
}

}  // namespace sinew::internal
