#include "sinew/rpc/link/connection_reversal.h"

#include <algorithm>

namespace sinew::internal {

void ConnectionReversal::on_dial(TimePoint now) { due_ = std::min(due_, now + silence_); }

void ConnectionReversal::on_failed(TimePoint now) { due_ = std::min(due_, now); }

bool ConnectionReversal::take_question(TimePoint now) {
  if (now < wake()) return false;
  if (!first_question_.has_value()) {
    first_question_ = now;
    awaits_until_ = now + kAnswerTime;
  }
  next_question_ = now + pause_;
  pause_ = std::min(2 * pause_, kLongestPause);
  due_ = next_question_;
  return true;
}

void ConnectionReversal::on_answer(bool is_asked, TimePoint now) {
  if (!first_question_.has_value()) return;
  awaits_until_ =
      is_asked ? std::min(now + kGrace, *first_question_ + kLongestGrace) : TimePoint::min();
}

ConnectionReversal::TimePoint ConnectionReversal::wake() const {
  return due_ == TimePoint::max() ? due_ : std::max(due_, next_question_);
}

void ConnectionReversal::reset() {
  due_ = TimePoint::max();
  pause_ = kFirstPause;
  first_question_.reset();
  awaits_until_ = TimePoint::min();
}

}  // namespace sinew::internal
