#include "sinew/autograd/internal/pass_part.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/autograd/internal/pass_bugs.h"

namespace sinew::internal {

using Actions = PassPart::Actions;

Actions PassPart::prepare(std::optional<Incarnation> requester, Answering answering,
                          Waiter waiter) {
  prepared_ = true;
  requester_ = requester;
  answering_ = answering;
  Actions actions;
  if (stage_ != Stage::kFailed) {
    waiters_.push_back(waiter);
    return actions;
  }
  // Its time was over, or its context has ended, since others know of it.
  if (id_.initiator == self_) actions.unreduce = Unreduce::kNeverBegun;
  actions.failed.push_back(waiter);
  return actions;
}

Actions PassPart::begin(Plan plan, Parcels arrivals) {
  if (stage_ != Stage::kNew) return {};
  stage_ = Stage::kGraph;
  missing_ = std::move(plan.entries);
  to_ask_ = std::move(plan.ask);
  to_ask_later_ = std::move(plan.ask_later);
  in_steps_ = to_ask_later_;
  reduces_ = plan.reduces;
  // Gradients may come to them from those that are asked before them.
  asked_.assign(to_ask_.begin(), to_ask_.end());
  arrivals_.insert(arrivals_.end(), arrivals.begin(), arrivals.end());
  return run();
}

Actions PassPart::deliver(Parcels gradients, Answering answering, Waiter waiter) {
  Actions actions;
  const bool ended = has_ended();
  if (!ended) arrivals_.insert(arrivals_.end(), gradients.begin(), gradients.end());
  if (answering == Answering::kInSteps) {
    if (ended) {
      actions.failed.push_back(waiter);
    } else {
      waiters_.push_back(waiter);
    }
    return ended ? actions : run_if_due();
  }
  if (!ended) actions = run_if_due();
  actions.answer.waiters.push_back(waiter);
  return actions;
}

// ---- The graph.

Actions PassPart::run_if_due() {
  if (stage_ == Stage::kNew || has_ended() || busy_ || arrivals_.empty()) return {};
  return run();
}

Actions PassPart::run() {
  Actions actions;
  for (const Parcel& parcel : arrivals_) {
    if (missing_.erase(parcel.message) == 1) continue;
    actions.fault = Fault::kUnexpected;
    actions.fault_message = parcel.message;
    return actions;
  }
  busy_ = true;
  actions.run = true;
  actions.arrivals = std::exchange(arrivals_, {});
  return actions;
}

// Gradients leave before the rest has run, where that takes no further message.
std::optional<Actions> PassPart::on_early(Incarnation worker, const Parcels& gradients,
                                          const std::set<Incarnation>& receivers) {
  if (worker == self_ || stage_ != Stage::kGraph) return std::nullopt;
  Actions actions;
  if (requester_ == worker) {
    // The answer at the end brings those of the last step.
    if (missing_.empty() && !SINEW_PASS_BUG(kLastStepLeavesEarly)) return std::nullopt;
    if (answering_ == Answering::kInSteps) {
      // The requester has gradients to bring yet, so another call will ask for the end. The answer
      // has to have all that the calls before it lead to: those gradients may depend on it.
      const bool complete = receivers.size() == 1 && outstanding_ == 0 && arrivals_.empty();
      if ((!complete && !SINEW_PASS_BUG(kAnswersHalfAStep)) || waiters_.empty()) {
        return std::nullopt;
      }
      answer_with(actions, gradients, /*waits=*/true);
      return actions;
    }
  }
  actions.sends = send({{worker, gradients}});
  // The others are asked together with their gradients.
  for (const Incarnation other : receivers) {
    if (other != worker && to_ask_later_.erase(other) == 1) to_ask_.insert(other);
  }
  return actions;
}

Actions PassPart::on_ran(Outgoing outgoing) {
  Actions actions;
  if (has_ended()) return actions;
  if (auto to_self = outgoing.extract(self_)) {
    arrivals_.insert(arrivals_.end(), to_self.mapped().begin(), to_self.mapped().end());
  }
  if (missing_.empty()) {
    // As late as can be: from there on nothing makes the pass fail at this worker but the
    // reduction, so that all processes that reduce keep their gradients, or none does.
    stage_ = reduces_ ? Stage::kComputed : Stage::kCommitted;
    actions.commit = !reduces_;
  }
  // With the answer, which is due now.
  const bool answers = stage_ == Stage::kCommitted || answering_ == Answering::kInSteps;
  if (requester_.has_value() && answers) {
    if (auto to_requester = outgoing.extract(*requester_)) {
      const Parcels& more = to_requester.mapped();
      reply_.insert(reply_.end(), more.begin(), more.end());
    }
  }
  actions.sends = send(std::move(outgoing));
  return actions;
}

Actions PassPart::next() {
  if (has_ended()) return {};
  if (!arrivals_.empty()) return run();
  busy_ = false;
  return end_if_due();
}

// ---- Other workers.

Answering PassPart::answering_of(Incarnation worker) const {
  return in_steps_.count(worker) == 0 ? Answering::kAtTheEnd : Answering::kInSteps;
}

std::set<Incarnation> PassPart::take_to_ask(const Outgoing& outgoing) {
  std::set<Incarnation> ask = std::exchange(to_ask_, {});
  for (const auto& [worker, gradients] : outgoing) {
    if (to_ask_later_.erase(worker) == 1) ask.insert(worker);
  }
  return ask;
}

std::vector<PassPart::Send> PassPart::send(Outgoing outgoing) {
  std::vector<Send> sends;
  for (const Incarnation worker : take_to_ask(outgoing)) {
    Send one{Send::Kind::kAsk, worker, answering_of(worker), {}};
    if (auto gradients = outgoing.extract(worker)) one.gradients = std::move(gradients.mapped());
    if (one.answering == Answering::kInSteps) {
      if (!SINEW_PASS_BUG(kForgetsWhomItAsked)) asked_.push_back(worker);
      unfinished_.insert(worker);
    }
    sends.push_back(std::move(one));
  }
  for (auto& [worker, gradients] : outgoing) {
    sends.push_back({Send::Kind::kBring, worker, answering_of(worker), std::move(gradients)});
  }
  outstanding_ += static_cast<int>(sends.size());
  return sends;
}

Actions PassPart::on_answer(Incarnation worker, Parcels gradients, bool waits) {
  if (has_ended()) return {};
  --outstanding_;
  if (!waits) unfinished_.erase(worker);
  arrivals_.insert(arrivals_.end(), gradients.begin(), gradients.end());
  return gradients.empty() ? end_if_due() : run_if_due();
}

void PassPart::answer_with(Actions& actions, Parcels gradients, bool waits) {
  actions.answer.waiters = std::exchange(waiters_, {});
  actions.answer.gradients = std::exchange(reply_, {});
  actions.answer.gradients.insert(actions.answer.gradients.end(), gradients.begin(),
                                  gradients.end());
  actions.answer.waits = waits;
}

// ---- The end.

Actions PassPart::end_if_due() {
  Actions actions;
  if (stage_ == Stage::kNew || has_ended() || busy_ || !arrivals_.empty()) return actions;
  if (outstanding_ > 0 && !SINEW_PASS_BUG(kEndsBeforeOthers)) return actions;
  if (stage_ == Stage::kGraph) {
    // Not through. In steps the requester hears of what there is, and brings more.
    if (answering_ == Answering::kInSteps) answer_with(actions, {}, /*waits=*/true);
    return actions;
  }
  if (stage_ == Stage::kReducing) return actions;
  if (!unfinished_.empty()) {
    // All gradients that there are have been brought to it.
    actions.fault = Fault::kNothingLeadsThere;
    return actions;
  }
  if (stage_ == Stage::kComputed) {
    stage_ = Stage::kReducing;
    ++outstanding_;
    actions.reduce = true;
    return actions;
  }
  stage_ = Stage::kDone;
  actions.end = End::kDone;
  answer_with(actions, {}, /*waits=*/false);
  return actions;
}

Actions PassPart::on_reduced() {
  Actions actions;
  if (has_ended()) return actions;
  --outstanding_;
  stage_ = Stage::kCommitted;
  busy_ = true;
  actions.commit = true;
  return actions;
}

Actions PassPart::fail() {
  Actions actions;
  if (has_ended()) return actions;
  if (stage_ != Stage::kNew) {
    actions.unreduce = Unreduce::kBegun;
  } else if (prepared_ || id_.initiator != self_) {
    actions.unreduce = Unreduce::kNeverBegun;
  }
  stage_ = Stage::kFailed;
  const bool untold = answering_ == Answering::kInSteps && waiters_.empty();
  actions.end = untold && !SINEW_PASS_BUG(kFailsUnheard) ? End::kFailedUntold : End::kFailed;
  // Also those that are through already: what they have added does not count.
  if (!SINEW_PASS_BUG(kAbortsNobody)) actions.abort = asked_;
  actions.failed = std::exchange(waiters_, {});
  arrivals_.clear();
  reply_.clear();
  return actions;
}

PassPart::Wait PassPart::wait() const {
  if (stage_ == Stage::kNew) return Wait::kBegin;
  if (busy_) return Wait::kGraph;
  return stage_ == Stage::kReducing ? Wait::kReduction : Wait::kOthers;
}

void PassPart::append_key(std::string& key) const {
  absl::StrAppend(&key, static_cast<int>(stage_), prepared_,
                  requester_.value_or(Incarnation{}).value, static_cast<int>(answering_), busy_,
                  reduces_, outstanding_, "m");
  for (const std::uint64_t message : missing_) absl::StrAppend(&key, message, ",");
  for (const Parcels* parcels : {&arrivals_, &reply_}) {
    key += ';';
    for (const Parcel& parcel : *parcels) absl::StrAppend(&key, parcel.message, ",");
  }
  key += ';';
  for (const Waiter waiter : waiters_) absl::StrAppend(&key, waiter, ",");
  for (const auto* workers : {&to_ask_, &to_ask_later_, &in_steps_, &unfinished_}) {
    key += ';';
    for (const Incarnation worker : *workers) absl::StrAppend(&key, worker.value, ",");
  }
  key += ';';
  for (const Incarnation worker : asked_) absl::StrAppend(&key, worker.value, ",");
}

}  // namespace sinew::internal
