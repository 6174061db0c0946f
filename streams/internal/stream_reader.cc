#include "sinew/streams/internal/stream_reader.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/internal/thread_context.h"
#include "sinew/rpc/call_context.h"
#include "sinew/rpc/calls/call_builder.h"
#include "sinew/rpc/calls/call_link.h"
#include "sinew/rpc/calls/error_codec.h"
#include "sinew/rpc/calls/extension.h"
#include "sinew/rpc/calls/worker_services.h"
#include "sinew/streams/internal/stream_answer.h"

namespace sinew::internal {
namespace {

// Its answer may take half an hour and more to be read: it has its own time, not the caller's.
Peer writer_of(const std::shared_ptr<WorkerServices>& services, const WorkerInfo& writer,
               std::chrono::nanoseconds timeout) {
  if (services == nullptr) {
    throw RpcError(ErrorCode::kFailedPrecondition,
                   "the worker that reads the stream has ended, so that nothing comes any more");
  }
  absl::StatusOr<std::shared_ptr<CallLink>> link = services->link(writer);
  if (!link.ok()) throw_error(about_peer(link.status(), writer.name));
  CallOptions options;
  options.timeout = timeout;
  return PeerAccess::make(services, *std::move(link)).with(std::move(options));
}

/// One pull. Reads its answer on the executor, since codecs may be user code, and tells the reader
/// once, whatever becomes of it.
class StreamPull final : public PendingCall {
 public:
  explicit StreamPull(std::shared_ptr<StreamReader> reader)
      : outcome_(std::make_shared<Outcome>(std::move(reader))) {}

  void on_reply(ReceivedReply reply) override {
    ReceivedReply::read_soon(
        std::make_shared<ReceivedReply>(std::move(reply)),
        [outcome = outcome_](ReceivedReply& received) {
          received.throw_if_error();
          try {
            outcome->items = outcome->reader->read(received);
          } catch (...) {
            received.throw_unreadable(std::current_exception());
          }
        },
        [outcome = outcome_](std::exception_ptr error) { outcome->end(std::move(error)); });
  }
  void on_error(std::exception_ptr error) override { outcome_->end(std::move(error)); }

 private:
  struct Outcome {
    explicit Outcome(std::shared_ptr<StreamReader> its_reader) : reader(std::move(its_reader)) {}
    ~Outcome() {
      // The executor runs nothing any more.
      if (reader != nullptr) {
        end(make_error(absl::CancelledError("the worker that reads the stream has ended")));
      }
    }
    void end(std::exception_ptr error) {
      const std::shared_ptr<StreamReader> told = std::exchange(reader, nullptr);
      error == nullptr ? told->on_answer(std::move(items)) : told->on_pull_failed(std::move(error));
    }
    std::shared_ptr<StreamReader> reader;
    std::unique_ptr<StreamReader::Items> items;
  };

  const std::shared_ptr<Outcome> outcome_;
};

/// A call whose outcome does not matter.
class Unheeded final : public PendingCall {
 public:
  void on_reply(ReceivedReply) override {}
  void on_error(std::exception_ptr) override {}
};

}  // namespace

StreamReader::StreamReader(MessageRoute& route, std::string id)
    : rules_(StreamReceiver::Limits{kPulledItems, kAnswers, kLargeAnswers}),
      services_(route.services().weak_services()),
      executor_(route.services().executor()),
      writer_(route.peer()),
      id_(std::move(id)),
      deadline_(route.deadline()) {}

StreamReader::~StreamReader() = default;

Executor* StreamReader::executor() const { return executor_.get(); }

void StreamReader::begin(const MessageRoute& route) {
  Work work;
  {
    MutexLock lock(mutex_);
    take_outputs_locked(rules_.begin(), work);
  }
  perform(std::move(work));
  for (const CancellationToken& token : route.cancellations()) watch(token);
  // A call is read in its context.
  if (const CallContext* call = CallContext::current_or_null()) watch(call->cancellation());
}

void StreamReader::watch(const CancellationToken& token) {
  if (!token.can_be_cancelled()) return;
  const std::uint64_t number = token.notify([weak = weak_from_this()] {
    if (const auto self = weak.lock())
      self->stop("the call to which the stream belongs was given up");
  });
  MutexLock lock(mutex_);
  watched_.emplace_back(token, number);
}

void StreamReader::stop(const char* why) {
  Work work;
  {
    MutexLock lock(mutex_);
    take_outputs_locked(rules_.stop(absl::CancelledError(why)), work);
  }
  perform(std::move(work));
}

std::unique_ptr<StreamReader::Items> StreamReader::read(ReceivedReply& reply) const {
  const ValueReader value = reply.value();
  const ListReader list = value.list(4);
  std::unique_ptr<Items> items;
  {
    const ValueReader each = list.item(1);
    items = decode(each);
  }
  items->first = list.item(0).natural();
  const auto state =
      static_cast<StreamState>(list.item(2).integer(0, static_cast<int>(StreamState::kFailed)));
  if (state == StreamState::kEnded) items->end.emplace(nullptr);
  if (state == StreamState::kFailed) {
    proto::Error error;
    const std::string_view bytes = list.item(3).binary();
    if (!error.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      value.fail("the error of a stream cannot be read");
    }
    items->end.emplace(make_error(read_error(error, writer_.name, std::string())));
  }
  return items;
}

void StreamReader::on_answer(std::unique_ptr<Items> items) {
  Work work;
  std::unique_ptr<Items> dropped;
  {
    MutexLock lock(mutex_);
    std::optional<absl::Status> end;
    if (items->end.has_value()) {
      end.emplace(*items->end == nullptr ? absl::OkStatus() : to_status(*items->end));
      if (*items->end != nullptr) end_error_ = *items->end;
    }
    const std::uint64_t first = items->first;
    const std::uint64_t count = items->count;
    const auto size =
        items->bytes >= kLargeBytes ? StreamReceiver::Size::kLarge : StreamReceiver::Size::kSmall;
    // Before the rules may hand them out; what they do not take is dropped below.
    if (rules_.can_take(first, count, end.has_value())) {
      keep_locked(std::move(items));
    } else {
      dropped = std::move(items);
    }
    take_outputs_locked(rules_.on_answer(first, count, size, std::move(end)), work);
  }
  perform(std::move(work));
}

void StreamReader::on_pull_failed(std::exception_ptr error) {
  Work work;
  {
    MutexLock lock(mutex_);
    const absl::Status status = to_status(error);
    // As the rules choose among them.
    if (pull_error_ == nullptr || absl::IsNotFound(to_status(pull_error_))) pull_error_ = error;
    take_outputs_locked(rules_.on_pull_failed(status), work);
  }
  perform(std::move(work));
}

std::exception_ptr StreamReader::end_locked() const {
  if (rules_.end().ok()) return nullptr;
  switch (rules_.cause()) {
    case StreamReceiver::Cause::kWriter:
      return end_error_;
    case StreamReceiver::Cause::kPull:
      return pull_error_;
    case StreamReceiver::Cause::kReader:
    case StreamReceiver::Cause::kBroken:
      break;
  }
  return make_error(rules_.end(), writer_.name, {}, Execution::kMayHaveRun);
}

void StreamReader::take_outputs_locked(const StreamReceiver::Outputs& outputs, Work& work) {
  if (outputs.served > 0 || outputs.ends_readers) {
    work.wakes = wake_locked(outputs.served, outputs.ends_readers);
  }
  work.pulls = outputs.pulls;
  work.stops_writer = outputs.stops_writer;
  work.is_over = rules_.is_over();
}

void StreamReader::perform(Work work) {
  for (; work.pulls > 0; --work.pulls) send_pull();
  if (work.stops_writer) send_stop();
  if (work.wakes != nullptr) work.wakes->run();
  if (!work.is_over) return;
  std::vector<std::pair<CancellationToken, std::uint64_t>> watched;
  {
    MutexLock lock(mutex_);
    watched.swap(watched_);
  }
  for (const auto& [token, number] : watched) token.forget(number);
}

// In no call's context: the stream may outlive the handler that reads it.
void StreamReader::send_pull() {
  try {
    const ThreadContext::Scope scope(nullptr);
    const std::shared_ptr<WorkerServices> services = services_.lock();
    std::chrono::nanoseconds timeout = kNoTimeout;
    if (services != nullptr && deadline_ != Clock::TimePoint::max()) {
      timeout = std::max<std::chrono::nanoseconds>(deadline_ - services->clock().now(),
                                                   std::chrono::nanoseconds(1));
    }
    CallBuilder call(writer_of(services, writer_, timeout), kPullMethod, std::string());
    call.argument().binary(id_);
    call.argument().natural(kPulledItems);
    call.argument().natural(kPulledBytes);
    call.send(std::make_unique<StreamPull>(shared_from_this()));
  } catch (...) {
    on_pull_failed(std::current_exception());
  }
}

void StreamReader::send_stop() {
  try {
    const ThreadContext::Scope scope(nullptr);
    const std::shared_ptr<WorkerServices> services = services_.lock();
    // Without it the stream is over too.
    if (services == nullptr || !services->is_running()) return;
    CallBuilder call(writer_of(services, writer_, services->default_timeout()), kStopMethod,
                     std::string());
    call.argument().binary(id_);
    call.send(std::make_unique<Unheeded>());
  } catch (...) {
    // The writer's worker is lost, or this one: what tells that ends the stream there.
  }
}

}  // namespace sinew::internal
