#include "sinew/streams/internal/stream_receiver.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_format.h"
#include "sinew/streams/internal/stream_bugs.h"

namespace sinew::internal {
namespace {

// No stream gets there, and sums of such numbers do not overflow.
constexpr std::uint64_t kMostNumber = std::uint64_t{1} << 62;

}  // namespace

StreamReceiver::Outputs StreamReceiver::begin() {
  Outputs outputs;
  settle(outputs);
  return outputs;
}

StreamReceiver::Outputs StreamReceiver::want() {
  Outputs outputs;
  ++waiting_;
  hand_out(outputs);
  settle(outputs);
  return outputs;
}

StreamReceiver::Outputs StreamReceiver::stop(absl::Status why) {
  Outputs outputs;
  if (!is_over()) end(Cause::kReader, std::move(why), outputs);
  return outputs;
}

StreamReceiver::Outputs StreamReceiver::on_answer(std::uint64_t first, std::uint64_t items,
                                                  Size size, std::optional<absl::Status> end) {
  Outputs outputs;
  --pulls_;
  size_ = size;
  if (is_over()) return outputs;
  if (absl::Status wrong = check(first, items, end.has_value()); !wrong.ok()) {
    this->end(Cause::kBroken, std::move(wrong), outputs);
    return outputs;
  }
  if (items > 0) answers_.emplace(first, first + items);
  if (end.has_value()) {
    end_number_ = first + items;
    end_status_ = *std::move(end);
  }
  hand_out(outputs);
  settle(outputs);
  return outputs;
}

StreamReceiver::Outputs StreamReceiver::on_pull_failed(absl::Status why) {
  Outputs outputs;
  --pulls_;
  if (is_over()) return outputs;
  // That there is no such stream is known of one that has ended, too: then another pull has more to
  // say.
  if (failure_.ok() || absl::IsNotFound(failure_)) failure_ = std::move(why);
  if (SINEW_STREAM_BUG(kFailureIsFinal)) {
    end(Cause::kPull, failure_, outputs);
    return outputs;
  }
  settle(outputs);
  return outputs;
}

bool StreamReceiver::has_next() const {
  if (answers_.empty()) return false;
  return answers_.begin()->first <= next_ || SINEW_STREAM_BUG(kTakesAsItComes);
}

absl::Status StreamReceiver::check(std::uint64_t first, std::uint64_t items, bool ends) const {
  if (items > limits_.items || (items == 0 && !ends) || first > kMostNumber) {
    return absl::InternalError(
        absl::StrFormat("a pull of a stream was answered with %d items from number %d on, and %d "
                        "were asked for",
                        items, first, limits_.items));
  }
  const std::uint64_t last = first + items;
  const auto behind = answers_.lower_bound(first);
  const bool meets_next = behind != answers_.end() && behind->first < last;
  const bool meets_previous = behind != answers_.begin() && std::prev(behind)->second > first;
  const bool is_again = items > 0 && (first < next_ || meets_next || meets_previous);
  if (is_again && !SINEW_STREAM_BUG(kTakesTwice)) {
    return absl::InternalError(
        absl::StrFormat("items of a stream came twice: %d from number %d on", items, first));
  }
  const std::uint64_t most = answers_.empty() ? next_ : std::prev(answers_.end())->second;
  const bool is_behind_end = end_number_.has_value() && last > *end_number_;
  const bool ends_early = ends && (last < most || (end_number_.value_or(last) != last));
  if (is_behind_end || ends_early) {
    return absl::InternalError(
        absl::StrFormat("a stream has items behind its end: %d from number %d on", items, first));
  }
  return absl::OkStatus();
}

void StreamReceiver::hand_out(Outputs& outputs) {
  while (waiting_ > 0 && has_next()) {
    const auto answer = answers_.begin();
    if (answer->first > next_) next_ = answer->first;  // never, but for a planted bug
    ++next_;
    --waiting_;
    ++outputs.served;
    if (next_ >= answer->second) answers_.erase(answer);
  }
}

// A pull that has failed brings nothing, but another one that is under way may bring what is
// missing, and the end. So it fails the stream once none is left.
void StreamReceiver::settle(Outputs& outputs) {
  if (is_over()) return;
  const bool wants_more = !end_number_.has_value() && failure_.ok();
  const bool has_read = next_ > 0 && SINEW_STREAM_BUG(kStopsPulling);
  const std::size_t most = size_ == Size::kLarge ? limits_.large_answers : limits_.answers;
  while (wants_more && !has_read && pulls_ + answers_.size() < most) {
    ++pulls_;
    ++outputs.pulls;
    if (SINEW_STREAM_BUG(kPullsTooMuch)) {
      ++pulls_;
      ++outputs.pulls;
    }
  }
  if (has_next()) return;
  if (end_number_.has_value() && next_ == *end_number_)
    return end(Cause::kWriter, end_status_, outputs);
  if (pulls_ > 0 || has_read || SINEW_STREAM_BUG(kWaitsForGap)) return;
  if (!failure_.ok()) return end(Cause::kPull, failure_, outputs);
  end(Cause::kBroken,
      absl::DataLossError(
          absl::StrFormat("items of a stream are missing, from number %d on", next_)),
      outputs);
}

void StreamReceiver::end(Cause cause, absl::Status how, Outputs& outputs) {
  cause_ = cause;
  over_ = std::move(how);
  answers_.clear();
  outputs.pulls = 0;
  outputs.ends_readers = waiting_ > 0 && !SINEW_STREAM_BUG(kEndForgetsReaders);
  if (outputs.ends_readers) waiting_ = 0;
  outputs.stops_writer = cause != Cause::kWriter && !SINEW_STREAM_BUG(kLeavesWriter);
}

}  // namespace sinew::internal
