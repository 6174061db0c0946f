#include "sinew/streams/internal/streams_manager.h"

#include <cstdint>
#include <tuple>
#include <utility>

#include "absl/strings/str_format.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/calls/call_link.h"
#include "sinew/rpc/calls/layers.h"
#include "sinew/rpc/calls/serve.h"
#include "sinew/rpc/calls/worker_services.h"
#include "sinew/streams/internal/layer.h"
#include "sinew/streams/internal/stream_answer.h"

namespace sinew::internal {
namespace {

// A worker that knows it, and to which it was sent, may read. Others cannot guess it.
std::string random_stream_id() {
  const std::uint64_t words[] = {random_secret(), random_secret()};
  return std::string(reinterpret_cast<const char*>(words), sizeof(words));
}

absl::Status reader_lost(const WorkerInfo& reader) {
  return about_peer(absl::UnavailableError(absl::StrFormat(
                        "worker '%s', which reads the stream, is lost", reader.name)),
                    reader.name);
}

}  // namespace

std::shared_ptr<Extension> make_streams(WorkerServices& services) {
  return std::make_shared<StreamsManager>(services);
}

std::shared_ptr<StreamsManager> StreamsManager::of(const WorkerServices& services) {
  return require_layer<StreamsManager>(services, "streams");
}

// ---- What is sent.

std::string StreamsManager::send(const std::shared_ptr<StreamSource>& source, MessageRoute& route) {
  if (route.may_be_repeated()) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   "a call with a stream cannot be repeated: make it without retrying()");
  }
  std::string id = random_stream_id();
  bool is_closed = false;
  source->send({weak_from_this(), services_.weak_services(), route.peer(), id, route.deadline()});
  {
    MutexLock lock(mutex_);
    is_closed = closed_;
    if (!is_closed) streams_.emplace(id, Entry{source, 0, 0});
  }
  if (is_closed) {
    const absl::Status ended = services_.ended("no stream can be sent from there any more");
    source->stop(make_error(ended));
    throw_error(ended);
  }
  if (route.deadline() != Clock::TimePoint::max()) {
    const Timers::TimerId timer = set_timer(route.deadline(), id, &StreamsManager::on_deadline);
    MutexLock lock(mutex_);
    const auto entry = streams_.find(id);
    if (entry != streams_.end()) entry->second.deadline_timer = timer;
  }
  // It is read at once then, also where the result is not wanted any more: so the end is told.
  route.carries_reference(
      [weak = weak_from_this(), id, in_reply = route.call() != nullptr](CarrierEnd how) {
        if (const auto self = weak.lock()) self->on_carrier_end(id, how, in_reply);
      });
  return id;
}

void StreamsManager::on_carrier_end(const std::string& id, CarrierEnd how, bool in_reply) {
  const std::shared_ptr<StreamSource> source = find(id);
  if (source == nullptr) return;
  if (how != CarrierEnd::kAnswered) {
    // Messages fail before it is known that their receiver is lost, which is the better reason. Who
    // stops the stream runs what waits for room, and this may be any thread: so does a timer.
    const bool is_lost = services_.is_lost(source->target().reader);
    const auto wait = is_lost ? std::chrono::nanoseconds(0) : kTimeToLearn;
    set_timer(services_.clock().now() + wait, id, &StreamsManager::on_carrier_failed);
    return;
  }
  // A call that has run has read its stream, and let it go. A reply may have arrived too late.
  if (!in_reply) return;
  const Timers::TimerId timer =
      set_timer(services_.clock().now() + kTimeToBegin, id, &StreamsManager::on_never_begun);
  MutexLock lock(mutex_);
  const auto entry = streams_.find(id);
  if (entry != streams_.end()) entry->second.begin_timer = timer;
}

Timers::TimerId StreamsManager::set_timer(Clock::TimePoint when, const std::string& id,
                                          void (StreamsManager::*run)(const std::string& id)) {
  return services_.timers().run_at(when, [weak = weak_from_this(), id, run] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    // What waits for room is not for the thread of the timers.
    self->services_.executor()->post([weak, id, run] {
      if (const auto manager = weak.lock()) ((*manager).*run)(id);
    });
  });
}

// The clock of who reads is another one: what it asks a moment later is to be answered so too.
void StreamsManager::on_deadline(const std::string& id) {
  std::shared_ptr<StreamSource> source;
  {
    MutexLock lock(mutex_);
    const auto entry = streams_.find(id);
    if (entry == streams_.end()) return;
    entry->second.has_end_to_tell = true;
    source = entry->second.source;
  }
  source->stop(make_error(
      absl::DeadlineExceededError("the time of the call to which the stream belongs is over")));
  set_timer(services_.clock().now() + kTimeToTell, id, &StreamsManager::forget);
}

void StreamsManager::on_carrier_failed(const std::string& id) {
  const std::shared_ptr<StreamSource> source = find(id);
  if (source == nullptr) return;
  const WorkerInfo& reader = source->target().reader;
  const auto link = services_.link(reader);
  const bool is_lost = services_.is_lost(reader) || !link.ok() || !(*link)->alive();
  if (!is_lost && (*link)->is_over()) {
    // Which end is out will be known, and that is the reason.
    set_timer(services_.clock().now() + kTimeToLearn, id, &StreamsManager::on_carrier_failed);
    return;
  }
  source->stop(make_error(
      is_lost
          ? reader_lost(reader)
          : absl::CancelledError(
                "the stream is not read: the message that carried it failed, or was not sent")));
}

void StreamsManager::on_never_begun(const std::string& id) {
  if (const auto source = find(id)) source->stop_unless_pulled();
}

void StreamsManager::on_over(const std::string& id) {
  {
    MutexLock lock(mutex_);
    const auto entry = streams_.find(id);
    if (entry == streams_.end() || entry->second.has_end_to_tell) return;
  }
  forget(id);
}

void StreamsManager::forget(const std::string& id) {
  Entry entry;
  {
    MutexLock lock(mutex_);
    const auto found = streams_.find(id);
    if (found == streams_.end()) return;
    entry = std::move(found->second);
    streams_.erase(found);
  }
  for (const Timers::TimerId timer : {entry.deadline_timer, entry.begin_timer}) {
    if (timer != 0) services_.timers().cancel(timer);
  }
}

// ---- Who reads it.

std::shared_ptr<StreamSource> StreamsManager::find(const std::string& id) const {
  MutexLock lock(mutex_);
  const auto found = streams_.find(id);
  return found == streams_.end() ? nullptr : found->second.source;
}

// Of a stream that is not the caller's it is not even said that it is there.
std::shared_ptr<StreamSource> StreamsManager::find(const std::string& id,
                                                   const Invocation& call) const {
  std::shared_ptr<StreamSource> source = find(id);
  const WorkerInfo& caller = call.caller();
  if (source == nullptr || source->target().reader.incarnation != caller.incarnation ||
      source->target().reader.name != caller.name) {
    throw RpcError(ErrorCode::kNotFound,
                   absl::StrFormat("worker '%s' has no such stream for its caller: it has ended, "
                                   "or was sent to another one",
                                   services_.self().name));
  }
  return source;
}

void StreamsManager::serve_pull(const std::shared_ptr<Invocation>& call) {
  using Values = std::tuple<std::string, std::uint64_t, std::uint64_t>;
  call->keep_room();
  const auto values = read_arguments<Values>(*call, std::index_sequence<0, 1, 2>());
  call->when_ready([call, values] {
    const auto source = of(call->services())->find(std::get<0>(values), *call);
    source->pull(call, std::get<1>(values), std::get<2>(values));
  });
}

void StreamsManager::serve_stop(const std::shared_ptr<Invocation>& call) {
  const auto values = read_arguments<std::tuple<std::string>>(*call, std::index_sequence<0>());
  call->when_ready([call, values] {
    of(call->services())
        ->find(std::get<0>(values), *call)
        ->stop(make_error(absl::CancelledError("the reader of the stream reads no more")));
    call->finish();
  });
}

std::vector<Extension::Method> StreamsManager::methods() const {
  return {{kPullMethod, &StreamsManager::serve_pull}, {kStopMethod, &StreamsManager::serve_stop}};
}

// ---- The end.

void StreamsManager::on_worker_fenced(const WorkerInfo& worker) {
  std::vector<std::shared_ptr<StreamSource>> ended;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, entry] : streams_) {
      if (entry.source->target().reader.incarnation == worker.incarnation) {
        ended.push_back(entry.source);
      }
    }
  }
  if (ended.empty()) return;
  services_.executor()->post([ended = std::move(ended), worker] {
    for (const auto& source : ended) source->stop(make_error(reader_lost(worker)));
  });
}

void StreamsManager::stop_all(const absl::Status& why) {
  std::vector<std::shared_ptr<StreamSource>> ended;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    for (const auto& [id, entry] : streams_) ended.push_back(entry.source);
  }
  for (const auto& source : ended) source->stop(make_error(why));
}

Future<std::vector<std::string>> StreamsManager::drain_async(DrainScope, Clock::TimePoint) {
  stop_all(services_.ended("what it writes is not read any more"));
  return make_ready_future(std::vector<std::string>());
}

void StreamsManager::stop() { stop_all(services_.ended("what it writes is not read any more")); }

void StreamsManager::add_counters(Counters& counters) const {
  MutexLock lock(mutex_);
  std::int64_t written = 0;
  for (const auto& [id, entry] : streams_) written += entry.has_end_to_tell ? 0 : 1;
  counters["streams.written"] = written;
}

}  // namespace sinew::internal
