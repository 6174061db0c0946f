#include "sinew/rpc/calls/invocation.h"

#include <optional>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/flight_recorder.h"
#include "sinew/rpc/base/trace.h"
#include "sinew/rpc/calls/call_server.h"
#include "sinew/rpc/calls/envelope.h"
#include "sinew/rpc/calls/error_codec.h"
#include "sinew/rpc/calls/invocation_request.h"
#include "sinew/rpc/calls/message_layers.h"
#include "sinew/rpc/calls/method_stats.h"
#include "sinew/rpc/calls/serve.h"
#include "sinew/rpc/calls/served_error.h"
#include "sinew/rpc/calls/type_text.h"
#include "sinew/rpc/calls/worker_services.h"
#include "sinew/rpc/transport/transport.h"
#include "sinew/rpc/worker.h"

namespace sinew::internal {
namespace {

RpcError did_not_run(ErrorCode code, std::string message) {
  ErrorInfo info;
  info.code = code;
  info.message = std::move(message);
  info.execution = Execution::kDidNotRun;
  info.origin = ErrorOrigin::kCallee;
  return RpcError(std::move(info));
}

}  // namespace

const absl::Status& ArrivedCall::read() {
  if (envelope.is_made()) return read_status;
  envelope = ReceivedEnvelope::make();
  read_status = parse_envelope(bytes, *envelope);
  if (read_status.ok() && (!envelope->has_call() || envelope->call().id() != id)) {
    read_status = absl::InvalidArgumentError("a request that is no call");
  }
  if (!read_status.ok()) envelope = ReceivedEnvelope::make();
  // They may be many, and what is read is kept until the call has ended.
  std::string().swap(bytes);
  return read_status;
}

Invocation::Invocation(WorkerServices& services, ArrivedCall call, std::shared_ptr<ReplySink> sink)
    : CallContext(call.caller, call.deadline),
      services_(services),
      weak_services_(services.weak_services()),
      id_(call.id),
      arrived_at_(call.arrived),
      sink_(std::move(sink)),
      arrived_(std::move(call)) {
  services_.server().call_began();
}

Invocation::~Invocation() {
  if (const std::shared_ptr<WorkerServices> services = weak_services_.lock())
    services->server().call_ended();
}

Worker Invocation::worker() const { return services_.handle(); }

const std::string& Invocation::method() const { return request_->call().method(); }

std::vector<std::string> Invocation::chain() const {
  const proto::Call& call = request_->call();
  std::vector<std::string> chain;
  for (const std::string& method : call.chain()) {
    if (chain.size() == kMaxChain) break;
    chain.push_back(printable(method, 512));
  }
  chain.push_back(printable(call.method(), 512));
  return chain;
}

std::vector<std::string> Invocation::identities() const {
  return services_.server().identities_of(sink_->remote());
}

// ---- From the first step to the method.

void Invocation::start() {
  if (!leave_queue() || !sink_->may_start(shared_from_this())) return;
  serve();
}

// As if it had started too late: what layers keep for it ends in the same way.
void Invocation::refuse_queued(std::chrono::nanoseconds waited) {
  if (!leave_queue()) return;
  if (waits_for_turn()) {
    return fail(
        std::make_exception_ptr(did_not_run(ErrorCode::kDeadlineExceeded, explain_turn(waited))));
  }
  refused_ = services_.server().explain_queued(waited);
  queue_room_ = std::move(arrived_.room);
  serve();
  std::unique_ptr<Request> dropped;  // Which may run what waits for its end: after the lock.
  MutexLock lock(services_.server().reports());
  reported_.store(nullptr, std::memory_order_relaxed);
  dropped = std::move(request_);
}

void Invocation::serve() {
  if (Trace::of_process() != nullptr) begun_at_ = services_.clock().now();
  if (const absl::Status read = make_request(); !read.ok()) {
    return fail(std::make_exception_ptr(did_not_run(read.code(), std::string(read.message()))));
  }
  try {
    receive_layers(request_->route, Extension::MessageKind::kCall, request_->call().attachments(),
                   request_->arguments);
  } catch (...) {
    layers_failed_ = std::current_exception();
  }
  guard([this] { begin(); });
}

absl::Status Invocation::make_request() {
  absl::Status read = arrived_.read();
  request_ = std::make_unique<Request>(services_, std::move(arrived_));
  reported_.store(request_.get(), std::memory_order_release);
  request_->results.set_describe([this] {
    return absl::StrFormat("the result of method '%s' for worker '%s'", printable(method(), 512),
                           printable(caller_.name, 512));
  });
  return read;
}

void Invocation::begin() {
  const proto::Call& call = request_->call();
  // First: whatever it is refused for becomes the reference's error, which those who use it
  // already wait for.
  if (retains()) {
    if (services_.references() == nullptr) {
      throw did_not_run(
          ErrorCode::kUnimplemented,
          absl::StrFormat("worker '%s' keeps no references: its program does not include "
                          "sinew/rref/rref.h",
                          services_.self().name));
    }
    const absl::Status begun = services_.references()->begin_retain(call, caller_);
    if (!begun.ok()) throw did_not_run(begun.code(), std::string(begun.message()));
    retain_begun_ = true;
  }
  if (layers_failed_ != nullptr) std::rethrow_exception(layers_failed_);
  throw_if_given_up();
  request_->method = services_.server().find_method(call.method());
  if (request_->method == nullptr) {
    throw did_not_run(ErrorCode::kUnimplemented, explain_no_method());
  }
  check_allowed();
  take_share();
  const std::string& signature = request_->method->signature;
  if (!call.signature().empty() && !signature.empty() && call.signature() != signature) {
    throw did_not_run(ErrorCode::kInvalidArgument,
                      absl::StrFormat("method '%s' is %s at worker '%s', but the caller was "
                                      "built with %s: build both from the same "
                                      "declaration",
                                      call.method(), signature, services_.self().name,
                                      printable(call.signature(), 1024)));
  }
  const bool has_object = call.has_target() || !call.object().empty();
  const bool has_turn = has_object && request_->method->rules.turns() != OneAtATime::kNo;
  if (!has_turn) request_->ticket.pass();
  if (has_object) {
    resolve_target_and_run();
  } else {
    run_method();
  }
}

void Invocation::check_allowed() const {
  const MethodRules& rules = request_->method->rules;
  if (rules.allows_everyone()) return;
  const absl::Status allowed =
      services_.server().check_caller(rules, method(), caller_.name, sink_->remote());
  if (!allowed.ok())
    throw did_not_run(ErrorCode::kPermissionDenied, std::string(allowed.message()));
}

void Invocation::take_share() {
  if (!request_->method->rules.has_limits()) return;
  const std::shared_ptr<MethodLoad> load = services_.server().find_load(*request_->method);
  absl::StatusOr<MethodLoad::Share> share =
      load->admit(static_cast<std::int64_t>(request_->size_bytes));
  if (share.ok()) {
    request_->share = *std::move(share);
    return;
  }
  services_.server().refused().over_limit.fetch_add(1, std::memory_order_relaxed);
  throw did_not_run(share.status().code(),
                    absl::StrFormat("method '%s' of worker '%s' has no room: %s", method(),
                                    services_.self().name, share.status().message()));
}

// A mistyped name, or one of another version: says what is served under the most similar one.
std::string Invocation::explain_no_method() const {
  const proto::Call& call = request_->call();
  const std::string& worker = services_.self().name;
  const std::string called = printable(call.method(), 512);
  if (absl::StartsWith(call.method(), "sinew.")) {
    return absl::StrFormat(
        "worker '%s' has no layer that serves '%s': its program includes none of that layer's "
        "headers",
        worker, called);
  }
  const MethodTable::Entry* nearest = services_.server().nearest_method(*this);
  if (nearest == nullptr) {
    return absl::StrFormat(
        "worker '%s' serves no method '%s': code does not travel, so add it to the MethodTable of "
        "that worker",
        worker, called);
  }
  // Clients of other languages are built with none.
  const std::string built_with = call.signature().empty()
                                     ? ""
                                     : absl::StrCat(", which the caller was built with as ",
                                                    printable(call.signature(), 1024));
  return absl::StrFormat(
      "worker '%s' serves no method '%s'%s; the most similar that it serves is '%s', %s: code does "
      "not travel, so call that, or add the other one to the MethodTable of that worker",
      worker, called, built_with, nearest->name, nearest->signature);
}

void Invocation::throw_if_given_up() const {
  if (!refused_.empty()) throw did_not_run(ErrorCode::kDeadlineExceeded, refused_);
  if (deadline() <= services_.clock().now()) {
    throw did_not_run(
        ErrorCode::kDeadlineExceeded,
        absl::StrFormat("the time of the call had passed before worker '%s' could start it",
                        services_.self().name));
  }
  if (cancellation_.is_cancelled()) {
    throw did_not_run(ErrorCode::kCancelled, "the call was cancelled before it started");
  }
}

void Invocation::resolve_target_and_run() {
  if (services_.references() == nullptr) {
    throw did_not_run(
        ErrorCode::kUnimplemented,
        absl::StrFormat("worker '%s' keeps no references: its program does not include "
                        "sinew/rref/rref.h",
                        services_.self().name));
  }
  if (request_->method->rules.turns() != OneAtATime::kNo) return line_up();
  const Future<AnyValue> target = resolve_target();
  if (target.done()) {
    request_->target = target.wait();
    run_method();
    return;
  }
  target.on_done([self = shared_from_this()](const Future<AnyValue>& resolved) {
    self->guard_late([&] {
      self->request_->target = resolved.value();
      self->throw_if_given_up();
      self->run_method();
    });
  });
}

Future<AnyValue> Invocation::resolve_target() {
  const proto::Call& call = request_->call();
  References& references = *services_.references();
  return call.object().empty() ? references.resolve(call.target(), caller_, deadline())
                               : references.published(call.object(), deadline());
}

void Invocation::run_method() {
  FlightRecorder::of_process().add_call("call begun", method(), id_);
  request_->method->serve(shared_from_this());
}

void Invocation::guard(absl::FunctionRef<void()> run) {
  const ThreadContext::Scope scope(shared_from_this());
  std::optional<c10::AutoGradMode> grad_mode;
  if (request_->route.grad_mode().has_value()) grad_mode.emplace(*request_->route.grad_mode());
  try {
    run();
  } catch (...) {
    fail(std::current_exception());
  }
}

void Invocation::guard_late(absl::FunctionRef<void()> run) {
  if (const std::shared_ptr<WorkerServices> services = weak_services_.lock()) guard(run);
}

// What the arguments wait for. Without anything, the room of the request is free from here on.
std::vector<Future<void>> Invocation::take_waits() {
  // Tensors of devices are fetched with requests the other way, which may wait for this room.
  const bool waits_for_peer = route().device_part() != nullptr;
  if (waits_for_peer) route().device_part()->accept_transfers(route());
  std::vector<Future<void>> waits = request_->route.take_waits();
  if (!keeps_room_ && (waits.empty() || waits_for_peer)) request_->room.give_back();
  return waits;
}

void Invocation::enter_later(std::vector<Future<void>> waits, Task run) {
  // shared_ptr: on_done's callbacks must be copyable.
  auto shared_run = std::make_shared<Task>(std::move(run));
  collect_all(std::move(waits))
      .on_done([self = shared_from_this(), shared_run](const Future<void>& ready) {
        self->guard_late([&] {
          if (!self->keeps_room_) self->request_->room.give_back();
          ready.value();
          self->enter();
          std::move (*shared_run)();
        });
      });
}

void Invocation::abort(const absl::Status& status) {
  cancellation_.cancel();
  make_request().IgnoreError();
  fail(make_error(status));
}

// ---- For typed code.

void Invocation::check_argument_count(std::size_t count) {
  const auto given = static_cast<std::size_t>(request_->call().arguments_size());
  if (given == count) return;
  throw did_not_run(
      ErrorCode::kInvalidArgument,
      absl::StrFormat("method '%s' takes %d arguments, the call has %d: its signature is %s",
                      method(), count, given, request_->method->signature));
}

std::size_t Invocation::argument_count() const {
  return static_cast<std::size_t>(request_->call().arguments_size());
}

ValueReader Invocation::argument(std::size_t index) {
  return ValueReader(request_->call().arguments(static_cast<int>(index)), request_->arguments,
                     ValuePath{nullptr, "argument", index + 1});
}

void* Invocation::target(const std::type_info& type) const {
  const AnyValue& target = request_->target;
  if (target.empty()) {
    throw did_not_run(
        ErrorCode::kInvalidArgument,
        absl::StrFormat(
            "method '%s' is a member function: the call must name its object, as a reference, or "
            "as a client by the name under which it is published",
            method()));
  }
  if (*target.type != type) {
    throw did_not_run(ErrorCode::kInvalidArgument,
                      absl::StrFormat("method '%s' belongs to %s, but the reference is to %s",
                                      method(), type_text(type), type_text(*target.type)));
  }
  return target.pointer.get();
}

void Invocation::finish_with_target() {
  const AnyValue& target = request_->target;
  if (target.empty()) this->target(typeid(void));  // Throws.
  if (target.encode == nullptr) fail_not_a_wire_type(*target.type);
  ValueWriter writer = result();
  target.encode(writer, target.pointer.get());
  finish();
}

bool Invocation::retains() const { return request_->call().disposition() == proto::RETAIN; }

const std::shared_ptr<void>& Invocation::ambient() const { return request_->route.ambient(); }

MessageRoute& Invocation::route() { return request_->route; }

bool Invocation::can_return(c10::Device device) const {
  const MessageRoute::DevicePart* devices = request_->route.device_part();
  return device.is_cpu() || (devices != nullptr && devices->can_return(device));
}

ValueWriter Invocation::result() {
  begin_message(request_->reply_route, ambient(), request_->results);
  return ValueWriter(*request_->reply->mutable_reply()->mutable_value(), request_->results);
}

// ---- Replies.

// The share and the turn go before the reply does: who makes one call after another is never over a
// limit, nor waits for itself.
bool Invocation::claim_reply() {
  if (replied_.exchange(true, std::memory_order_acq_rel)) return false;
  request_->share.give_back();
  if (request_->turn != nullptr) end_turn();
  return true;
}

void Invocation::finish() {
  const std::shared_ptr<WorkerServices> services = weak_services_.lock();
  if (services == nullptr || !claim_reply()) return;
  send_claimed([this] {
    proto::Reply& reply = *request_->reply->mutable_reply();
    if (reply.outcome_case() == proto::Reply::OUTCOME_NOT_SET) reply.mutable_value();
    attach_layers(request_->reply_route, *reply.mutable_attachments());
    const MessageRoute::DevicePart* devices = request_->reply_route.device_part();
    reply.set_carries_references(request_->reply_route.has_references() ||
                                 (devices != nullptr && devices->has_transfers()));
  });
}

void Invocation::finish_retained(AnyValue value) {
  const std::shared_ptr<WorkerServices> services = weak_services_.lock();
  if (services == nullptr) return;
  if (replied_.load(std::memory_order_acquire)) {
    // Aborted meanwhile: the caller was told that it failed.
    services_.references()->fail_retain(request_->call().retain(),
                                        make_error(absl::CancelledError("the call was given up")));
    return;
  }
  services_.references()->retain(request_->call().retain(), std::move(value));
  // It is kept from here on, whatever becomes of the answer.
  retain_begun_ = false;
  if (!claim_reply()) return;
  send_claimed([this] { request_->reply->mutable_reply()->mutable_retained(); });
}

void Invocation::fail(std::exception_ptr error) {
  const std::shared_ptr<WorkerServices> services = weak_services_.lock();
  if (services == nullptr || !claim_reply()) return;
  const bool was_entered = entered_.load(std::memory_order_relaxed);
  ErrorInfo info =
      describe_served(error, was_entered ? ServedStage::kMethod : ServedStage::kBeforeMethod);
  // Not for a call that was refused: its ids may belong to another call.
  if (retain_begun_) {
    // A handler of this worker that uses the reference passes on that this call failed.
    ErrorInfo creation = info;
    creation.peer = services_.self().name;
    creation.method = method();
    services_.references()->fail_retain(request_->call().retain(), make_error(std::move(creation)));
  }
  drop_result();
  const bool is_foreign = !sink_->wants_envelope();
  // It has failed because its worker ends, most likely, and another one is to see that, as it does
  // when the link is closed now, rather than a fault of the method.
  if (was_entered && !is_foreign && !services->is_running()) return;
  if (is_foreign && !absl::StrContains(info.message, method())) {
    info.message = absl::StrCat("method '", method(), "': ", info.message);
  }
  send_error(info);
}

// Memory may be short, or a layer fail: then that is the answer.
void Invocation::send_claimed(absl::FunctionRef<void()> fill) {
  try {
    fill();
    send_reply();
  } catch (...) {
    replied_.store(false, std::memory_order_release);
    throw;
  }
}

void Invocation::count(Outcome outcome) const {
  const bool is_error = outcome == Outcome::kError;
  FlightRecorder::of_process().add_call(is_error ? "call failed here" : "call answered", method(),
                                        id_);
  if (request_->method == nullptr) return;
  const Clock::TimePoint now = services_.clock().now();
  write_trace(now);
  MethodStats* const stats = services_.server().find_stats(*request_->method);
  if (stats == nullptr) return;
  stats->add(now - arrived_at_, request_->size_bytes, is_error);
}

void Invocation::write_trace(Clock::TimePoint now) const {
  Trace* const trace = Trace::of_process();
  const Trace::CallId call{caller_.incarnation.value, services_.self().incarnation.value, id_};
  if (trace == nullptr || !trace->has(call)) return;
  trace->part(call, "waits for a thread", arrived_at_, begun_at_);
  trace->part(call, absl::StrCat("runs ", printable(method(), 512)), begun_at_, now);
}

void Invocation::send_reply() {
  proto::Reply& reply = *request_->reply->mutable_reply();
  reply.set_id(call_id());
  Frame frame;
  const google::protobuf::Message& sent =
      sink_->wants_envelope() ? static_cast<const google::protobuf::Message&>(*request_->reply)
                              : reply;
  frame.envelope = sent.SerializeAsString();
  request_->reply.note_serialised();
  if (const absl::Status fits = check_envelope_size(frame.envelope, sent); !fits.ok()) {
    return send_instead(fits);
  }
  frame.payloads = std::move(request_->results.payloads());
  count(Outcome::kResult);
  request_->room.give_back();
  sink_->on_reply(call_id(), std::move(frame), request_->reply_route.take_on_end());
}

// A result that could not be written to the end must not travel half.
void Invocation::drop_result() {
  request_->reply->Clear();
  request_->results.payloads().clear();
  for (OnCarrierEnd& end : request_->reply_route.take_on_end()) {
    std::move(end)(CarrierEnd::kNotSent);
  }
}

void Invocation::send_instead(const absl::Status& too_large) {
  drop_result();
  ErrorInfo info;
  info.code = too_large.code();
  info.execution = Execution::kMayHaveRun;
  info.origin = ErrorOrigin::kCallee;
  info.message =
      absl::StrCat("the result of method '", method(), "' cannot be sent: ", too_large.message());
  send_error(info);
}

void Invocation::send_error(const ErrorInfo& info) {
  proto::Error error;
  write_error(info, error);
  count(Outcome::kError);
  request_->room.give_back();
  sink_->on_error(call_id(), error);
}

void Invocation::fail_not_a_wire_type(const std::type_info& type) const {
  ErrorInfo info;
  info.code = ErrorCode::kInvalidArgument;
  info.origin = ErrorOrigin::kCallee;
  info.message = absl::StrFormat(
      "the result of method '%s' is a %s, which cannot travel: call it with remote(), list "
      "its fields with SINEW_STRUCT, or specialise sinew::Codec for the type",
      method(), type_text(type));
  throw RpcError(std::move(info));
}

void deliver_nothing(Invocation& call) {
  if (call.retains()) {
    call.finish_retained(AnyValue::of(std::make_shared<std::monostate>()));
  } else {
    call.finish();
  }
}

}  // namespace sinew::internal
