#include "sinew/rpc/calls/call_server.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "sinew/rpc.pb.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/nearest_text.h"
#include "sinew/rpc/calls/envelope.h"
#include "sinew/rpc/calls/invocation.h"
#include "sinew/rpc/calls/method_stats.h"
#include "sinew/rpc/calls/operator_methods.h"
#include "sinew/rpc/calls/queue_limits.h"
#include "sinew/rpc/calls/serve.h"
#include "sinew/rpc/calls/state_report.h"
#include "sinew/rpc/calls/unary_sink.h"
#include "sinew/rpc/calls/worker_services.h"
#include "sinew/rpc/link/link_lanes.h"
#include "sinew/rpc/wire/codec_maps.h"

namespace sinew::internal {
namespace {

constexpr std::size_t kMaxHeldCalls = 65536;

Clock::TimePoint deadline_of(Clock::TimePoint now, std::uint64_t timeout_us) {
  // A hostile or huge limit must not wrap around.
  constexpr std::uint64_t kYear = std::uint64_t{365} * 24 * 3600 * 1000000;
  if (timeout_us == 0 || timeout_us > kYear) return Clock::TimePoint::max();
  return now + std::chrono::microseconds(timeout_us);
}

void serve_list(const std::shared_ptr<Invocation>& call) {
  call->check_argument_count(0);
  const WorkerOptions& options = call->services().options();
  if (!options.list_methods) {
    throw RpcError(ErrorCode::kPermissionDenied,
                   absl::StrFormat("worker '%s' does not list its methods: set "
                                   "WorkerOptions::list_methods there",
                                   options.name));
  }
  const std::vector<std::string> identities = call->identities();
  std::map<std::string, std::string> signatures;
  for (const std::string& name : options.methods.names()) {
    const MethodTable::Entry& method = *options.methods.find(name);
    if (!method.rules.allows(call->caller().name, identities)) continue;
    signatures[name] = method.signature;
  }
  deliver(*call, std::move(signatures));
}

void serve_fetch_value(const std::shared_ptr<Invocation>& call) {
  call->check_argument_count(0);
  call->finish_with_target();
}

}  // namespace

CallServer::CallServer(WorkerServices& services, WrapReplySink wrap_sink)
    : services_(services),
      wrap_sink_(std::move(wrap_sink)),
      refusals_([&services](const std::string& text) { services.log(text); }) {
  const MethodTable& methods = services_.options().methods;
  for (const std::string& name : methods.names()) {
    const MethodTable::Entry& method = *methods.find(name);
    has_turns_ = has_turns_ || method.rules.turns() != OneAtATime::kNo;
    stats_[&method] = std::make_unique<MethodStats>();
    if (!method.rules.has_limits()) continue;
    loads_[&method] =
        std::make_shared<MethodLoad>(method.rules.max_calls(), method.rules.max_bytes());
  }
}

CallServer::~CallServer() = default;

const MethodTable::Entry* CallServer::find_method(std::string_view name) const {
  const auto found = layer_methods_.find(absl::string_view(name.data(), name.size()));
  if (found != layer_methods_.end()) return &found->second;
  return services_.options().methods.find(name);
}

std::shared_ptr<MethodLoad> CallServer::find_load(const MethodTable::Entry& method) const {
  const auto found = loads_.find(&method);
  return found == loads_.end() ? nullptr : found->second;
}

MethodStats* CallServer::find_stats(const MethodTable::Entry& method) const {
  const auto found = stats_.find(&method);
  return found == stats_.end() ? nullptr : found->second.get();
}

std::int64_t CallServer::limited_calls() const {
  std::int64_t calls = 0;
  for (const auto& [method, load] : loads_) calls += load->calls();
  return calls;
}

const MethodTable::Entry* CallServer::nearest_method(const CallContext& call) const {
  const MethodTable& methods = services_.options().methods;
  const std::vector<std::string> identities = call.identities();
  std::vector<std::string> allowed;
  for (std::string& name : methods.names()) {
    if (methods.find(name)->rules.allows(call.caller().name, identities)) {
      allowed.push_back(std::move(name));
    }
  }
  const std::optional<std::string> nearest = nearest_text(call.method(), allowed);
  return nearest.has_value() ? methods.find(*nearest) : nullptr;
}

bool CallServer::is_for_guests(std::string_view method) { return method == kHeardMethod; }

// ---- Calls.

std::shared_ptr<ReplySink> CallServer::sink_for(ArrivedCall& call,
                                                std::shared_ptr<ReplySink> sink) {
  if (!wrap_sink_) return sink;
  call.read().IgnoreError();  // Which it is answered with when it starts.
  return wrap_sink_(services_, call, std::move(sink));
}

void CallServer::start(std::vector<std::shared_ptr<Invocation>> calls) {
  std::vector<std::shared_ptr<Invocation>> refused;
  {
    MutexLock lock(mutex_);
    if (closed_) return;
    if (!open_) {
      // Bounded: a worker that never finishes joining must not be filled up.
      for (auto& call : calls) {
        (held_.size() < kMaxHeldCalls ? held_ : refused).push_back(std::move(call));
      }
      calls.clear();
    }
  }
  for (const auto& call : refused) {
    call->abort(absl::ResourceExhaustedError(
        absl::StrFormat("worker '%s' is joining its job, and %d calls wait for that",
                        services_.self().name, kMaxHeldCalls)));
  }
  post(std::move(calls));
}

void CallServer::post(std::vector<std::shared_ptr<Invocation>> calls) {
  std::vector<Task> tasks;
  tasks.reserve(calls.size());
  for (auto& call : calls) {
    call->enter_queue();
    tasks.push_back([begun = std::move(call)] { begun->start(); });
  }
  if (!tasks.empty()) services_.executor()->post_all(std::move(tasks));
}

absl::Status CallServer::open(std::vector<std::string> names) {
  const MethodTable& methods = services_.options().methods;
  const auto add = [&](MethodTable::Entry entry) {
    const MethodRules* const rules = methods.restriction(entry.name);
    if (rules != nullptr) entry.rules = *rules;
    names.emplace_back(entry.name);
    layer_methods_[names.back()] = std::move(entry);
  };
  add({kFetchMethod, "", &serve_fetch_value});
  add({kListMethodsMethod, "()->map<text,text>", &serve_list});
  add({kOperatorStateMethod, "", &serve_operator_state});
  add({kOperatorCancelMethod, "", &serve_operator_cancel});
  add({kOperatorStopMethod, "", &serve_operator_stop});
  add({kOperatorEventsMethod, "", &serve_operator_events});
  for (const auto& extension : services_.extensions()) {
    for (const Extension::Method& method : extension->methods()) {
      add({method.name, "", method.serve});
    }
  }
  if (absl::Status fit = methods.check_restrictions(names); !fit.ok()) return fit;
  std::vector<std::shared_ptr<Invocation>> held;
  {
    MutexLock lock(mutex_);
    open_ = true;
    held.swap(held_);
  }
  post(std::move(held));
  return absl::OkStatus();
}

// ---- Who may call.

// With one-way TLS it would depend on which end has opened the connection.
std::vector<std::string> CallServer::identities_of(AuthenticatedPeer remote) const {
  const Credentials& credentials = services_.options().credentials;
  if (credentials.uses_tls() && !credentials.proves_callers()) return {};
  return remote.authenticated ? std::move(remote.names) : std::vector<std::string>();
}

// The text tells neither the patterns nor anything that the caller does not know.
absl::Status CallServer::check_caller(const MethodRules& rules, std::string_view method,
                                      const std::string& caller, const AuthenticatedPeer& remote) {
  const std::vector<std::string> proved = identities_of(remote);
  if (rules.allows(caller, proved)) return absl::OkStatus();
  refused_.not_allowed.fetch_add(1, std::memory_order_relaxed);
  const std::string certificate =
      proved.empty() ? "without a certificate that proves a name"
                     : absl::StrFormat("with a certificate for %s",
                                       printable(absl::StrJoin(proved, ", "), 512));
  const std::string who = caller.empty() ? absl::StrCat("a client ", certificate)
                                         : absl::StrFormat("worker '%s', %s,", caller, certificate);
  const std::string text = absl::StrFormat("%s may not call method '%s'", who, method);
  refusals_.add(absl::StrCat(text, ": it came from ", remote.address));
  return absl::PermissionDeniedError(absl::StrFormat(
      "%s of worker '%s': no pattern of its rules covers the caller", text, services_.self().name));
}

// ---- Calls that wait for a thread.

std::string CallServer::explain_queued(std::chrono::nanoseconds waited) {
  const Executor::Stats pool = services_.executor()->stats();
  return absl::StrFormat(
      "worker '%s' did not begin the call within %.3g s: it was queued behind %d handlers that "
      "run, "
      "of %d that may at once (WorkerOptions::num_threads there)",
      services_.self().name, std::chrono::duration<double>(waited).count(), pool.running_threads,
      pool.num_threads);
}

void CallServer::note_queued(std::chrono::nanoseconds waited) {
  if (waited < QueueLimits::kLongWait) return;
  {
    MutexLock lock(mutex_);
    const Clock::TimePoint now = services_.clock().now();
    if (queue_told_.has_value() && now < *queue_told_ + QueueLimits::kPause) return;
    queue_told_ = now;
  }
  const Executor::Stats pool = services_.executor()->stats();
  services_.log(absl::StrFormat(
      "calls wait for a thread, one for %.3g s by now: %d handlers run, of %d that may at once "
      "(WorkerOptions::num_threads); tasks in the queue: %d",
      std::chrono::duration<double>(waited).count(), pool.running_threads, pool.num_threads,
      pool.queued_tasks));
}

// ---- Foreign clients.

void CallServer::on_unary_call(std::unique_ptr<UnaryCall> call) {
  ReceivedEnvelope envelope = ReceivedEnvelope::make();
  Frame frame = std::move(call->request());
  const std::uint64_t size_bytes = LinkLanes::room_of(frame.size_bytes(), frame.payloads.size());
  if (absl::Status parsed = parse_envelope(frame.envelope, *envelope->mutable_call());
      !parsed.ok()) {
    refuse(*call, parsed);
    return;
  }
  if (envelope->call().disposition() != proto::RETURN || envelope->call().has_target()) {
    refuse(*call, absl::PermissionDeniedError("only workers hold references: a client can call "
                                              "functions, and methods of published objects "
                                              "(Call.object), that return a value"));
    return;
  }
  if (!envelope->call().object().empty() && absl::StartsWith(envelope->call().method(), "sinew.")) {
    // No rule of the program says who may fetch an object, for example.
    refuse(*call, absl::PermissionDeniedError("a client can call the program's own methods of a "
                                              "published object, and none of Sinew's"));
    return;
  }
  const Clock::TimePoint now = services_.clock().now();
  const Clock::TimePoint own = deadline_of(now, envelope->call().timeout_us());
  const auto left = call->time_left();
  const Clock::TimePoint by_transport =
      left == std::chrono::nanoseconds::max() ? Clock::TimePoint::max() : now + left;
  std::string method = printable(envelope->call().method(), 512);
  ArrivedCall arrived;
  arrived.id = envelope->call().id();
  arrived.arrived = now;
  arrived.deadline = std::min(own, by_transport);
  arrived.envelope = std::move(envelope);
  arrived.size_bytes = size_bytes;
  arrived.payloads = std::move(frame.payloads);
  auto sink = std::make_shared<UnarySink>(services_, std::move(call));
  std::shared_ptr<ReplySink> answered_by = sink_for(arrived, sink);
  auto invocation =
      std::make_shared<Invocation>(services_, std::move(arrived), std::move(answered_by));
  sink->watch(invocation);
  sink->watch_queue(invocation);
  // What is earlier gRPC sees to.
  if (own < by_transport) sink->end_at(own, invocation, method);
  if (is_for_operators(method)) return serve_beside(std::move(invocation));
  remember(invocation);
  start({std::move(invocation)});
}

// Where all threads are taken, operators want to know by what.
void CallServer::serve_beside(std::shared_ptr<Invocation> call) {
  {
    MutexLock lock(mutex_);
    if (closed_ || !open_) {
      lock.unlock();
      return call->abort(absl::UnavailableError(
          absl::StrFormat("worker '%s' is joining its job, or leaves it", services_.self().name)));
    }
  }
  call->enter_queue();
  services_.control_executor().post([call = std::move(call)] { call->start(); });
}

void CallServer::remember(const std::shared_ptr<Invocation>& of_client) {
  MutexLock lock(mutex_);
  if (of_clients_.size() >= clients_looked_at_) {
    absl::erase_if(of_clients_, [](const auto& each) { return each.second.expired(); });
    clients_looked_at_ = std::max(kFewOfClients, 2 * of_clients_.size());
  }
  of_clients_[++last_of_clients_] = of_client;
}

std::vector<CallServer::OfClient> CallServer::calls_of_clients() const {
  std::vector<OfClient> calls;
  MutexLock lock(mutex_);
  for (const auto& [number, each] : of_clients_) {
    if (auto call = each.lock()) calls.push_back({number, std::move(call)});
  }
  return calls;
}

bool CallServer::cancel_call_of_client(std::uint64_t number) {
  std::shared_ptr<Invocation> call;
  {
    MutexLock lock(mutex_);
    const auto found = of_clients_.find(number);
    if (found != of_clients_.end()) call = found->second.lock();
  }
  if (call == nullptr || call->has_replied()) return false;
  call->cancel();
  return true;
}

void CallServer::report(StateReport& report) const {
  if (report.wants("served_calls")) {
    for (const auto& [number, call] : calls_of_clients()) call->report(number, report);
  }
  if (!report.wants("methods")) return;
  for (const auto& [method, stats] : stats_) {
    if (stats->calls() == 0) continue;
    proto::MethodState* const state = report.add(*report.state().mutable_methods(), "methods");
    if (state == nullptr) continue;
    state->set_name(std::string(method->name));
    state->set_calls(stats->calls());
    state->set_errors(stats->errors());
    state->set_time_us(stats->time_us());
    state->set_bytes(stats->bytes());
    for (std::size_t power = 0; power < MethodStats::kPowers; ++power) {
      state->add_by_power(stats->of_power(power));
    }
  }
}

// ---- Ends.

void CallServer::close() {
  std::vector<std::shared_ptr<Invocation>> held;
  MutexLock lock(mutex_);
  closed_ = true;
  held.swap(held_);
}

}  // namespace sinew::internal
