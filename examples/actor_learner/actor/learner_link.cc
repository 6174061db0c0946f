#include "actor/learner_link.h"

#include <chrono>
#include <string>
#include <utility>

#include "common/address_file.h"

namespace actor_learner {
namespace {

using namespace std::chrono_literals;

// The learner keeps nobody waiting: after that long something is wrong with it.
constexpr auto kCallTimeout = 20s;
// How soon stop() is noticed while the learner is away.
constexpr auto kPatience = 1s;
// Who cannot serve one call now cannot serve the next one at once.
constexpr auto kPause = 200ms;

/// Whether the learner may be there later, or may be another one then.
bool passes(sinew::ErrorCode code) {
  switch (code) {
    case sinew::ErrorCode::kUnavailable:        // it was lost
    case sinew::ErrorCode::kNotFound:           // it has not come
    case sinew::ErrorCode::kDeadlineExceeded:   // it does not answer
    case sinew::ErrorCode::kResourceExhausted:  // it has too much to do
    case sinew::ErrorCode::kAborted:            // this worker is out of the job, and rejoins
    case sinew::ErrorCode::kCancelled:          // it is just doing so
      return true;
    default:
      return false;
  }
}

}  // namespace

LearnerLink::LearnerLink(sinew::WorkerOptions options, Tell tell) : tell_(std::move(tell)) {
  options.on_rejoined = [this](const sinew::Worker& next) { rejoined(next); };
  sinew::Worker worker = sinew::init_rpc(std::move(options));
  examples::tell_address(worker);
  const std::lock_guard<std::mutex> lock(mutex_);
  // It may have been evicted, and have rejoined, since.
  if (!worker_.valid()) worker_ = std::move(worker);
  weights_ = {worker_, std::string(kLearnerWorker) + "/" + kWeightsName};
}

std::shared_ptr<const sinew::optim::Weights> LearnerLink::weights() const {
  return weights_.latest();
}

std::optional<Receipt> LearnerLink::push(const Played& played) {
  for (;;) {
    try {
      find_learner();
      return learner_.call<&Learner::push>(played);
    } catch (const sinew::RpcError& error) {
      // A reference is to one incarnation: the next one must be found.
      learner_ = {};
      if (!passes(error.code())) throw;
      if (!await_change(error)) return std::nullopt;
    }
  }
}

void LearnerLink::find_learner() {
  if (learner_.valid()) return;
  sinew::Worker worker;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    worker = worker_;
  }
  // A reference may have a time limit of its own, which its calls have then.
  learner_ = worker.find<Learner>(std::string(kLearnerWorker) + "/" + kLearnerName, kPatience)
                 .within(kCallTimeout);
  was_told_ = false;
  tell_("found the learner");
}

bool LearnerLink::await_change(const sinew::RpcError& error) {
  if (!was_told_) tell_(std::string("the learner is away: ") + error.what());
  was_told_ = true;
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, kPause, [&] { return stopped_; });
  // Out of the job there is nothing to look for until rejoined() has the next worker.
  changed_.wait_for(lock, kPatience, [&] { return stopped_ || worker_.is_running(); });
  return !stopped_;
}

void LearnerLink::rejoined(const sinew::Worker& worker) {
  tell_("was out of the job, and is back");
  examples::tell_address(worker);
  const std::lock_guard<std::mutex> lock(mutex_);
  worker_ = worker;
  if (weights_.valid()) weights_.move_to(worker);
  changed_.notify_all();
}

void LearnerLink::stop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

void LearnerLink::leave() {
  learner_ = {};
  sinew::Worker worker;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    worker = worker_;
    weights_ = {};
  }
  sinew::ShutdownOptions options;
  options.timeout = kCallTimeout;
  try {
    worker.shutdown(options);
  } catch (const sinew::RpcError& error) {
    tell_(std::string("left without a goodbye: ") + error.what());
  }
}

}  // namespace actor_learner
