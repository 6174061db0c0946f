#include "sinew/streams/internal/stream_sender.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "sinew/streams/internal/stream_bugs.h"

namespace sinew::internal {

absl::Status StreamSender::closed() const {
  if (!stopped_.ok()) return stopped_;
  if (end_.has_value()) {
    return absl::FailedPreconditionError(
        "the stream was ended by its writer: nothing is written behind the end");
  }
  return absl::OkStatus();
}

bool StreamSender::is_full() const {
  return sizes_.size() >= limits_.items || bytes_ >= limits_.bytes;
}

StreamSender::Outputs StreamSender::write(std::uint64_t bytes) {
  Outputs outputs;
  sizes_.push_back(bytes);
  bytes_ += bytes;
  if (!pulls_.empty()) answer(outputs);
  return outputs;
}

StreamSender::Outputs StreamSender::finish(absl::Status end) {
  Outputs outputs;
  end_ = std::move(end);
  answer(outputs);
  return outputs;
}

absl::StatusOr<StreamSender::Outputs> StreamSender::pull(PullId pull, std::uint64_t most_items,
                                                         std::uint64_t most_bytes) {
  if (most_items == 0 || most_bytes == 0) {
    return absl::InvalidArgumentError("a pull of a stream that asks for no items, or no bytes");
  }
  if (pulls_.size() >= kMostPulls) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "%d pulls of this stream wait already, which is the limit: this one was not taken",
        kMostPulls));
  }
  was_pulled_ = true;
  pulls_.push_back({pull, most_items, std::min(most_bytes, kMostAnswerBytes)});
  Outputs outputs;
  answer(outputs);
  return outputs;
}

StreamSender::Outputs StreamSender::stop(absl::Status why) {
  Outputs outputs;
  if (is_over()) return outputs;
  stopped_ = std::move(why);
  // It is told where the items stopped to come; what was written without being read is not lost
  // behind anybody's back, since both ends hear of it.
  end_.reset();
  sizes_.clear();
  bytes_ = 0;
  answer(outputs);
  outputs.releases_writers = !SINEW_STREAM_BUG(kStopForgetsWriters);
  return outputs;
}

void StreamSender::answer(Outputs& outputs) {
  const bool was_full = is_full();
  while (!pulls_.empty()) {
    const bool ends = end_.has_value() || !stopped_.ok();
    if (sizes_.empty() && !ends) break;
    outputs.answers.push_back(take(pulls_.front()));
    pulls_.pop_front();
    if (outputs.answers.back().is_last) {
      told_ = true;
      if (SINEW_STREAM_BUG(kEndsOnePull)) break;
    }
  }
  outputs.releases_writers = was_full && !is_full() && !SINEW_STREAM_BUG(kForgetsWriters);
}

StreamSender::Answer StreamSender::take(const Pull& pull) {
  Answer answer;
  answer.pull = pull.id;
  answer.first = first_;
  std::uint64_t bytes = 0;
  while (!sizes_.empty() && answer.items < pull.most_items) {
    const std::uint64_t next = sizes_.front();
    // A single item goes whatever it takes: it could never go otherwise.
    if (answer.items > 0 && (next > pull.most_bytes || bytes > pull.most_bytes - next)) break;
    bytes += next;
    ++answer.items;
    sizes_.pop_front();
  }
  bytes_ -= std::min(bytes, bytes_);
  first_ += answer.items;
  const bool ends = end_.has_value() || !stopped_.ok();
  answer.is_last = ends && (sizes_.empty() || SINEW_STREAM_BUG(kEndsEarly));
  return answer;
}

}  // namespace sinew::internal
