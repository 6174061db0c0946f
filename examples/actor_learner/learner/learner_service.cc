#include "learner/learner_service.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "sinew/examples/common/archives.h"

namespace actor_learner {

Receipt LearnerService::push(const Played& played) {
  // Before the lock: it is not this process's fault, and takes a moment.
  check(played.transitions);
  const bool finite = std::all_of(played.returns.begin(), played.returns.end(),
                                  [](double value) { return std::isfinite(value); });
  if (!finite || static_cast<std::int64_t>(played.returns.size()) > played.transitions.steps()) {
    throw std::invalid_argument("returns must be finite, and not more than steps");
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  replay_.add(played.transitions);
  transitions_ += played.transitions.steps();
  returns_.insert(returns_.end(), played.returns.begin(), played.returns.end());
  more_.notify_all();
  return {finished_};
}

bool LearnerService::await_transitions(std::int64_t count, std::chrono::nanoseconds timeout) const {
  std::unique_lock<std::mutex> lock(mutex_);
  return more_.wait_for(lock, timeout, [&] { return transitions_ >= count; });
}

std::int64_t LearnerService::transitions() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return transitions_;
}

Transitions LearnerService::sample(std::int64_t count, at::Generator& random) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return replay_.sample(count, random);
}

std::vector<double> LearnerService::take_returns() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(returns_, {});
}

void LearnerService::finish() {
  const std::lock_guard<std::mutex> lock(mutex_);
  finished_ = true;
}

void LearnerService::save(torch::serialize::OutputArchive& archive) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  archive.write("transitions", c10::IValue(transitions_));
  examples::save_part(archive, "replay", replay_);
}

void LearnerService::load(torch::serialize::InputArchive& archive) {
  const std::lock_guard<std::mutex> lock(mutex_);
  transitions_ = examples::read<std::int64_t>(archive, "transitions");
  examples::load_part(archive, "replay", replay_);
}

}  // namespace actor_learner
