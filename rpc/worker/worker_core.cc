#include "sinew/rpc/worker/worker_core.h"

#include <algorithm>
#include <iostream>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sinew/rpc.pb.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/worker_name.h"
#include "sinew/rpc/base/log.h"
#include "sinew/rpc/base/receive_pool.h"
#include "sinew/rpc/call_options.h"
#include "sinew/rpc/calls/call_server.h"
#include "sinew/rpc/calls/caller_record.h"
#include "sinew/rpc/calls/session.h"
#include "sinew/rpc/device/layer/device_check.h"
#include "sinew/rpc/device/layer/device_layer.h"
#include "sinew/rpc/link/hello.h"
#include "sinew/rpc/membership/gather.h"
#include "sinew/rpc/membership/membership.h"
#include "sinew/rpc/membership/rendezvous.h"
#include "sinew/rpc/worker/make_transport.h"

namespace sinew::internal {
namespace {

// For those who asked a worker to join that does not start itself.
constexpr auto kGuestsTime = std::chrono::seconds(2);
// Longer than leaving takes.
constexpr auto kFarewell = std::chrono::seconds(5);

std::size_t default_threads() {
  return std::max<std::size_t>(4, std::thread::hardware_concurrency());
}

void check_positive(std::chrono::nanoseconds value, const char* option) {
  if (value > std::chrono::nanoseconds(0)) return;
  throw RpcError(
      ErrorCode::kInvalidArgument,
      absl::StrFormat("WorkerOptions::%s must be positive, it is %d ns", option, value.count()));
}

void check_options(const WorkerOptions& options) {
  if (absl::Status valid = validate_worker_name(options.name); !valid.ok()) throw_error(valid);
  check_positive(options.join_timeout, "join_timeout");
  check_positive(options.default_timeout, "default_timeout");
  check_positive(options.heartbeat_interval, "heartbeat_interval");
  check_positive(options.lease, "lease");
  if (options.lease < 3 * options.heartbeat_interval) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   "WorkerOptions::lease must be at least three times heartbeat_interval, or one "
                   "lost beat would end it");
  }
  if (options.max_message_bytes == 0 || options.send_window_bytes == 0 ||
      options.receive_window_bytes == 0) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   "WorkerOptions::max_message_bytes, send_window_bytes and receive_window_bytes "
                   "must be positive");
  }
}

/// The last handle may go away on a thread of the worker itself, which cannot join itself.
void destroy(WorkerCore* core) {
  if (Executor::current() == nullptr) {
    delete core;
  } else {
    std::thread([core] { delete core; }).detach();
  }
}

}  // namespace

// ---- Start.

std::shared_ptr<WorkerCore> WorkerCore::start(WorkerOptions options) {
  check_options(options);
  std::shared_ptr<WorkerCore> core(new WorkerCore(std::move(options)), &destroy);
  try {
    core->build();
    core->join();
  } catch (...) {
    // Whom this worker refused (rank 0, say, when its time to collect the others is over) is to
    // learn why: the answers would get lost with the transport.
    if (core->server_ != nullptr) core->server_->see_guests_off(kGuestsTime);
    core->teardown(absl::CancelledError("the worker did not start"));
    throw;
  }
  return core;
}

WorkerCore::WorkerCore(WorkerOptions options)
    : options_(std::move(options)), default_timeout_ns_(options_.default_timeout.count()) {
  self_.name = options_.name;
  self_.incarnation = random_incarnation();
  Executor::Options pool;
  pool.num_threads = options_.num_threads != 0 ? options_.num_threads : default_threads();
  pool.max_blocked_threads = options_.max_blocked_threads;
  pool.name = "sinew-work";
  executor_ = std::make_shared<Executor>(pool);
  // One thread: control work is short, and its order is easier to think about.
  pool.num_threads = 1;
  pool.name = "sinew-control";
  control_executor_ = std::make_shared<Executor>(pool);
}

WorkerCore::~WorkerCore() { teardown(absl::CancelledError("the worker was destroyed")); }

void WorkerCore::build() {
  absl::StatusOr<Rendezvous> rendezvous =
      parse_rendezvous(options_.init_method, options_.rank, options_.world_size);
  if (!rendezvous.ok()) throw_error(rendezvous.status());
  world_size_ = rendezvous->world_size;
  self_.rank = rendezvous->rank;

  devices_ = DeviceLayer::make(*this, usable_devices(options_));
  server_ = std::make_unique<CallServer>(*this);
  scheduler_ = std::make_unique<Scheduler>(*control_executor_, timers_, clock());
  gather_ = std::make_unique<Gather>(*this, directory_, options_.name, *scheduler_);

  absl::StatusOr<StartedTransport> started =
      start_transport(options_, *rendezvous, server_.get(), server_.get());
  if (!started.ok()) throw_error(started.status());
  transport_ = std::move(started->transport);
  address_ = transport_->address();
  executor_->set_polling_duty(transport_->polling_duty());
  control_executor_->set_polling_duty(transport_->polling_duty());

  MembershipOptions membership;
  membership.self = {self_, address_, options_.methods.digest(), devices_->usable(),
                     devices_->has_plane()};
  membership.job = options_.job;
  membership.rendezvous = *std::move(rendezvous);
  membership.timeout = options_.join_timeout;
  membership.serves_rendezvous = started->serves_rendezvous;
  membership.probe_lost = [this](const WorkerInfo& worker) { return probe_lost(worker); };
  membership.on_change = [this](const std::vector<Member>& joined,
                                const std::vector<Departed>& gone) {
    for (const Member& member : joined) {  // Calls to it will say the same.
      const absl::Status fits = check_device_map(options_, member);
      if (!fits.ok() && world_size_ == 0) log(std::string(fits.message()));
    }
    for (const auto& [worker, how] : gone) {
      const bool left = how == Departure::kLeft;
      worker_lost(worker,
                  absl::UnavailableError(
                      absl::StrCat("worker '", worker.name,
                                   left ? "' has left the job"
                                        : "' is lost: it was taken off the job's list of members")),
                  left ? Certainty::kLeft : Certainty::kGone);
    }
    keep_leases();
  };
  membership.on_removed = [this](const absl::Status& reason) {
    log(absl::StrCat("the others have taken this worker off the list: ", reason.message()));
    fence_everyone(reason);
  };
  membership.on_warning = [this](const std::string& warning) { log(warning); };
  membership_ = std::make_unique<Membership>(*this, directory_, std::move(membership), *scheduler_);
  server_->built();
}

void WorkerCore::join() {
  running_.store(true, std::memory_order_release);
  Future<void> joined = membership_->join_async();
  // The membership ends by itself at join_timeout; the margin only guards against a lost answer.
  joined.wait_for(options_.join_timeout + std::chrono::seconds(10));
  self_.rank = membership_->self().rank;
  check_device_maps_of_world();
  // Now that the rank is known. On the thread that hands notes and losses to them; calls are held
  // back until open().
  Promise<void> made;
  control_executor_->post([this, made] {
    devices_->start_plane();
    extensions_.push_back(devices_);
    for (const auto& make : options_.extensions) extensions_.push_back(make(*this));
    made.set_value();
  });
  made.future().wait();
  for (const Member& member : directory_.members()) world_names_.push_back(member.worker.name);
  joined_.store(true, std::memory_order_release);
  watch_callers();
  keep_leases();
  server_->open();
}

void WorkerCore::check_device_maps_of_world() {
  const absl::Status fits = check_device_maps(options_, directory_.members(),
                                              world_size_ > 0 ? World::kFixed : World::kOpen);
  if (fits.ok()) return;
  // The others are not to wait for its lease to end.
  leaving_.store(true, std::memory_order_release);
  membership_->leave_async(kGuestsTime).wait_for(kFarewell);
  throw_error(fits);
}

// ---- Peers.

absl::StatusOr<std::shared_ptr<Session>> WorkerCore::session(const WorkerInfo& worker) {
  {
    MutexLock lock(mutex_);
    const auto found = sessions_.find(worker.incarnation);
    if (found != sessions_.end()) return found->second;
  }
  absl::StatusOr<Member> member = directory_.find(worker);
  if (!member.ok()) return member.status();
  MutexLock lock(mutex_);
  return session_locked(*member);
}

absl::StatusOr<std::shared_ptr<Session>> WorkerCore::session_by_name(std::string_view name) {
  absl::StatusOr<Member> member = directory_.find(name);
  if (!member.ok()) return member.status();
  MutexLock lock(mutex_);
  return session_locked(*member);
}

absl::StatusOr<std::shared_ptr<Session>> WorkerCore::session_by_rank(std::int32_t rank) {
  absl::StatusOr<Member> member = directory_.find(rank);
  if (!member.ok()) return member.status();
  MutexLock lock(mutex_);
  return session_locked(*member);
}

std::shared_ptr<Session> WorkerCore::session_locked(const Member& member) {
  std::shared_ptr<Session>& session = sessions_[member.worker.incarnation];
  if (session == nullptr) {
    session = std::make_shared<Session>(*this, member, Session::Mode::kMember);
    const auto lost = lost_.find(member.worker.incarnation);
    if (lost != lost_.end()) session->close(lost->second);
    if (shutting_down_) session->close(absl::CancelledError("the worker was shut down"));
  }
  return session;
}

bool WorkerCore::is_lost(const WorkerInfo& worker) const {
  MutexLock lock(mutex_);
  return lost_.contains(worker.incarnation);
}

absl::Status WorkerCore::met(const WorkerInfo& worker, const std::string& address,
                             std::uint64_t method_digest) {
  // Not by the rank, which this worker may be getting at this moment.
  const bool is_self = worker.incarnation == self_.incarnation && worker.name == self_.name;
  if (is_self || directory_.find(worker).ok()) return absl::OkStatus();
  const absl::StatusOr<Member> same_name = directory_.find(worker.name);
  if (same_name.ok() && !is_lost(same_name->worker)) {
    // The list with the new incarnation may still be on its way: worth another try.
    return absl::UnavailableError(absl::StrFormat(
        "worker '%s' knows another live incarnation of worker '%s'", self_.name, worker.name));
  }
  directory_.add({worker, address, method_digest});
  return absl::OkStatus();
}

void WorkerCore::worker_lost(const WorkerInfo& worker, const absl::Status& reason,
                             Certainty certainty) {
  if (worker.incarnation == self_.incarnation) return;
  std::shared_ptr<Session> session;
  {
    MutexLock lock(mutex_);
    if (!lost_.try_emplace(worker.incarnation, reason).second) return;
    const auto found = sessions_.find(worker.incarnation);
    if (found != sessions_.end()) session = found->second;
  }
  const bool is_news = certainty != Certainty::kLeft && !leaving_.load(std::memory_order_acquire);
  if (is_news) log(std::string(reason.message()));
  if (session != nullptr) session->close(reason);
  const Clock::TimePoint fenced_at = fence(worker, reason, certainty);
  control_executor_->post([weak = weak_from_this(), worker] {
    auto self = weak.lock();
    if (self == nullptr) return;
    for (const auto& extension : self->extensions_) extension->on_worker_fenced(worker);
  });
  auto tell_layers = [weak = weak_from_this(), worker] {
    auto self = weak.lock();
    if (self == nullptr) return;
    self->control_executor_->post([self, worker] {
      for (const auto& extension : self->extensions_) extension->on_worker_lost(worker);
    });
  };
  // A peer that may live counts on its beats which were answered here: what it holds is kept until
  // it has fenced itself.
  if (certainty != Certainty::kSuspected || fenced_at <= clock().now()) {
    tell_layers();
  } else {
    timers_.run_at(fenced_at, std::move(tell_layers));
  }
  control_executor_->post([weak = weak_from_this(), worker] {
    auto self = weak.lock();
    if (self == nullptr) return;
    if (self->membership_ != nullptr) self->membership_->on_worker_lost(worker);
    if (self->gather_ != nullptr) self->gather_->on_worker_lost(worker);
  });
}

Clock::TimePoint WorkerCore::fence(const WorkerInfo& worker, const absl::Status& reason,
                                   Certainty certainty) {
  if (certainty != Certainty::kLeft) return server_->fence(worker, reason);
  // It still waits for the answer to its goodbye, which would get lost with its connection. It
  // mostly takes that down itself.
  timers_.run_at(clock().now() + kFarewell, [weak = weak_from_this(), worker, reason] {
    if (auto self = weak.lock()) self->server_->fence(worker, reason);
  });
  return clock().now();
}

void WorkerCore::fence_everyone(const absl::Status& reason) {
  for (const Member& member : directory_.members()) {
    worker_lost(member.worker, reason, Certainty::kSuspected);
  }
}

Future<bool> WorkerCore::probe_lost(const WorkerInfo& worker) {
  if (is_lost(worker)) return make_ready_future(true);
  absl::StatusOr<std::shared_ptr<Session>> found = session(worker);
  if (!found.ok()) return make_ready_future(false);
  return (*found)->probe();
}

void WorkerCore::keep_leases() {
  // The coordinator keeps a lease with everyone, everyone with the coordinator: so the loss of any
  // member is noticed.
  if (!joined_.load(std::memory_order_acquire)) return;
  const WorkerInfo coordinator = membership_->coordinator();
  for (const Member& member : directory_.members()) {
    if (member.worker == self_) continue;
    if (coordinator != self_ && member.worker != coordinator) continue;
    if (auto found = session(member.worker); found.ok()) (*found)->connect();
  }
}

void WorkerCore::watch_callers() {
  timers_.run_at(clock().now() + options_.heartbeat_interval, [weak = weak_from_this()] {
    auto self = weak.lock();
    if (self == nullptr || !self->is_running()) return;
    self->control_executor_->post([self] {
      for (const WorkerInfo& caller : self->server_->expired_callers()) {
        self->worker_lost(
            caller,
            absl::UnavailableError(absl::StrFormat(
                "worker '%s' is lost: it has sent no heartbeat for a lease", caller.name)),
            Certainty::kSuspected);
      }
    });
    self->watch_callers();
  });
}

void WorkerCore::send_note(const WorkerInfo& to, std::string_view layer, std::string body) {
  absl::StatusOr<std::shared_ptr<Session>> found = session(to);
  if (!found.ok()) return;
  proto::Envelope envelope;
  envelope.mutable_note()->set_layer(std::string(layer));
  envelope.mutable_note()->set_body(std::move(body));
  (*found)->send_note(envelope);
}

// ---- Control calls.

void WorkerCore::add_control_method(std::string name, ControlHandler handler) {
  MutexLock lock(mutex_);
  control_methods_.insert_or_assign(std::move(name), std::move(handler));
}

ControlHandler WorkerCore::find_control_method(std::string_view name) const {
  // A copy: the membership adds its methods when connections may already come in.
  MutexLock lock(mutex_);
  const auto found = control_methods_.find(absl::string_view(name.data(), name.size()));
  return found == control_methods_.end() ? nullptr : found->second;
}

Future<std::string> WorkerCore::start_control_call(const std::shared_ptr<Session>& session,
                                                   std::string_view method, std::string body,
                                                   std::chrono::nanoseconds timeout) {
  proto::Envelope envelope;
  envelope.mutable_call()->set_method(std::string(method));
  envelope.mutable_call()->add_arguments()->set_binary(std::move(body));
  auto pending = std::make_unique<TypedPendingCall<Bytes>>(control_executor_->runner());
  pending->method = std::string(method);
  pending->started = clock().now();
  pending->deadline = deadline_after(pending->started, timeout);
  Future<Bytes> answer = pending->future();
  session->start_call(std::move(pending), envelope, {}, Lane::kControl);
  return answer.then([](const Bytes& bytes) { return bytes.data; });
}

Future<std::string> WorkerCore::control_call(const WorkerInfo& to, std::string_view method,
                                             std::string body, std::chrono::nanoseconds timeout) {
  absl::StatusOr<std::shared_ptr<Session>> found = session(to);
  if (!found.ok())
    return make_failed_future<std::string>(make_error(found.status(), to.name, method));
  return start_control_call(*found, method, std::move(body), timeout);
}

Future<std::string> WorkerCore::control_call_address(const std::string& address,
                                                     std::string_view method, std::string body,
                                                     std::chrono::nanoseconds timeout) {
  Member somebody;
  somebody.address = address;
  auto session = std::make_shared<Session>(*this, somebody, Session::Mode::kOneShot);
  Future<std::string> answer = start_control_call(session, method, std::move(body), timeout);
  // The session lives until its one call has ended.
  answer.on_done([session](const Future<std::string>&) {
    session->close(absl::CancelledError("its one call has ended"));
  });
  return answer;
}

std::string WorkerCore::hello(const WorkerInfo& expected) const {
  Greeting greeting;
  greeting.worker.name = self_.name;
  greeting.worker.incarnation = self_.incarnation;
  // The rank in a greeting says that the worker is a member.
  greeting.worker.rank = joined_.load(std::memory_order_acquire) ? self_.rank : -1;
  if (greeting.worker.rank < 0 && expected.incarnation.value != 0 && membership_->ready()) {
    // It talks to other members before start() gets to know of it: one that is coordinator at once,
    // say.
    greeting.worker.rank = membership_->self().rank;
  }
  greeting.expected = expected;
  greeting.job = options_.job;
  greeting.address = address_;
  greeting.method_digest = options_.methods.digest();
  return write_hello(greeting);
}

// ---- Numbers.

Extension* WorkerCore::extension(std::string_view layer) const {
  for (const auto& extension : extensions_) {
    if (extension->layer() == layer) return extension.get();
  }
  return nullptr;
}

WorkerCore::CallTotals WorkerCore::call_totals() const {
  CallTotals totals;
  totals.served = server_->active_calls();
  totals.started = server_->calls_started();
  MutexLock lock(mutex_);
  for (const auto& [incarnation, session] : sessions_) {
    totals.active += static_cast<std::int64_t>(session->active_calls());
    totals.started += static_cast<std::int64_t>(session->calls_started());
    if (incarnation != self_.incarnation) {
      totals.requests += static_cast<std::int64_t>(session->requests_started());
    }
  }
  return totals;
}

Counters WorkerCore::counters() const {
  Counters counters;
  const CallTotals totals = call_totals();
  counters["rpc.client_active_calls"] = totals.active;
  counters["rpc.server_active_calls"] = totals.served;
  counters["rpc.requests"] = totals.requests;
  const Executor::Stats stats = executor_->stats();
  counters["rpc.threads"] = static_cast<std::int64_t>(stats.threads);
  counters["rpc.idle_threads"] = static_cast<std::int64_t>(stats.idle_threads);
  counters["rpc.blocked_threads"] = static_cast<std::int64_t>(stats.blocked_threads);
  counters["rpc.queued_tasks"] = static_cast<std::int64_t>(stats.queued_tasks);
  const ReceivePool::Stats pool = ReceivePool::of_process().stats();
  counters["rpc.receive_pool_used_bytes"] = static_cast<std::int64_t>(pool.used_bytes);
  counters["rpc.receive_pool_idle_bytes"] = static_cast<std::int64_t>(pool.idle_bytes);
  for (auto& [name, number] : transport_->counters()) counters[name] = number;
  for (const auto& extension : extensions_) extension->add_counters(counters);
  return counters;
}

void WorkerCore::set_default_timeout(std::chrono::nanoseconds timeout) {
  check_positive(timeout, "default_timeout");
  default_timeout_ns_.store(timeout.count(), std::memory_order_relaxed);
}

std::vector<WorkerInfo> WorkerCore::live_workers() const {
  std::vector<WorkerInfo> workers;
  for (const Member& member : directory_.members()) {
    if (!is_lost(member.worker)) workers.push_back(member.worker);
  }
  return workers;
}

void WorkerCore::log(const std::string& text) const { log_line(self_.name, text); }

// ---- The end.

CallCounts WorkerCore::call_counts() const {
  CallCounts counts;
  const CallTotals totals = call_totals();
  // Continuations on their way count too: they may start calls. Asked last, since a call's
  // continuation is queued before the call stops to be counted.
  const Executor::Stats stats = executor_->stats();
  counts.active = static_cast<std::uint64_t>(totals.active + totals.served) + stats.queued_tasks +
                  (stats.threads - stats.idle_threads);
  counts.started = static_cast<std::uint64_t>(totals.started);
  return counts;
}

absl::Status WorkerCore::drain(Clock::TimePoint deadline, const ShutdownOptions& options) {
  const auto left = [&]() -> std::chrono::nanoseconds {
    if (deadline == Clock::TimePoint::max()) return kNoTimeout;
    return std::max<std::chrono::nanoseconds>(deadline - clock().now(),
                                              std::chrono::milliseconds(1));
  };
  absl::Status failed;
  const auto attempt = [&](const char* step, const std::function<void()>& run) {
    if (!failed.ok()) return;
    try {
      run();
    } catch (...) {
      const absl::Status status = to_status(std::current_exception());
      failed = absl::Status(
          status.code(), absl::StrFormat("graceful shutdown of worker '%s' failed while it %s: %s",
                                         self_.name, step, status.message()));
    }
  };
  std::vector<std::string> names;
  if (world_size_ > 0) {
    // Not only those who live: who is lost, all workers learn at different times, but they must
    // name the same set.
    names = world_names_;
  } else {
    // Others stay; only what concerns this worker must come to rest.
    names.push_back(self_.name);
  }
  attempt("waited for the others to shut down too",
          [&] { gather_->barrier_async(names, left(), LossMode::kTolerate).wait(); });
  attempt("waited for calls to end", [&] {
    wait_for_quiescence_async(
        *gather_, names, [this] { return call_counts(); }, left(), *scheduler_)
        .wait();
  });
  std::vector<std::string> leaks;
  attempt("gave up references", [&] {
    std::vector<Future<std::vector<std::string>>> drains;
    for (const auto& extension : extensions_)
      drains.push_back(extension->drain_async(
          world_size_ > 0 ? Extension::DrainScope::kWholeJob : Extension::DrainScope::kThisWorker,
          deadline));
    for (auto& drain : drains) {
      for (const std::string& leak : drain.wait()) leaks.push_back(leak);
    }
  });
  for (const std::string& leak : leaks) log(leak);
  if (!leaks.empty() && options.fail_on_leaks && failed.ok()) {
    failed = absl::FailedPreconditionError(absl::StrFormat("worker '%s' leaks %d references:\n%s",
                                                           self_.name, leaks.size(),
                                                           absl::StrJoin(leaks, "\n")));
  }
  if (world_size_ > 0) {
    // Nobody leaves before all have got what they waited for.
    attempt("left together with the others",
            [&] { gather_->barrier_async(names, left(), LossMode::kTolerate).wait(); });
  }
  leaving_.store(true, std::memory_order_release);
  attempt("left the job", [&] { membership_->leave_async(left()).wait(); });
  return failed;
}

void WorkerCore::shutdown(const ShutdownOptions& options) {
  if (Executor::current() == executor_.get() || Executor::current() == control_executor_.get()) {
    throw RpcError(ErrorCode::kFailedPrecondition,
                   "a worker cannot be shut down by its own handler or continuation: it would wait "
                   "for itself");
  }
  MutexLock lock(shutdown_mutex_);
  if (shut_down_) return;
  shut_down_ = true;
  absl::Status failed;
  if (options.graceful) {
    check_positive(options.timeout, "timeout");
    failed = drain(deadline_after(clock().now(), options.timeout), options);
  }
  teardown(absl::CancelledError(absl::StrFormat("worker '%s' was shut down", self_.name)));
  if (!failed.ok()) throw RpcError(failed.code(), std::string(failed.message()));
}

void WorkerCore::teardown(const absl::Status& reason) {
  running_.store(false, std::memory_order_release);
  std::vector<std::shared_ptr<Session>> sessions;
  {
    MutexLock lock(mutex_);
    if (shutting_down_) return;
    shutting_down_ = true;
    for (auto& [incarnation, session] : sessions_) sessions.push_back(session);
  }
  // Waiting handlers wake up first, or their threads could not be joined.
  if (server_ != nullptr) server_->close(reason);
  for (const auto& session : sessions) session->close(reason);
  for (const auto& extension : extensions_) extension->stop();
  if (transport_ != nullptr) transport_->shutdown();
  executor_->shutdown();
  control_executor_->shutdown();
}

}  // namespace sinew::internal
