#include "sinew/tests/streams/stream_model.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sinew/tests/threads/support/explore.h"

namespace sinew::internal::sim {
namespace {

constexpr std::uint64_t kBytes = 64;
const char* const kWritersError = "the writer's error";

}  // namespace

StreamModel::StreamModel(const StreamWorld& world)
    : world_(world),
      sender_({world.room, 1 << 20}),
      receiver_({world.answer, world.answers, world.large_answers}) {
  take(receiver_.begin());
}

void StreamModel::each_next(const Visit& visit) const {
  const auto step = [&](const std::string& name, const auto& change) {
    StreamModel next = *this;
    change(next);
    visit(next, name);
  };
  if (may_write() && written_ < world_.items) {
    step("an item is written", [](StreamModel& next) { next.write(); });
  }
  if (may_write() && written_ == world_.items) {
    step("the writer ends it", [](StreamModel& next) { next.finish(absl::OkStatus()); });
  }
  if (world_.fails && may_write()) {
    step("the writer fails it",
         [](StreamModel& next) { next.finish(absl::AbortedError(kWritersError)); });
  }
  if (readers_wait_ < world_.readers && !receiver_.is_over()) {
    step("an item is wanted", [](StreamModel& next) { next.want(); });
  }
  if (world_.stops && !receiver_.is_over()) {
    step("the reader stops", [](StreamModel& next) { next.stop(); });
  }
  for (std::size_t i = 0; i < pulls_.size(); ++i) {
    step(absl::StrCat("pull ", pulls_[i], " arrives"),
         [i](StreamModel& next) { next.deliver_pull(i); });
  }
  for (std::size_t i = 0; i < answers_.size(); ++i) {
    step(absl::StrCat("the answer of pull ", answers_[i].pull, " arrives"),
         [i](StreamModel& next) { next.deliver_answer(i); });
  }
  if (stop_is_under_way_) {
    step("the stop arrives", [](StreamModel& next) { next.deliver_stop(); });
  }
  if (world_.has_deadline && !writer_late_) {
    step("the writer's time is over", [](StreamModel& next) { next.end_time_of_writer(); });
  }
  if (world_.has_deadline && !reader_late_) {
    step("the reader's time is over", [](StreamModel& next) { next.end_time_of_reader(); });
  }
  if (world_.loses && !is_lost_) {
    step("the ends lose each other", [](StreamModel& next) { next.lose(); });
  }
}

void StreamModel::write() {
  buffer_.push_back(written_++);
  take(sender_.write(kBytes));
  if (sender_.is_full()) writer_waits_ = true;
}

void StreamModel::finish(const absl::Status& end) {
  end_ = end;
  take(sender_.finish(end));
}

void StreamModel::want() {
  ++readers_wait_;
  take(receiver_.want());
}

void StreamModel::stop() {
  reader_stopped_ = true;
  take(receiver_.stop(absl::CancelledError("it was stopped")));
}

void StreamModel::deliver_pull(std::size_t index) {
  const StreamSender::PullId pull = pulls_[index];
  pulls_.erase(pulls_.begin() + static_cast<std::ptrdiff_t>(index));
  // A stream that is over is forgotten, unless it has to say that its time is over.
  if (sender_.is_over() && !writer_late_) {
    answers_.push_back({pull, 0, {}, absl::NotFoundError("there is no such stream"), true});
    return;
  }
  waiting_pulls_.push_back(pull);
  absl::StatusOr<StreamSender::Outputs> outputs = sender_.pull(pull, world_.answer, 1 << 20);
  if (!outputs.ok()) {
    wrong_ = "a pull was refused";
    return;
  }
  take(*outputs);
}

void StreamModel::deliver_answer(std::size_t index) {
  const Answer answer = answers_[index];
  answers_.erase(answers_.begin() + static_cast<std::ptrdiff_t>(index));
  const auto pull = std::find(outstanding_.begin(), outstanding_.end(), answer.pull);
  if (pull == outstanding_.end()) return;  // its time was over
  outstanding_.erase(pull);
  if (answer.is_failure) {
    pull_failed_ = true;
    take(receiver_.on_pull_failed(*answer.end));
    return;
  }
  end_came_ = end_came_ || answer.end.has_value();
  if (receiver_.can_take(answer.first, answer.items.size(), answer.end.has_value())) {
    kept_.emplace(answer.first, answer.items);
  }
  const auto size =
      answer.items.size() > 1 ? StreamReceiver::Size::kLarge : StreamReceiver::Size::kSmall;
  take(receiver_.on_answer(answer.first, answer.items.size(), size, answer.end));
}

void StreamModel::deliver_stop() {
  stop_is_under_way_ = false;
  buffer_.clear();
  take(sender_.stop(absl::CancelledError("the reader has stopped")));
}

void StreamModel::end_time_of_writer() {
  writer_late_ = true;
  buffer_.clear();
  take(sender_.stop(absl::DeadlineExceededError("late")));
}

void StreamModel::end_time_of_reader() {
  reader_late_ = true;
  fail_pulls(absl::DeadlineExceededError("late"));
}

void StreamModel::lose() {
  is_lost_ = true;
  pulls_.clear();
  answers_.clear();
  stop_is_under_way_ = false;
  buffer_.clear();
  take(sender_.stop(absl::UnavailableError("lost")));
  answers_.clear();
  fail_pulls(absl::UnavailableError("lost"));
  stop_is_under_way_ = false;
}

// Here, whatever becomes of them there.
void StreamModel::fail_pulls(const absl::Status& why) {
  while (!outstanding_.empty()) {
    outstanding_.erase(outstanding_.begin());
    pull_failed_ = true;
    take(receiver_.on_pull_failed(why));
  }
}

void StreamModel::take(const StreamSender::Outputs& outputs) {
  for (const StreamSender::Answer& each : outputs.answers) {
    Answer answer;
    answer.pull = each.pull;
    answer.first = each.first;
    const auto waiting = std::find(waiting_pulls_.begin(), waiting_pulls_.end(), each.pull);
    if (waiting == waiting_pulls_.end() || each.items > buffer_.size()) {
      wrong_ = "what is not there is answered";
      return;
    }
    waiting_pulls_.erase(waiting);
    const auto end = buffer_.begin() + static_cast<std::ptrdiff_t>(each.items);
    answer.items.assign(buffer_.begin(), end);
    buffer_.erase(buffer_.begin(), end);
    if (each.is_last) answer.end = sender_.end();
    answers_.push_back(std::move(answer));
  }
  if (outputs.releases_writers) writer_waits_ = false;
}

void StreamModel::take(const StreamReceiver::Outputs& outputs) {
  for (std::uint64_t i = 0; i < outputs.served; ++i) {
    if (kept_.empty() || readers_wait_ == 0) {
      wrong_ = "what has not come is handed out";
      return;
    }
    const auto front = kept_.begin();
    const int item = front->second[at_];
    if (++at_ == front->second.size()) {
      kept_.erase(front);
      at_ = 0;
    }
    --readers_wait_;
    if (item != read_) wrong_ = absl::StrCat("item ", item, " is read in the place of ", read_);
    ++read_;
  }
  if (outputs.ends_readers) readers_wait_ = 0;
  for (std::size_t i = 0; i < outputs.pulls; ++i) {
    outstanding_.push_back(++last_pull_);
    // Of a worker that is lost all calls fail.
    if (!is_lost_) pulls_.push_back(last_pull_);
  }
  if (outputs.stops_writer && !is_lost_) stop_is_under_way_ = true;
  if (is_lost_ && outputs.pulls > 0) fail_pulls(absl::UnavailableError("lost"));
  if (reader_late_ && outputs.pulls > 0) fail_pulls(absl::DeadlineExceededError("late"));
  check_end();
}

void StreamModel::check_end() {
  if (!receiver_.is_over()) return;
  kept_.clear();
  at_ = 0;
  const absl::Status& end = receiver_.end();
  const bool has_all = read_ == written_;
  switch (end.code()) {
    case absl::StatusCode::kOk:
      if (!end_.has_value() || !end_->ok() || !has_all) wrong_ = "the end is told too early";
      break;
    case absl::StatusCode::kAborted:
      if (!end_.has_value() || end_->ok() || !has_all) wrong_ = "the error is told too early";
      break;
    case absl::StatusCode::kCancelled:
      if (!reader_stopped_) wrong_ = "it was stopped by nobody";
      break;
    case absl::StatusCode::kDeadlineExceeded:
      if (!reader_late_ && !writer_late_) wrong_ = "it ends before its time";
      break;
    case absl::StatusCode::kUnavailable:
      if (!is_lost_) wrong_ = "nobody is lost";
      break;
    default:
      wrong_ = absl::StrCat("it ends with ", end.ToString());
  }
}

std::string StreamModel::broken() const {
  if (!wrong_.empty()) return wrong_;
  if (sender_.buffered() != buffer_.size()) return "the buffer has other items than are counted";
  if (sender_.buffered() > world_.room) return "the buffer has more than there is room for";
  if (writer_waits_ && (sender_.is_over() || !sender_.is_full())) return "the writer waits in vain";
  if (receiver_.is_over() && readers_wait_ > 0) return "a reader waits behind the end";
  if (receiver_.waiting() != readers_wait_) return "other readers wait than are counted";
  if (!receiver_.is_over() &&
      outstanding_.size() + receiver_.held() > std::max(world_.answers, world_.large_answers)) {
    return "more is pulled than the reader's memory is for";
  }
  if (waiting_pulls_.size() != sender_.waiting_pulls()) return "a pull is forgotten";
  return "";
}

std::string StreamModel::settle() const {
  StreamModel rest = *this;
  for (int steps = 0; steps < 1000 && rest.wrong_.empty(); ++steps) {
    if (rest.stop_is_under_way_) {
      rest.deliver_stop();
    } else if (!rest.pulls_.empty()) {
      rest.deliver_pull(0);
    } else if (!rest.answers_.empty()) {
      rest.deliver_answer(0);
    } else if (rest.may_write() && rest.written_ < world_.items) {
      rest.write();
    } else if (rest.may_write()) {
      rest.finish(absl::OkStatus());
    } else if (rest.readers_wait_ == 0 && !rest.receiver_.is_over()) {
      rest.want();
    } else {
      break;
    }
  }
  if (!rest.wrong_.empty()) return rest.wrong_;
  if (rest.readers_wait_ > 0) return "a reader waits for ever";
  if (rest.writer_waits_) return "the writer waits for ever";
  if (!rest.receiver_.is_over()) return "the reader is never told the end";
  if (!rest.sender_.is_over()) return "the writer is never told the end";
  if (rest.sender_.waiting_pulls() > 0) return "a pull is never answered";
  return "";
}

std::string StreamModel::key() const {
  std::string key =
      absl::StrCat(written_, writer_waits_, "b", absl::StrJoin(buffer_, ","), "e",
                   end_.has_value() ? static_cast<int>(end_->code()) : -1, "s", sender_.is_over(),
                   "/", sender_.closed().code(), "p", absl::StrJoin(pulls_, ","), "w",
                   absl::StrJoin(waiting_pulls_, ","), "o", absl::StrJoin(outstanding_, ","));
  absl::StrAppend(&key, "x", stop_is_under_way_, reader_stopped_, writer_late_, reader_late_,
                  is_lost_, end_came_, pull_failed_, "r", read_, "/", readers_wait_, "/", at_, "h",
                  receiver_.held());
  for (const Answer& each : answers_) {
    absl::StrAppend(&key, "a", each.pull, ":", each.first, ":", absl::StrJoin(each.items, ","), ":",
                    each.end.has_value() ? static_cast<int>(each.end->code()) : -1,
                    each.is_failure);
  }
  for (const auto& [first, items] : kept_) absl::StrAppend(&key, "k", first, "+", items.size());
  if (receiver_.is_over()) absl::StrAppend(&key, "over", receiver_.end().code());
  return key;
}

namespace {

/// A reading end that asks for as much as it may.
struct LiarsReader {
  StreamReceiver receiver{{2, 2, 2}};
  std::size_t pulls = 0;
  std::uint64_t read = 0;
  std::string wrong;
  // Of what has come, by number.
  std::vector<bool> came = std::vector<bool>(8, false);

  LiarsReader() { take(receiver.begin()); }
  void take(const StreamReceiver::Outputs& outputs) {
    pulls += outputs.pulls;
    for (std::uint64_t i = 0; i < outputs.served; ++i, ++read) {
      if (read >= came.size() || !came[read]) wrong = "what has not come is handed out";
    }
  }
  void answer(std::uint64_t first, std::uint64_t items, std::optional<absl::Status> end) {
    --pulls;
    for (std::uint64_t number = first; number < first + items && number < came.size(); ++number) {
      if (came[number] && receiver.can_take(first, items, end.has_value())) {
        wrong = "an item is taken twice";
      }
      came[number] = true;
    }
    take(receiver.on_answer(first, items, StreamReceiver::Size::kSmall, std::move(end)));
    while (wrong.empty() && !receiver.is_over() && receiver.has_next()) take(receiver.want());
    if (wrong.empty() && !receiver.is_over() && pulls == 0) wrong = "nothing can come any more";
  }
};

std::string lie(const LiarsReader& reader, int answers) {
  if (!reader.wrong.empty() || reader.receiver.is_over() || answers == 0) return reader.wrong;
  for (std::uint64_t first = 0; first < 5; ++first) {
    for (std::uint64_t items = 0; items < 4; ++items) {
      for (const bool ends : {false, true}) {
        LiarsReader next = reader;
        next.answer(first, items, ends ? std::optional(absl::OkStatus()) : std::nullopt);
        std::string wrong = lie(next, answers - 1);
        if (!wrong.empty()) return wrong;
      }
    }
  }
  return "";
}

}  // namespace

std::string explore_liar() { return lie(LiarsReader(), 4); }

std::string explore(const StreamWorld& world, std::size_t* states) {
  return explore_from(StreamModel(world), states);
}

}  // namespace sinew::internal::sim
