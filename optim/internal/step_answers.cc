#include "sinew/optim/internal/step_answers.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_format.h"

namespace sinew::internal {
namespace {

constexpr std::size_t kFewTrainers = 64;

}  // namespace

StepAnswer refused(ErrorCode code, std::string text) {
  StepAnswer answer;
  answer.code = static_cast<std::int32_t>(code);
  answer.error = std::move(text);
  return answer;
}

StepAnswers::StepAnswers(std::function<bool(Incarnation trainer)> is_lost)
    : is_lost_(std::move(is_lost)), trainers_before_pruning_(kFewTrainers) {}

std::optional<StepAnswer> StepAnswers::find(const StepRequest& request) {
  forget_lost_trainers();
  Trainer& trainer = trainers_[request.id.trainer];
  const std::uint64_t number = request.id.number;
  if (number < trainer.live_from) {
    return refused(ErrorCode::kAborted,
                   absl::StrFormat("step %d comes too late: its trainer has given it up", number));
  }
  give_up_before(trainer, request.live_from);
  const auto done = trainer.answers.find(number);
  if (done != trainer.answers.end()) return done->second;
  if (request.mode == StepMode::kApply) return std::nullopt;
  return trainer.answers
      .emplace(number, refused(ErrorCode::kAborted,
                               absl::StrFormat("step %d had not come, and is given up", number)))
      .first->second;
}

void StepAnswers::add(const StepId& id, const StepAnswer& answer) {
  trainers_[id.trainer].answers.emplace(id.number, answer);
}

void StepAnswers::give_up_before(Trainer& trainer, std::uint64_t live_from) {
  trainer.live_from = std::max(trainer.live_from, live_from);
  trainer.answers.erase(trainer.answers.begin(), trainer.answers.lower_bound(trainer.live_from));
}

void StepAnswers::follow(const MirroredStep& step) {
  forget_lost_trainers();
  give_up_before(trainers_[step.id.trainer], step.live_from);
  add(step.id, step.answer);
}

std::vector<TrainerAnswers> StepAnswers::snapshot() const {
  std::vector<TrainerAnswers> all;
  for (const auto& [incarnation, trainer] : trainers_) {
    TrainerAnswers& one = all.emplace_back();
    one.trainer = incarnation;
    one.live_from = trainer.live_from;
    for (const auto& [number, answer] : trainer.answers) {
      one.numbers.push_back(number);
      one.answers.push_back(answer);
    }
  }
  return all;
}

void StepAnswers::restore(const std::vector<TrainerAnswers>& trainers) {
  trainers_.clear();
  for (const TrainerAnswers& one : trainers) {
    Trainer& trainer = trainers_[one.trainer];
    trainer.live_from = one.live_from;
    const std::size_t count = std::min(one.numbers.size(), one.answers.size());
    for (std::size_t i = 0; i < count; ++i) {
      trainer.answers.emplace(one.numbers[i], one.answers[i]);
    }
  }
}

std::size_t StepAnswers::size() const {
  std::size_t count = 0;
  for (const auto& [incarnation, trainer] : trainers_) count += trainer.answers.size();
  return count;
}

void StepAnswers::forget_lost_trainers() {
  if (trainers_.size() < trainers_before_pruning_) return;
  for (auto at = trainers_.begin(); at != trainers_.end();) {
    at = is_lost_(Incarnation{at->first}) ? trainers_.erase(at) : std::next(at);
  }
  // Not before the number has doubled, so that a step costs the same with any number of trainers.
  trainers_before_pruning_ = std::max(kFewTrainers, 2 * trainers_.size());
}

}  // namespace sinew::internal
