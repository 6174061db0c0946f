#include "sinew/rpc/worker/worker_core.h"

#include <algorithm>
#include <exception>
#include <iostream>
#include <limits>
#include <mutex>
#include <optional>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sinew/rpc.pb.h"
#include "sinew/rpc/base/environment.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/flight_recorder.h"
#include "sinew/rpc/base/host_limits.h"
#include "sinew/rpc/base/job_token.h"
#include "sinew/rpc/base/log.h"
#include "sinew/rpc/base/process_life.h"
#include "sinew/rpc/base/receive_pool.h"
#include "sinew/rpc/base/trace.h"
#include "sinew/rpc/call_options.h"
#include "sinew/rpc/calls/call_link.h"
#include "sinew/rpc/calls/call_server.h"
#include "sinew/rpc/calls/layers.h"
#include "sinew/rpc/calls/running_workers.h"
#include "sinew/rpc/device/layer/device_check.h"
#include "sinew/rpc/device/layer/device_layer.h"
#include "sinew/rpc/membership/etcd_membership.h"
#include "sinew/rpc/membership/registrar/hosted_registry.h"
#include "sinew/rpc/membership/registrar/registry_channel.h"
#include "sinew/rpc/membership/rendezvous.h"
#include "sinew/rpc/planes/make_device_plane.h"
#include "sinew/rpc/planes/nccl/default_plane.h"
#include "sinew/rpc/worker.h"
#include "sinew/rpc/worker/check_start.h"
#include "sinew/rpc/worker/connect_requests.h"
#include "sinew/rpc/worker/make_transport.h"
#include "sinew/rpc/worker/member_waits.h"
#include "sinew/rpc/worker/pauses.h"
#include "sinew/rpc/worker/rejoiner.h"
#include "sinew/rpc/worker/thread_plan.h"
#include "sinew/rpc/worker/worker_links.h"
#include "sinew/rpc/worker/worker_parts.h"

namespace sinew::internal {
namespace {

// For those who asked a worker to join that does not start itself.
constexpr auto kGuestsTime = std::chrono::seconds(2);
// Longer than leaving takes.
constexpr auto kFarewell = std::chrono::seconds(5);

/// What limits the process, by the names of counters; without what has no limit.
void add_limits(const HostLimits& limits, Counters& counters) {
  const auto add = [&counters](const char* name, std::optional<std::uint64_t> limit) {
    constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
    if (limit.has_value()) {
      counters[name] = static_cast<std::int64_t>(std::min<std::uint64_t>(*limit, kMost));
    }
  };
  counters["rpc.limit_cores"] = limits.cores();
  if (limits.memory.has_value()) add("rpc.limit_memory_bytes", limits.memory->most);
  if (limits.threads.has_value()) add("rpc.limit_threads", limits.threads->most);
  add("rpc.limit_threads_left", limits.threads_left());
  add("rpc.limit_files", limits.files);
}

MakeDevicePlane device_plane_for(const WorkerOptions& options, const WorkerServices& services) {
  if (options.parts != nullptr && options.parts->device_plane) return options.parts->device_plane;
  if (!options.nccl) return nullptr;
  DefaultPlaneOptions wanted;
  wanted.uses_tls = options.credentials.uses_tls();
  wanted.allow_unencrypted = options.nccl_allow_unencrypted;
  wanted.max_ctas = options.nccl_max_ctas;
  absl::StatusOr<MakeDevicePlane> made = default_device_plane(wanted);
  if (made.ok()) return *std::move(made);
  services.log(absl::StrCat("tensors of GPUs go by gRPC, not by NCCL: ", made.status().message()));
  return nullptr;
}

/// The last handle may go away on a thread of the worker itself, which cannot join itself; in a
/// forked child, which has none of its threads; or when exit() destroys what is static, and then
/// the process ends without waiting for handlers.
void destroy(WorkerCore* core) {
  if (core->process().is_orphan() || ProcessLife::is_ending()) return;
  if (Executor::current() == nullptr && !TimerQueue::is_timer_thread()) {
    delete core;
  } else {
    try {
      std::thread([core] { delete core; }).detach();
    } catch (const std::system_error&) {
      core->log("no thread could be started to end the worker, so it stays");
    }
  }
}

}  // namespace

// ---- Start.

std::shared_ptr<WorkerCore> WorkerCore::start(WorkerOptions options, const Succession* succession) {
  options = check_start(std::move(options));
  // Before its threads are there, and again for what it has made static.
  ProcessLife::watch();
  FlightRecorder::watch_faults();
  std::shared_ptr<WorkerCore> core(new WorkerCore(std::move(options)), &destroy);
  core->fit_host();
  try {
    core->build();
    core->join(succession);
  } catch (...) {
    // Whom this worker refused (rank 0, say, when its time to collect the others is over) is to
    // learn why: the answers would get lost with the transport.
    if (core->links_ != nullptr) core->links_->flush(kGuestsTime);
    core->teardown(absl::CancelledError("the worker did not start"));
    throw;
  }
  ProcessLife::watch();
  return core;
}

void WorkerCore::fit_host() const {
  const HostLimits limits = read_host_limits();
  for (const std::string& text :
       {limit_computing_threads(options_, limits), smaller_window(options_, limits)}) {
    if (!text.empty()) log(text);
  }
}

WorkerCore::WorkerCore(WorkerOptions options)
    : options_(std::move(options)),
      end_(std::make_shared<WorkerEnd>(options_.name)),
      max_threads_(handler_threads(options_, read_host_limits())),
      default_timeout_ns_(options_.default_timeout.count()),
      rejoiner_(std::make_shared<Rejoiner>(options_)),
      member_events_([this](const WorkerInfo& worker) { return links_->is_lost(worker); }),
      pauses_(std::make_shared<Pauses>(timers_)),
      member_waits_(std::make_shared<MemberWaits>(
          timers_, clock(), [this](const WorkerInfo& worker) { return links_->is_lost(worker); })) {
  self_.name = options_.name;
  self_.incarnation = key_->incarnation();
  Executor::Options pool;
  pool.num_threads = max_threads_;
  pool.max_blocked_threads = options_.max_blocked_threads;
  pool.min_threads = 1;
  pool.name = "sinew-work";
  executor_ = std::make_shared<Executor>(pool);
  // One thread: control work is short, and its order is easier to think about.
  pool.num_threads = 1;
  pool.name = "sinew-control";
  control_executor_ = std::make_shared<Executor>(pool);
  member_subscription_ = std::make_shared<MemberSubscription>(
      self_.name, control_executor_->runner(),
      [waits = member_waits_](const MemberEvent& event) { waits->on_event(event); });
  member_events_.add(member_subscription_);
}

WorkerCore::~WorkerCore() {
  rejoiner_->cancel();
  teardown(absl::CancelledError("the worker was destroyed"));
}

void WorkerCore::build() {
  absl::StatusOr<Rendezvous> rendezvous =
      parse_rendezvous(options_.init_method, options_.rank, options_.world_size);
  if (!rendezvous.ok()) throw_error(rendezvous.status());
  const absl::StatusOr<bool> founds = founds_job(*rendezvous, options_.found_job);
  if (!founds.ok()) throw_error(founds.status());
  rendezvous->founds = *founds;
  world_size_ = rendezvous->world_size;
  self_.rank = rendezvous->rank;

  devices_ = DeviceLayer::make(*this, usable_devices(options_), device_plane_for(options_, *this));
  server_ = std::make_unique<CallServer>(
      *this, options_.parts == nullptr ? nullptr : options_.parts->wrap_reply_sink);
  links_ = std::make_unique<WorkerLinks>(*this);
  links_->add_methods();
  connect_requests_ = std::make_unique<ConnectRequests>(*this);
  connect_requests_->add_methods();
  scheduler_ = std::make_unique<Scheduler>(*control_executor_, timers_, clock());

  absl::StatusOr<StartedTransport> started =
      start_transport(options_, *rendezvous, &links_->table(), server_.get());
  if (!started.ok()) throw_error(started.status());
  transport_ = std::move(started->transport);
  address_ = transport_->address();
  if (rendezvous->kind != Rendezvous::Kind::kInproc) say_if_open();
  executor_->set_polling_duty(transport_->polling_duty());
  control_executor_->set_polling_duty(transport_->polling_duty());

  make_membership(*std::move(rendezvous), *started);
  links_->start(*transport_);
}

void WorkerCore::say_if_open() const {
  const bool is_closed = !options_.job_token.empty() || options_.credentials.proves_callers();
  if (is_closed || says_job_token(process_environment())) return;
  static std::once_flag once;
  std::call_once(once, [this] {
    log(absl::StrCat("job '", options_.job, "' has no token (", kJobToken,
                     "): every process that reaches ", address_,
                     " can join it and call its methods"));
  });
}

// Before the links begin to call its control methods.
void WorkerCore::make_membership(Rendezvous rendezvous, const StartedTransport& started) {
  using Kind = Rendezvous::Kind;
  const Kind kind = rendezvous.kind;
  MembershipOptions options = membership_options(std::move(rendezvous));
  StartRegistry start;
  if (kind == Kind::kEtcd) {
    EtcdUse use;
    use.lease = options_.lease;
    const Credentials& credentials = options_.credentials;
    // A process that can write at etcd decides who is in the job: links with TLS do not make it
    // safe to let all write.
    use.trusts_network = !credentials.loopback_only() && !credentials.uses_tls();
    use.encrypted_only = options_.encrypted_only;
    absl::StatusOr<StartRegistry> at_etcd = etcd_registry(options, use);
    if (!at_etcd.ok()) throw_error(at_etcd.status());
    start = *std::move(at_etcd);
  } else {
    HostedStart hosted =
        hosted_registry(options, description(), options_.lease, terms_of(options_).interval,
                        make_seat(options.rendezvous, started), *transport_, *scheduler_);
    start = std::move(hosted.start);
    accept_asker_ = std::move(hosted.accept);
  }
  membership_ =
      std::make_shared<Membership>(std::move(options), std::move(start), directory_, *scheduler_);
}

SelfDescription WorkerCore::description() const {
  return {self_, options_.job, address_, options_.methods.digest(), key_, options_.job_token};
}

std::unique_ptr<RegistrarSeat> WorkerCore::make_seat(const Rendezvous& rendezvous,
                                                     const StartedTransport& started) {
  if (rendezvous.kind == Rendezvous::Kind::kFile) {
    return make_file_seat(rendezvous.path, address_, options_.name, executor_);
  }
  if (rendezvous.kind == Rendezvous::Kind::kInproc) {
    return make_process_seat(options_.network, rendezvous.seeds.front(), address_);
  }
  // Several addresses are those of one registrar: only who serves the first one can be it.
  std::vector<std::string> addresses = dial_addresses(rendezvous);
  std::optional<OwnAddress> own;
  if (started.served_seed == addresses.front()) {
    const auto ask = [weak = weak_from_this()](const Contact& contact,
                                               std::function<void(Incarnation)> on_answer) {
      const auto core = weak.lock();
      if (core == nullptr) return;
      ask_who_answers(*core->transport_, core->description(), contact, std::move(on_answer));
    };
    own = OwnAddress{self_.incarnation, ask, options_.lease};
  }
  return make_address_seat(std::move(addresses), std::move(own),
                           make_seed_resolver(rendezvous, executor_));
}

absl::StatusOr<Acceptor::Accepted> WorkerCore::on_registrar_asked(const proto::Hello& said) const {
  if (accept_asker_ != nullptr) return accept_asker_(said);
  return absl::UnavailableError("no worker of this job holds its list: etcd does");
}

void WorkerCore::join(const Succession* succession) {
  running_.store(true, std::memory_order_release);
  Future<void> joined = membership_->join_async();
  if (succession != nullptr) succession->on_joining(*this);
  // The membership ends by itself at join_timeout; the margin only guards against a lost answer.
  joined.wait_for(options_.join_timeout + std::chrono::seconds(10));
  self_.rank = membership_->self().rank;
  check_device_maps_of_world();
  // Now that the rank is known. On the thread that hands notes and losses to them; calls are held
  // back until open().
  Promise<void> made;
  control_executor_->post([this, made] {
    try {
      make_layers();
    } catch (...) {
      // For lack of threads, say.
      return made.set_error(std::current_exception());
    }
    made.set_value();
  });
  made.future().wait();
  note_worker(weak_services());
  if (Trace* const trace = Trace::of_process()) trace->note_worker(self_.name);
  joined_.store(true, std::memory_order_release);
  keep_leases();
  if (const absl::Status fit = server_->open(control_methods()); !fit.ok()) end_start(fit);
}

void WorkerCore::make_layers() {
  devices_->start_plane();
  extensions_.push_back(devices_);
  for (const MakeLayer make : added_layers()) extensions_.push_back(make(*this));
  if (options_.parts != nullptr) {
    for (const auto& make : options_.parts->extensions) extensions_.push_back(make(*this));
  }
  waits_for_layers_ = false;
  for (Task& task : std::exchange(for_layers_, {})) std::move(task)();
}

void WorkerCore::check_device_maps_of_world() {
  const absl::Status fits = check_device_maps(options_, directory_.members(),
                                              world_size_ > 0 ? World::kFixed : World::kOpen);
  if (!fits.ok()) end_start(fits);
}

// The others are not to wait for its lease to end.
void WorkerCore::end_start(const absl::Status& why) {
  leaving_.store(true, std::memory_order_release);
  membership_->leave_async().wait_for(kFarewell);
  throw_error(why);
}

void WorkerCore::stop_joining() { membership_->leave_async(); }

MessageDevices& WorkerCore::devices() { return *devices_; }

Worker WorkerCore::handle() { return WorkerAccess::make(shared_from_this()); }

// ---- Peers.

absl::StatusOr<std::shared_ptr<CallLink>> WorkerCore::link(const WorkerInfo& worker) {
  return links_->find(worker);
}

void WorkerCore::on_unreached(const WorkerInfo& peer) { connect_requests_->on_unreached(peer); }

void WorkerCore::on_suspected(const WorkerInfo& peer, bool suspected) {
  suspected ? member_events_.suspected(peer) : member_events_.trusted(peer);
}

void WorkerCore::on_link_ended(const WorkerInfo& peer, EndedLink link) {
  links_->on_link_ended(peer, std::move(link));
}

void WorkerCore::when_sure(std::function<void()> then) {
  membership_ == nullptr ? then() : membership_->when_sure(std::move(then));
}

MembershipState WorkerCore::membership_state() const {
  // Also when it was ended for another one to take its place.
  const bool is_out = !evicted().ok();
  if (is_out && !rejoiner_->is_cancelled()) return MembershipState::kEvicted;
  if (!is_running()) return MembershipState::kLeft;
  const MembershipState state = membership_->state();
  // The membership knows it a moment before the rest, and who reads it here may rejoin.
  return state == MembershipState::kEvicted && !is_out ? MembershipState::kSuspected : state;
}

bool WorkerCore::is_lost(const WorkerInfo& worker) const { return links_->is_lost(worker); }

WorkerInfo WorkerCore::coordinator() const { return membership_->coordinator(); }

Future<WorkerInfo> WorkerCore::wait_for_member(std::string name, Incarnation other_than,
                                               Clock::TimePoint deadline) {
  if (name == self_.name && self_.incarnation != other_than) return make_ready_future(self_);
  return member_waits_->wait_async(std::move(name), other_than, deadline, executor_.get());
}

Future<void> WorkerCore::wait_until(Clock::TimePoint when) {
  return pauses_->wait_until(when, executor_.get());
}

std::int32_t WorkerCore::rank_of(const WorkerInfo& worker) const {
  const absl::StatusOr<Member> member = directory_.find(worker.name);
  const bool is_it = member.ok() && member->worker.incarnation == worker.incarnation;
  return is_it ? member->worker.rank : -1;
}

void WorkerCore::tell_fenced(const WorkerInfo& worker) {
  control_executor_->post([weak = weak_from_this(), worker] {
    auto self = weak.lock();
    if (self == nullptr) return;
    for (const auto& extension : self->extensions_) extension->on_worker_fenced(worker);
  });
}

void WorkerCore::tell_lost(const WorkerInfo& worker) {
  control_executor_->post([weak = weak_from_this(), worker] {
    auto self = weak.lock();
    if (self == nullptr) return;
    for (const auto& extension : self->extensions_) extension->on_worker_lost(worker);
  });
}

void WorkerCore::tell_membership_lost(const WorkerInfo& worker, bool has_ended,
                                      std::string reason) {
  control_executor_->post([weak = weak_from_this(), worker, has_ended, reason = std::move(reason)] {
    auto self = weak.lock();
    if (self == nullptr || self->membership_ == nullptr) return;
    self->membership_->on_worker_lost(worker, has_ended, reason);
  });
}

void WorkerCore::keep_leases() {
  // The coordinator keeps a lease with everyone, everyone with the coordinator: so the loss of any
  // member is noticed.
  if (!joined_.load(std::memory_order_acquire)) return;
  const WorkerInfo coordinator = membership_->coordinator();
  for (const Member& member : directory_.members()) {
    if (member.worker == self_) continue;
    if (coordinator != self_ && member.worker != coordinator) continue;
    if (auto found = link(member.worker); found.ok()) (*found)->runner().connect();
  }
}

void WorkerCore::send_note(const WorkerInfo& to, std::string_view layer, std::string body,
                           OnCarrierEnd on_end) {
  absl::StatusOr<std::shared_ptr<CallLink>> found = link(to);
  if (!found.ok()) {
    if (on_end != nullptr) std::move(on_end)(CarrierEnd::kNotSent);
    return;
  }
  proto::Envelope envelope;
  envelope.mutable_note()->set_layer(std::string(layer));
  envelope.mutable_note()->set_body(std::move(body));
  (*found)->send_note(envelope, std::move(on_end));
}

// ---- Control calls.

void WorkerCore::add_control_method(std::string name, ControlHandler handler) {
  MutexLock lock(mutex_);
  control_methods_.insert_or_assign(std::move(name), std::move(handler));
}

std::vector<std::string> WorkerCore::control_methods() const {
  std::vector<std::string> names;
  MutexLock lock(mutex_);
  for (const auto& [name, handler] : control_methods_) names.push_back(name);
  return names;
}

ControlHandler WorkerCore::find_control_method(std::string_view name) const {
  // A copy: the membership adds its methods when connections may already come in.
  MutexLock lock(mutex_);
  const auto found = control_methods_.find(absl::string_view(name.data(), name.size()));
  return found == control_methods_.end() ? nullptr : found->second;
}

Future<std::string> WorkerCore::control_call(const WorkerInfo& to, std::string_view method,
                                             std::string body, std::chrono::nanoseconds timeout) {
  absl::StatusOr<std::shared_ptr<CallLink>> found = link(to);
  if (!found.ok())
    return make_failed_future<std::string>(make_error(found.status(), to.name, method));
  return links_->call(**found, method, std::move(body), timeout);
}

// ---- Numbers.

Extension* WorkerCore::extension(std::string_view layer) const {
  process_.require();
  for (const auto& extension : extensions_) {
    if (extension->layer() == layer) return extension.get();
  }
  return nullptr;
}

WorkerCore::CallTotals WorkerCore::call_totals() const {
  CallTotals totals;
  totals.served = server_->active_calls();
  totals.started = server_->calls_started();
  const CallServer::Made& made = server_->made();
  totals.active = made.active.load(std::memory_order_acquire);
  totals.started += made.started.load(std::memory_order_acquire);
  totals.requests = made.requests.load(std::memory_order_relaxed);
  return totals;
}

Counters WorkerCore::counters() const {
  Counters counters;
  const CallTotals totals = call_totals();
  counters["rpc.client_active_calls"] = totals.active;
  counters["rpc.server_active_calls"] = totals.served;
  counters["rpc.requests"] = totals.requests;
  counters["rpc.retries"] = server_->made().retries.load(std::memory_order_relaxed);
  const CallServer::Refused& refused = server_->refused();
  counters["rpc.calls_not_allowed"] = refused.not_allowed.load(std::memory_order_relaxed);
  counters["rpc.limited_calls"] = server_->limited_calls();
  counters["rpc.calls_over_limit"] = refused.over_limit.load(std::memory_order_relaxed);
  const Executor::Stats stats = executor_->stats();
  counters["rpc.max_threads"] = static_cast<std::int64_t>(max_threads_);
  counters["rpc.threads"] = static_cast<std::int64_t>(stats.threads);
  counters["rpc.idle_threads"] = static_cast<std::int64_t>(stats.idle_threads);
  counters["rpc.blocked_threads"] = static_cast<std::int64_t>(stats.blocked_threads);
  counters["rpc.queued_tasks"] = static_cast<std::int64_t>(stats.queued_tasks);
  const ReceivePool::Stats pool = ReceivePool::of_process().stats();
  counters["rpc.receive_pool_used_bytes"] = static_cast<std::int64_t>(pool.used_bytes);
  counters["rpc.receive_pool_idle_bytes"] = static_cast<std::int64_t>(pool.idle_bytes);
  counters["rpc.receive_pool_max_idle_bytes"] =
      static_cast<std::int64_t>(ReceivePool::of_process().bounds().max_idle);
  add_limits(read_host_limits(), counters);
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

}  // namespace sinew::internal
