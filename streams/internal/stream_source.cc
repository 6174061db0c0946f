#include "sinew/streams/internal/stream_source.h"

#include <optional>

#include "ATen/core/Tensor.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/calls/error_codec.h"
#include "sinew/rpc/calls/invocation.h"
#include "sinew/rpc/calls/served_error.h"
#include "sinew/rpc/calls/worker_services.h"
#include "sinew/streams/internal/stream_answer.h"
#include "sinew/streams/internal/streams_manager.h"

namespace sinew::internal {

std::uint64_t stream_bytes(const at::Tensor& tensor) {
  return sizeof(tensor) + (tensor.defined() ? tensor.nbytes() : 0);
}

StreamSource::StreamSource(StreamSender::Limits limits) : rules_(limits) {}
StreamSource::~StreamSource() = default;

void StreamSource::throw_closed_locked() const {
  if (rules_.is_over() && error_ != nullptr) std::rethrow_exception(error_);
  throw_error(rules_.closed());
}

Future<void> StreamSource::room() {
  const Promise<void> promise;
  MutexLock lock(mutex_);
  if (rules_.is_full() && !rules_.is_over()) {
    waiting_.push_back(promise);
  } else if (rules_.is_over() && error_ != nullptr) {
    promise.set_error(error_);
  } else {
    promise.set_value();
  }
  return promise.future();
}

void StreamSource::finish(std::exception_ptr error) {
  Work work;
  {
    MutexLock lock(mutex_);
    if (!rules_.closed().ok()) return;
    error_ = error;
    take_outputs_locked(rules_.finish(error == nullptr ? absl::OkStatus() : to_status(error)),
                        work);
  }
  perform(std::move(work));
}

void StreamSource::stop(std::exception_ptr why) {
  Work work;
  {
    MutexLock lock(mutex_);
    if (rules_.is_over()) return;
    error_ = why;
    drop_locked(work.dropped);
    take_outputs_locked(rules_.stop(to_status(why)), work);
  }
  perform(std::move(work));
}

void StreamSource::stop_unless_pulled() {
  {
    MutexLock lock(mutex_);
    if (rules_.was_pulled()) return;
  }
  stop(make_error(absl::CancelledError("the stream was not read: its reader did not begin")));
}

bool StreamSource::is_stopped() const {
  MutexLock lock(mutex_);
  return rules_.is_over();
}

bool StreamSource::was_sent() const {
  MutexLock lock(mutex_);
  return sent_;
}

void StreamSource::send(Target target) {
  MutexLock lock(mutex_);
  if (sent_) {
    throw RpcError(ErrorCode::kFailedPrecondition,
                   "a stream was sent a second time: it has one reader");
  }
  sent_ = true;
  target_ = std::move(target);
}

void StreamSource::pull(const std::shared_ptr<Invocation>& call, std::uint64_t most_items,
                        std::uint64_t most_bytes) {
  Work work;
  StreamSender::PullId number = 0;
  bool waits = false;
  {
    MutexLock lock(mutex_);
    number = ++last_pull_;
    pulls_.emplace(number, call);
    absl::StatusOr<StreamSender::Outputs> outputs = rules_.pull(number, most_items, most_bytes);
    if (!outputs.ok()) {
      pulls_.erase(number);
      throw_error(outputs.status());
    }
    take_outputs_locked(*std::move(outputs), work);
    waits = pulls_.count(number) != 0;
  }
  perform(std::move(work));
  if (!waits) return;
  // A worker that stops to read says so. Others only leave.
  if (call->caller().rank >= 0) return;
  call->cancellation().notify([weak = weak_from_this(), services = target_.services] {
    const auto worker = services.lock();
    if (worker == nullptr) return;
    worker->executor()->post([weak] {
      if (const auto self = weak.lock()) {
        self->stop(make_error(absl::CancelledError("the client that read the stream has gone")));
      }
    });
  });
}

void StreamSource::take_outputs_locked(StreamSender::Outputs outputs, Work& work) {
  for (const StreamSender::Answer& each : outputs.answers) {
    const auto pull = pulls_.find(each.pull);
    work.answers.push_back({std::move(pull->second), each.first,
                            take_locked(static_cast<std::size_t>(each.items)), each.is_last});
    pulls_.erase(pull);
  }
  if (outputs.releases_writers) work.released.swap(waiting_);
  work.error = error_;
  if (rules_.is_over() && !std::exchange(told_over_, true)) work.is_over = true;
}

void StreamSource::perform(Work work) {
  for (const Answer& each : work.answers) answer(each, work.error);
  for (const Promise<void>& each : work.released) {
    work.is_over&& work.error != nullptr ? each.try_set_error(work.error) : each.try_set_value();
  }
  if (!work.is_over) return;
  if (const auto manager = target_.manager.lock()) manager->on_over(target_.id);
}

// What cannot be written, or sent, the reader does not get: the stream ends with that.
void StreamSource::answer(const Answer& answer, const std::exception_ptr& error) {
  answer.call->guard_late([&] {
    try {
      ValueWriter writer = answer.call->result();
      ListWriter list = writer.list(4);
      list.next().natural(answer.first);
      {
        ValueWriter items = list.next();
        answer.items->encode(items);
      }
      const bool has_failed = answer.is_last && error != nullptr;
      list.next().integer(static_cast<int>(!answer.is_last ? StreamState::kOpen
                                           : has_failed    ? StreamState::kFailed
                                                           : StreamState::kEnded));
      if (has_failed) {
        proto::Error text;
        write_error(describe_served(error, ServedStage::kMethod), text);
        list.next().binary(text.SerializeAsString());
      } else {
        list.next().null();
      }
      answer.call->finish();
    } catch (...) {
      stop(std::current_exception());
      throw;
    }
  });
}

}  // namespace sinew::internal
