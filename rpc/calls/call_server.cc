#include "sinew/rpc/calls/call_server.h"

#include <algorithm>
#include <string>
#include <utility>

#include "sinew/rpc.pb.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/calls/envelope.h"
#include "sinew/rpc/calls/invocation.h"
#include "sinew/rpc/calls/serve.h"
#include "sinew/rpc/calls/worker_services.h"
#include "sinew/rpc/link/link_lanes.h"
#include "sinew/rpc/membership/control_plane.h"

namespace sinew::internal {
namespace {

constexpr std::size_t kMaxHeldCalls = 65536;

Clock::TimePoint deadline_of(Clock::TimePoint now, std::uint64_t timeout_us) {
  // A hostile or huge limit must not wrap around.
  constexpr std::uint64_t kYear = std::uint64_t{365} * 24 * 3600 * 1000000;
  if (timeout_us == 0 || timeout_us > kYear) return Clock::TimePoint::max();
  return now + std::chrono::microseconds(timeout_us);
}

/// The reply of a foreign client's call goes straight back.
class UnarySink final : public ReplySink {
 public:
  explicit UnarySink(std::unique_ptr<UnaryCall> call) : call_(std::move(call)) {}
  // How many there are, and how much they hold, the transport bounds.
  bool may_start(const std::shared_ptr<Invocation>&) override { return true; }
  void on_reply(std::uint64_t, Frame reply, std::vector<OnCarrierEnd> on_end) override {
    call_->reply(std::move(reply));
    for (OnCarrierEnd& end : on_end) std::move(end)(CarrierEnd::kAnswered);
  }
  bool wants_envelope() const override { return false; }
  AuthenticatedPeer remote() const override { return call_->remote(); }
  UnaryCall& call() { return *call_; }

 private:
  const std::unique_ptr<UnaryCall> call_;
};

void serve_fetch(const std::shared_ptr<Invocation>& call) {
  call->check_argument_count(0);
  call->finish_with_target();
}

}  // namespace

CallServer::CallServer(WorkerServices& services)
    : services_(services), fetch_{kFetchMethod, "", &serve_fetch} {
  const MethodTable& methods = services_.options().methods;
  for (const std::string& name : methods.names()) {
    const MethodTable::Entry& method = *methods.find(name);
    if (!method.rules.has_limits()) continue;
    loads_[&method] =
        std::make_shared<MethodLoad>(method.rules.max_calls(), method.rules.max_bytes());
  }
}

CallServer::~CallServer() = default;

const MethodTable::Entry* CallServer::find_method(std::string_view name) const {
  if (name == kFetchMethod) return &fetch_;
  const auto found = layer_methods_.find(absl::string_view(name.data(), name.size()));
  if (found != layer_methods_.end()) return &found->second;
  return services_.options().methods.find(name);
}

std::shared_ptr<MethodLoad> CallServer::find_load(const MethodTable::Entry& method) const {
  const auto found = loads_.find(&method);
  return found == loads_.end() ? nullptr : found->second;
}

std::int64_t CallServer::limited_calls() const {
  std::int64_t calls = 0;
  for (const auto& [method, load] : loads_) calls += load->calls();
  return calls;
}

bool CallServer::is_for_guests(std::string_view method) {
  // Each of them looks itself at who asks.
  return method == kJoinMethod || method == kListMethod || method == kUpdateMethod ||
         method == kInviteMethod;
}

// ---- Calls.

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
    tasks.push_back([begun = std::move(call)] { begun->start(); });
  }
  if (!tasks.empty()) services_.executor()->post_all(std::move(tasks));
}

void CallServer::open() {
  for (const auto& extension : services_.extensions()) {
    for (const Extension::Method& method : extension->methods()) {
      layer_methods_[std::string(method.name)] = {method.name, "", method.serve};
    }
  }
  std::vector<std::shared_ptr<Invocation>> held;
  {
    MutexLock lock(mutex_);
    open_ = true;
    held.swap(held_);
  }
  post(std::move(held));
}

// ---- Foreign clients.

void CallServer::on_unary_call(std::unique_ptr<UnaryCall> call) {
  ReceivedEnvelope envelope = ReceivedEnvelope::make();
  Frame frame = std::move(call->request());
  const std::uint64_t size_bytes = LinkLanes::room_of(frame.size_bytes(), frame.payloads.size());
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
  const Clock::TimePoint now = services_.clock().now();
  Clock::TimePoint deadline = deadline_of(now, envelope->call().timeout_us());
  if (left != std::chrono::nanoseconds::max()) deadline = std::min(deadline, now + left);
  ArrivedCall arrived;
  arrived.deadline = deadline;
  arrived.envelope = std::move(envelope);
  arrived.size_bytes = size_bytes;
  arrived.payloads = std::move(frame.payloads);
  auto sink = std::make_shared<UnarySink>(std::move(call));
  auto invocation = std::make_shared<Invocation>(services_, std::move(arrived), sink);
  sink->call().notify_on_cancel([weak = std::weak_ptr<Invocation>(invocation)] {
    if (auto running = weak.lock()) running->cancel();
  });
  start({std::move(invocation)});
}

// ---- Ends.

void CallServer::close() {
  std::vector<std::shared_ptr<Invocation>> held;
  MutexLock lock(mutex_);
  closed_ = true;
  held.swap(held_);
}

}  // namespace sinew::internal
