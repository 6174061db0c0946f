#include "sinew/rpc/transport/grpc/connection/lane_stream.h"

#include <utility>

namespace sinew::internal {

LaneStream::EndState LaneStream::end_state_locked() {
  EndState state;
  state.status = end_status_;
  state.write_in_flight = write_in_flight_;
  state.unread = !read_in_flight_ && !read_failed_;
  return state;
}

void LaneStream::end_operation() {
  EndState state;
  {
    MutexLock lock(mutex_);
    if (--issuing_ > 0 || !ending_) return;
    state = end_state_locked();
  }
  issue_end(state);
}

WriteEnd LaneStream::start_write(grpc::ByteBuffer message, WriteMode mode) {
  {
    MutexLock lock(mutex_);
    if (ending_) return WriteEnd::kLater;
    ++issuing_;
    write_in_flight_ = true;
  }
  outgoing_.Swap(&message);
  const std::optional<bool> ended = issue_write(outgoing_, mode);
  if (ended.has_value()) write_ended();
  // Before end_operation(): the stream has not ended until then.
  if (ended == false) broken();
  end_operation();
  return ended == true ? WriteEnd::kNow : WriteEnd::kLater;
}

void LaneStream::write_ended() {
  // Lets go of the payloads now rather than with the next write, which cannot begin before the end
  // of this one is known.
  outgoing_.Clear();
  MutexLock lock(mutex_);
  write_in_flight_ = false;
}

void LaneStream::start_read() {
  {
    MutexLock lock(mutex_);
    if (ending_) return;
    ++issuing_;
    read_in_flight_ = true;
  }
  issue_read(&incoming_);
  end_operation();
}

void LaneStream::end(const absl::Status& status) {
  EndState state;
  {
    MutexLock lock(mutex_);
    if (std::exchange(ending_, true)) return;
    end_status_ = status;
    if (issuing_ > 0) return;
    state = end_state_locked();
  }
  issue_end(state);
}

void LaneStream::read_done(bool ok) {
  grpc::ByteBuffer message;
  bool read_on = false;
  {
    MutexLock lock(mutex_);
    read_failed_ = !ok;
    message.Swap(&incoming_);
    read_in_flight_ = ok && ending_ && after_end_ == AfterEnd::kReadOn;
    read_on = read_in_flight_;
  }
  if (read_on) {
    drop_messages();
    return;
  }
  if (ok) {
    events_->on_read(kind_, message);
  } else {
    broken();
  }
}

void LaneStream::write_done(bool ok) {
  write_ended();
  if (ok) {
    events_->on_written(kind_);
  } else {
    broken();
  }
}

void LaneStream::done(const absl::Status& status, bool said_by_acceptor) {
  const std::shared_ptr<StreamEvents> events = std::move(events_);
  events->on_ended(kind_, status, said_by_acceptor);
}

}  // namespace sinew::internal
