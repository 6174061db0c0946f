#include "sinew/rpc/calls/call_server.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sinew/rpc.pb.h"
#include "sinew/rpc/base/credit.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/calls/envelope.h"
#include "sinew/rpc/calls/error_codec.h"
#include "sinew/rpc/calls/invocation.h"
#include "sinew/rpc/calls/invocation_request.h"
#include "sinew/rpc/calls/serve.h"
#include "sinew/rpc/calls/session.h"
#include "sinew/rpc/link/hello.h"
#include "sinew/rpc/worker/worker_core.h"

namespace sinew::internal {
namespace {

constexpr std::size_t kMaxHeldCalls = 65536;

Clock::TimePoint deadline_of(Clock::TimePoint now, std::uint64_t timeout_us) {
  // A hostile or huge limit must not wrap around.
  constexpr std::uint64_t kYear = std::uint64_t{365} * 24 * 3600 * 1000000;
  if (timeout_us == 0 || timeout_us > kYear) return Clock::TimePoint::max();
  return now + std::chrono::microseconds(timeout_us);
}

/// Replies of calls from workers go to the caller's record.
class RecordSink final : public ReplySink {
 public:
  explicit RecordSink(std::shared_ptr<CallerRecord> record) : record_(std::move(record)) {}
  void on_reply(std::uint64_t call_id, Frame reply, std::vector<OnCarrierEnd> on_end) override {
    record_->on_reply(call_id, std::move(reply), std::move(on_end));
  }
  bool wants_envelope() const override { return true; }

 private:
  const std::shared_ptr<CallerRecord> record_;
};

/// The reply of a foreign client's call goes straight back.
class UnarySink final : public ReplySink {
 public:
  explicit UnarySink(std::unique_ptr<UnaryCall> call) : call_(std::move(call)) {}
  void on_reply(std::uint64_t, Frame reply, std::vector<OnCarrierEnd> on_end) override {
    call_->reply(std::move(reply));
    for (OnCarrierEnd& end : on_end) std::move(end)(CarrierEnd::kAnswered);
  }
  bool wants_envelope() const override { return false; }
  UnaryCall& call() { return *call_; }

 private:
  const std::unique_ptr<UnaryCall> call_;
};

void serve_fetch(const std::shared_ptr<Invocation>& call) {
  call->check_argument_count(0);
  call->finish_with_target();
}

}  // namespace

/// How many connections of workers that have not joined there are. Held by these too, since a
/// transport may outlast the server.
struct CallServer::Guests {
  Mutex mutex;
  CondVar changed;
  int present ABSL_GUARDED_BY(mutex) = 0;

  void leave() {
    MutexLock lock(mutex);
    if (--present == 0) changed.notify_all();
  }
};

/// One connection that a caller opened.
class InboundConnection final : public ConnectionHandler {
 public:
  /// `on_end` runs when the connection has ended.
  InboundConnection(WorkerCore& core, CallServer& server, std::shared_ptr<CallerRecord> record,
                    Credit on_end = Credit())
      : core_(core), server_(server), record_(std::move(record)), on_end_(std::move(on_end)) {}

  void on_up(const std::shared_ptr<Connection>& connection) override {
    record_->set_connection(connection);
  }
  void on_frames(const std::shared_ptr<Connection>& connection, Lane lane,
                 std::vector<Frame> frames) override {
    server_.on_frames(record_, connection, lane, std::move(frames));
  }
  void on_down(const std::shared_ptr<Connection>& connection, const absl::Status& reason) override {
    record_->connection_lost(connection);
    on_end_.reset();
    if (absl::IsCancelled(reason) || record_->caller().rank < 0) return;
    // The caller may be gone: a look at its address tells sooner than its lease does.
    core_.control_executor().post([core = core_.weak_from_this(), caller = record_->caller()] {
      if (auto self = core.lock(); self != nullptr && self->is_running()) {
        if (auto session = self->session(caller); session.ok()) (*session)->connect();
      }
    });
  }

 private:
  WorkerCore& core_;
  CallServer& server_;
  const std::shared_ptr<CallerRecord> record_;
  Credit on_end_;
};

CallServer::CallServer(WorkerCore& core)
    : core_(core), fetch_{kFetchMethod, "", &serve_fetch}, guests_(std::make_shared<Guests>()) {}

CallServer::~CallServer() = default;

const MethodTable::Entry* CallServer::find_method(std::string_view name) const {
  if (name == kFetchMethod) return &fetch_;
  const auto found = layer_methods_.find(absl::string_view(name.data(), name.size()));
  if (found != layer_methods_.end()) return &found->second;
  return core_.options().methods.find(name);
}

// ---- Connections.

absl::StatusOr<Acceptor::Accepted> CallServer::on_connection(const std::string& hello,
                                                             const AuthenticatedPeer& remote) {
  if (!built_.load(std::memory_order_acquire)) {
    return absl::UnavailableError("this worker is starting; try again");
  }
  absl::StatusOr<Greeting> greeting = read_hello(hello, core_.options().job, remote);
  if (!greeting.ok()) return greeting.status();
  if (greeting->expected.incarnation.value != 0 &&
      greeting->expected.incarnation != core_.self().incarnation) {
    return absl::NotFoundError(
        absl::StrFormat("another incarnation of worker '%s' answers here", core_.self().name));
  }
  Accepted accepted;
  accepted.hello = core_.hello(WorkerInfo());
  if (greeting->worker.rank < 0) {
    // Not a member yet: it may only ask to join. Its record lives as long as the connection.
    {
      MutexLock lock(guests_->mutex);
      ++guests_->present;
    }
    accepted.handler = std::make_shared<InboundConnection>(
        core_, *this, std::make_shared<CallerRecord>(core_, greeting->worker),
        Credit([guests = guests_] { guests->leave(); }));
    return accepted;
  }
  if (core_.is_lost(greeting->worker)) {
    return absl::FailedPreconditionError(
        absl::StrFormat("worker '%s' holds this incarnation of worker '%s' for lost: it must join "
                        "again with a new one",
                        core_.self().name, greeting->worker.name));
  }
  if (absl::Status known = core_.met(greeting->worker, greeting->address, greeting->method_digest);
      !known.ok()) {
    return known;
  }
  accepted.handler = std::make_shared<InboundConnection>(core_, *this, record_of(greeting->worker));
  return accepted;
}

std::shared_ptr<CallerRecord> CallServer::record_of(const WorkerInfo& caller) {
  MutexLock lock(mutex_);
  std::shared_ptr<CallerRecord>& record = callers_[caller.incarnation];
  if (record == nullptr) record = std::make_shared<CallerRecord>(core_, caller);
  return record;
}

// ---- Frames.

void CallServer::on_frames(const std::shared_ptr<CallerRecord>& record,
                           const std::shared_ptr<Connection>& connection, Lane lane,
                           std::vector<Frame> frames) {
  std::vector<Task> tasks;
  tasks.reserve(frames.size());
  for (Frame& frame : frames) {
    auto envelope = std::make_unique<proto::Envelope>();
    if (absl::Status parsed = parse_envelope(frame.envelope, *envelope); !parsed.ok()) {
      connection->close(std::move(parsed));
      break;
    }
    if (envelope->completed_below() != 0) record->forget_below(envelope->completed_below());
    switch (envelope->body_case()) {
      case proto::Envelope::kCall:
        on_call(record, lane, std::move(envelope), std::move(frame), tasks);
        break;
      case proto::Envelope::kCancel:
        record->cancel(envelope->cancel().id());
        break;
      case proto::Envelope::kBeat:
        on_beat(record, connection, envelope->beat().sequence());
        break;
      case proto::Envelope::kNote:
        if (record->caller().rank < 0) break;
        core_.control_executor().post(
            [this, from = record->caller(), note = std::move(*envelope->mutable_note())]() mutable {
              Extension* extension = core_.extension(note.layer());
              if (extension != nullptr && !core_.is_lost(from)) {
                extension->on_note(from, std::move(*note.mutable_body()));
              }
            });
        break;
      default:
        connection->close(absl::InvalidArgumentError(
            "a message came that is no call, cancellation, heartbeat or note"));
        return;
    }
  }
  if (!tasks.empty()) post_or_hold(std::move(tasks));
}

void CallServer::on_call(const std::shared_ptr<CallerRecord>& record, Lane lane,
                         std::unique_ptr<proto::Envelope> envelope, Frame frame,
                         std::vector<Task>& tasks) {
  const std::uint64_t id = envelope->call().id();
  switch (record->admit(id, lane)) {
    case CallerRecord::Admission::kDrop:
    case CallerRecord::Admission::kRefuse:
      return;
    case CallerRecord::Admission::kRun:
      break;
  }
  if (lane == Lane::kControl || record->caller().rank < 0) {
    on_control_call(record, std::move(envelope));
    return;
  }
  const Clock::TimePoint deadline = deadline_of(core_.clock().now(), envelope->call().timeout_us());
  auto request = std::make_unique<Invocation::Request>(core_, record->caller(), deadline,
                                                       std::move(envelope), std::move(frame));
  auto invocation =
      std::make_shared<Invocation>(core_, std::move(request), std::make_shared<RecordSink>(record));
  record->begin(id, invocation);
  tasks.push_back([invocation = std::move(invocation)] { invocation->start(); });
}

void CallServer::post_or_hold(std::vector<Task> tasks) {
  {
    MutexLock lock(mutex_);
    if (closed_) return;
    if (!open_) {
      // Bounded: a worker that never finishes joining must not be filled up. Callers time out.
      for (Task& task : tasks) {
        if (held_.size() < kMaxHeldCalls) held_.push_back(std::move(task));
      }
      return;
    }
  }
  core_.executor()->post_all(std::move(tasks));
}

void CallServer::open() {
  for (const auto& extension : core_.extensions()) {
    for (const Extension::Method& method : extension->methods()) {
      layer_methods_[std::string(method.name)] = {method.name, "", method.serve};
    }
  }
  std::vector<Task> held;
  {
    MutexLock lock(mutex_);
    open_ = true;
    held.swap(held_);
  }
  if (!held.empty()) core_.executor()->post_all(std::move(held));
}

void CallServer::on_control_call(const std::shared_ptr<CallerRecord>& record,
                                 std::unique_ptr<proto::Envelope> envelope) {
  core_.control_executor().post([this, record, envelope = std::move(envelope)]() mutable {
    const proto::Call& call = envelope->call();
    Future<std::string> answer;
    const ControlHandler handler = core_.find_control_method(call.method());
    const bool guest = record->caller().rank < 0;
    if (handler == nullptr) {
      answer = make_failed_future<std::string>(make_error(absl::UnimplementedError(
          absl::StrFormat("no control method '%s'", printable(call.method(), 128)))));
    } else if (guest && call.method() != kJoinMethod && call.method() != kListMethod) {
      answer = make_failed_future<std::string>(make_error(absl::PermissionDeniedError(
          absl::StrFormat("worker '%s' has not joined: it may not call '%s'", record->caller().name,
                          call.method()))));
    } else if (call.arguments_size() != 1) {
      answer = make_failed_future<std::string>(
          make_error(absl::InvalidArgumentError("a control call has one argument")));
    } else {
      try {
        answer = handler(record->caller(), call.arguments(0).binary());
      } catch (...) {
        answer = make_failed_future<std::string>(std::current_exception());
      }
    }
    answer.on_done([record, id = call.id()](const Future<std::string>& done) {
      proto::Envelope reply;
      reply.mutable_reply()->set_id(id);
      if (const std::exception_ptr error = done.error()) {
        write_error(describe(error), *reply.mutable_reply()->mutable_error());
      } else {
        reply.mutable_reply()->mutable_value()->set_binary(done.value());
      }
      Frame frame;
      frame.envelope = reply.SerializeAsString();
      record->on_reply(id, std::move(frame), {});
    });
  });
}

void CallServer::on_beat(const std::shared_ptr<CallerRecord>& record,
                         const std::shared_ptr<Connection>& connection, std::uint64_t sequence) {
  core_.control_executor().post([this, record, connection, sequence] {
    // A pool that can never run a task again must not look alive, even though this thread is.
    if (core_.executor()->is_stalled() || core_.is_lost(record->caller())) return;
    record->on_beat(core_.clock().now());
    proto::Envelope envelope;
    envelope.mutable_beat_reply()->set_sequence(sequence);
    Frame frame;
    frame.envelope = envelope.SerializeAsString();
    connection->send(Lane::kControl, std::move(frame)).IgnoreError();
  });
}

// ---- Foreign clients.

void CallServer::on_unary_call(std::unique_ptr<UnaryCall> call) {
  auto envelope = std::make_unique<proto::Envelope>();
  Frame frame = std::move(call->request());
  if (absl::Status parsed = parse_envelope(frame.envelope, *envelope->mutable_call());
      !parsed.ok()) {
    call->fail(parsed);
    return;
  }
  if (envelope->call().disposition() != proto::RETURN || envelope->call().has_target()) {
    call->fail(absl::PermissionDeniedError(
        "only workers hold references: a client can call free functions that return a value"));
    return;
  }
  const auto left = call->time_left();
  const Clock::TimePoint now = core_.clock().now();
  Clock::TimePoint deadline = deadline_of(now, envelope->call().timeout_us());
  if (left != std::chrono::nanoseconds::max()) deadline = std::min(deadline, now + left);
  auto request = std::make_unique<Invocation::Request>(core_, WorkerInfo(), deadline,
                                                       std::move(envelope), std::move(frame));
  auto sink = std::make_shared<UnarySink>(std::move(call));
  auto invocation = std::make_shared<Invocation>(core_, std::move(request), sink);
  sink->call().notify_on_cancel([weak = std::weak_ptr<Invocation>(invocation)] {
    if (auto running = weak.lock()) running->cancel();
  });
  std::vector<Task> tasks;
  tasks.push_back([invocation = std::move(invocation)] { invocation->start(); });
  post_or_hold(std::move(tasks));
}

// ---- Ends.

void CallServer::see_guests_off(std::chrono::nanoseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  MutexLock lock(guests_->mutex);
  while (guests_->present > 0 && std::chrono::steady_clock::now() < end) {
    guests_->changed.wait_until(guests_->mutex, end);
  }
}

Clock::TimePoint CallServer::fence(const WorkerInfo& caller, const absl::Status& reason) {
  std::shared_ptr<CallerRecord> record;
  {
    MutexLock lock(mutex_);
    const auto found = callers_.find(caller.incarnation);
    if (found == callers_.end()) return core_.clock().now();
    record = std::move(found->second);
    callers_.erase(found);
  }
  record->close(reason);
  return record->last_beat() + core_.options().lease;
}

std::vector<WorkerInfo> CallServer::expired_callers() const {
  const Clock::TimePoint now = core_.clock().now();
  std::vector<WorkerInfo> expired;
  MutexLock lock(mutex_);
  for (const auto& [incarnation, record] : callers_) {
    if (record->last_beat() + core_.options().lease < now) expired.push_back(record->caller());
  }
  return expired;
}

void CallServer::close(const absl::Status& reason) {
  std::vector<std::shared_ptr<CallerRecord>> records;
  std::vector<Task> held;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    held.swap(held_);
    for (auto& [incarnation, record] : callers_) records.push_back(record);
  }
  for (const auto& record : records) record->close(reason);
}

}  // namespace sinew::internal
