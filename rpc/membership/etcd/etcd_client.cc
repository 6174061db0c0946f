#include "sinew/rpc/membership/etcd/etcd_client.h"

#include <pthread.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "grpc/support/time.h"
#include "grpcpp/alarm.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/base/process_room.h"
#include "sinew/rpc/membership/etcd/etcd_call.h"
#include "sinew/rpc/membership/etcd/etcd_channel.h"

namespace sinew::internal::etcd {
namespace {

// etcd answers with 1.5 MiB at most for one of these, by its own limit for values, and far less for
// most.
constexpr std::int64_t kPage = 1000;

gpr_timespec after(std::chrono::nanoseconds left) {
  if (left <= left.zero()) return gpr_inf_past(GPR_CLOCK_MONOTONIC);
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_nanos(left.count(), GPR_TIMESPAN));
}

absl::Status cancelled() { return absl::CancelledError("the client of etcd stops"); }

}  // namespace

absl::StatusOr<std::unique_ptr<EtcdClient>> EtcdClient::start(EtcdOptions options) {
  if (absl::Status status = check(options); !status.ok()) return status;
  if (absl::Status status = ProcessLife::may_start_worker(); !status.ok()) return status;
  try {
    return std::unique_ptr<EtcdClient>(new EtcdClient(std::move(options)));
  } catch (const RpcError& error) {
    return absl::Status(error.code(), error.message());
  }
}

EtcdClient::EtcdClient(EtcdOptions options)
    : options_(std::move(options)),
      endpoints_(options_, static_cast<std::size_t>(random_secret() >> 1)),
      not_before_(Clock::now()) {
  ProcessLife::let_no_child_start_workers();
  try {
    thread_ = start_thread([this] { run(); });
  } catch (...) {
    queue_.Shutdown();
    throw;
  }
  ProcessLife::add(this);
}

EtcdClient::~EtcdClient() {
  ProcessLife::remove(this);
  if (process_.is_orphan()) {
    thread_.detach();
    return;
  }
  ProcessLife::move_on_if_exiting();
  {
    MutexLock lock(mutex_);
    stops_ = true;
    wake();
  }
  thread_.join();
}

void EtcdClient::run() {
  pthread_setname_np(pthread_self(), "sinew-etcd");
  do {
    run_tasks();
  } while (wait());
}

bool EtcdClient::wait() {
  {
    MutexLock lock(mutex_);
    works_ = false;
    // Something came while it worked.
    is_awake_ = !posted_.empty() || (stops_ && !has_stopped_);
    if (is_awake_) {
      works_ = true;
      return true;
    }
  }
  void* event = nullptr;
  bool ok = false;
  const auto got = queue_.AsyncNext(&event, &ok, next_due());
  ProcessLife::stand_still_at_exit();
  {
    MutexLock lock(mutex_);
    is_awake_ = true;
    works_ = true;
  }
  if (got == grpc::CompletionQueue::SHUTDOWN) return false;
  if (got == grpc::CompletionQueue::GOT_EVENT) {
    const std::unique_ptr<Tag> tag(static_cast<Tag*>(event));
    --pending_;
    tag->task(ok);
  }
  return true;
}

void EtcdClient::run_tasks() {
  std::vector<Task> tasks;
  bool stops = false;
  {
    MutexLock lock(mutex_);
    tasks.swap(posted_);
    stops = stops_;
  }
  if (stops && !has_stopped_) stop();
  for (Task& task : tasks) task();
  while (!has_stopped_ && !timers_.empty() && timers_.begin()->first <= Clock::now()) {
    Task task = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    task();
  }
  if (has_stopped_ && pending_ == 0 && !std::exchange(is_shut_, true)) queue_.Shutdown();
}

void EtcdClient::stop() {
  has_stopped_ = true;
  timers_.clear();
  for (grpc::ClientContext* context : contexts_) context->TryCancel();
  wait_for_token_.clear();
  for (const auto& [id, watch] : std::exchange(watches_, {})) watch->watcher.on_end(cancelled());
  const auto calls = std::exchange(calls_, {});
  for (const auto& call : calls) call->done(cancelled(), *call->response);
}

gpr_timespec EtcdClient::next_due() const {
  if (timers_.empty()) return gpr_inf_future(GPR_CLOCK_MONOTONIC);
  return after(timers_.begin()->first - Clock::now());
}

EtcdClient::Tag* EtcdClient::tag(absl::AnyInvocable<void(bool)> task) {
  ++pending_;
  return new Tag{std::move(task), {}};
}

void EtcdClient::wake() {
  if (std::exchange(is_awake_, true)) return;
  auto* const tag = new Tag{[this](bool) { ++pending_; }, std::make_unique<grpc::Alarm>()};
  // Only what is past is due at once.
  tag->alarm->Set(&queue_, gpr_inf_past(GPR_CLOCK_MONOTONIC), tag);
}

void EtcdClient::look_up() {
  MutexLock lock(mutex_);
  wake();
}

bool EtcdClient::stands_still() {
  MutexLock lock(mutex_);
  return !works_ || std::this_thread::get_id() == thread_.get_id();
}

void EtcdClient::post(Task task) {
  MutexLock lock(mutex_);
  if (stops_) return;
  posted_.push_back(std::move(task));
  wake();
}

void EtcdClient::run_after(Time pause, Task task) {
  if (!has_stopped_) timers_.emplace(Clock::now() + pause, std::move(task));
}

// --- Calls --------------------------------------------------------------------------------------

void EtcdClient::start_call(const char* path, std::unique_ptr<Message> request,
                            std::unique_ptr<Message> response, Time timeout, Done done) {
  auto call = std::make_shared<Call>();
  call->path = path;
  call->request = std::move(request);
  call->response = std::move(response);
  call->deadline = Clock::now() + timeout;
  // While etcd serves, more than half of its servers do.
  call->patience = timeout / (options_.endpoints.size() / 2 + 1);
  call->done = std::move(done);
  post([this, call = std::move(call)]() mutable {
    if (has_stopped_) return call->done(cancelled(), *call->response);
    calls_.insert(call);
    attempt(std::move(call));
  });
}

void EtcdClient::end_call(const std::shared_ptr<Call>& call, absl::Status status) {
  if (calls_.erase(call) > 0) call->done(std::move(status), *call->response);
}

void EtcdClient::attempt(std::shared_ptr<Call> call) {
  if (has_stopped_ || calls_.count(call) == 0) return;
  const Clock::time_point now = Clock::now();
  if (now >= call->deadline) return end_call(call, all_errors(call->last));
  if (now < not_before_) {
    const Clock::time_point next = std::min(not_before_, call->deadline);
    return run_after(next - now, [this, call] { attempt(call); });
  }
  if (needs_token() && !call->is_authentication()) {
    wait_for_token_.push_back([this, call] { attempt(call); });
    return authenticate();
  }
  if (looks_up()) return run_after(kLookUp, [this, call] { attempt(call); });
  if (absl::Status status = connect(); !status.ok()) {
    if (!absl::IsUnavailable(status)) return end_call(call, std::move(status));
    call->last = status;
    failed(generation_, status);
    return attempt(call);
  }
  auto one = std::make_shared<Attempt>();
  one->generation = generation_;
  one->endpoint = endpoint();
  one->token = token_;
  one->response.reset(call->response->New());
  const Time time = std::min<Time>(call->deadline - now, options_.attempt_timeout);
  one->is_short = time < options_.attempt_timeout;
  prepare(one->context, now + time);
  contexts_.insert(&one->context);
  one->reader = stub_->PrepareUnaryCall(&one->context, call->path, *call->request, &queue_);
  one->reader->StartCall();
  one->reader->Finish(one->response.get(), &one->status, tag([this, call, one](bool) {
                        contexts_.erase(&one->context);
                        attempted(call, *one);
                      }));
  if (call->patience >= time) return;
  run_after(call->patience,
            [this, weak_call = std::weak_ptr<Call>(call), weak = std::weak_ptr<Attempt>(one)] {
              const std::shared_ptr<Call> waiting = weak_call.lock();
              const std::shared_ptr<Attempt> late = weak.lock();
              if (waiting != nullptr && late != nullptr) ask_next_too(waiting, *late);
            });
}

void EtcdClient::ask_next_too(const std::shared_ptr<Call>& call, Attempt& attempt) {
  if (calls_.count(call) == 0) return;
  attempt.has_successor = true;
  call->last =
      explain_error(absl::DeadlineExceededError(absl::StrCat(
                        "within ", absl::FormatDuration(absl::FromChrono(call->patience)))),
                    attempt.endpoint, options_)
          .status;
  failed(attempt.generation, call->last);
  this->attempt(call);
}

void EtcdClient::attempted(const std::shared_ptr<Call>& call, Attempt& attempt) {
  if (has_stopped_) return;
  if (attempt.status.ok()) {
    answered(attempt.generation);
    call->response = std::move(attempt.response);
    return end_call(call, absl::OkStatus());
  }
  Failure failure = explain_error(to_absl(attempt.status), attempt.endpoint, options_);
  if (failure.remedy == Remedy::kNone) {
    answered(attempt.generation);
    return end_call(call, std::move(failure.status));
  }
  if (attempt.has_successor) return;
  const bool is_short =
      attempt.is_short && attempt.status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
  if (!is_short || call->last.ok()) call->last = failure.status;
  if (failure.remedy == Remedy::kAgain) {
    return run_after(options_.longest_pause, [this, call] { this->attempt(call); });
  }
  if (failure.remedy == Remedy::kAuthenticate) {
    if (++call->authentications > kMaxAuthentications) return end_call(call, failure.status);
    drop_token(attempt.token);
    return this->attempt(call);
  }
  failed(attempt.generation, failure.status, is_short);
  if (is_hopeless()) return end_call(call, all_errors(failure.status));
  this->attempt(call);
}

void EtcdClient::list(std::string key, std::string range_end, Time timeout, Then<Listing> then) {
  pb::RangeRequest request;
  request.set_key(std::move(key));
  request.set_range_end(std::move(range_end));
  request.set_limit(kPage);
  list_page(std::make_shared<Listing>(), std::move(request), Clock::now() + timeout,
            std::move(then));
}

void EtcdClient::list_page(std::shared_ptr<Listing> listing, pb::RangeRequest request,
                           Clock::time_point until, Then<Listing> then) {
  const Time left = until - Clock::now();
  auto next = request;
  call(std::move(request), left,
       [this, listing = std::move(listing), next = std::move(next), until,
        then = std::move(then)](absl::StatusOr<pb::RangeResponse> page) mutable {
         if (!page.ok()) return then(page.status());
         if (next.revision() == 0) next.set_revision(page->header().revision());
         for (KeyValue& kv : *page->mutable_kvs()) listing->kvs.push_back(std::move(kv));
         listing->revision = next.revision();
         if (!page->more() || page->kvs().empty()) return then(std::move(*listing));
         // The next key that can be.
         next.set_key(absl::StrCat(listing->kvs.back().key(), absl::string_view("\0", 1)));
         list_page(std::move(listing), std::move(next), until, std::move(then));
       });
}

// --- The server that is asked -------------------------------------------------------------------

bool EtcdClient::looks_up() {
  if (stub_ != nullptr) return false;
  if (lookup_ == nullptr) lookup_ = HostLookup::start(endpoint());
  return !lookup_->result(false).has_value();
}

absl::Status EtcdClient::connect() {
  if (stub_ != nullptr) return absl::OkStatus();
  // The other kind after a failure.
  const HostLookup::Addresses addresses = *lookup_->result(generation_ % 2 == 0);
  if (!addresses.ok()) {
    return absl::Status(addresses.status().code(),
                        absl::StrCat("etcd: ", addresses.status().message()));
  }
  auto channel = make_etcd_channel(endpoint(), *addresses, options_);
  if (!channel.ok()) return channel.status();
  stub_ = std::make_unique<grpc::TemplatedGenericStub<Message, Message>>(*std::move(channel));
  return absl::OkStatus();
}

void EtcdClient::prepare(grpc::ClientContext& context, Clock::time_point deadline) const {
  if (deadline != Clock::time_point::max()) context.set_deadline(after(deadline - Clock::now()));
  if (!token_.empty()) context.AddMetadata("token", token_);
  // A server that sees no leader says so, rather than answer with what it had.
  context.AddMetadata("hasleader", "true");
}

void EtcdClient::answered(std::uint64_t generation) {
  if (generation != generation_) return;
  endpoints_.answered();
  errors_.clear();
}

void EtcdClient::failed(std::uint64_t generation, const absl::Status& why, bool is_short) {
  // Others may have noticed before.
  if (generation != generation_) return;
  absl::Status& error = errors_[endpoint()];
  if (!is_short || error.ok()) error = why;
  not_before_ = Clock::now() + endpoints_.failed();
  ++generation_;
  stub_.reset();
  lookup_.reset();
  for (const auto& [id, watch] : watches_) {
    if (watch->stream != nullptr) watch->stream->context.TryCancel();
  }
}

absl::Status EtcdClient::all_errors(const absl::Status& last) const {
  if (last.ok()) return absl::DeadlineExceededError("there was no time left to ask etcd");
  if (errors_.size() < 2) return last;
  std::string text;
  for (const auto& [endpoint, error] : errors_) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", error.message());
  }
  return absl::Status(last.code(), text);
}

bool EtcdClient::is_hopeless() const {
  return errors_.size() == options_.endpoints.size() &&
         std::all_of(errors_.begin(), errors_.end(), [](const auto& each) {
           return each.second.code() != absl::StatusCode::kUnavailable;
         });
}

void EtcdClient::drop_token(const std::string& token) {
  has_users_ = true;
  if (token == token_) token_.clear();
}

void EtcdClient::authenticate() {
  if (std::exchange(authenticates_, true)) return;
  pb::AuthenticateRequest request;
  request.set_name(options_.user);
  request.set_password(options_.password);
  call(std::move(request), options_.attempt_timeout,
       [this](absl::StatusOr<pb::AuthenticateResponse> response) {
         authenticates_ = false;
         if (has_stopped_) return;
         if (response.ok()) {
           token_ = response->token();
         } else if (absl::StrContains(response.status().message(),
                                      "authentication is not enabled")) {
           has_users_ = false;
         }
         const absl::StatusCode code = response.status().code();
         const bool is_refused = needs_token() && code != absl::StatusCode::kUnavailable;
         for (Task& task : std::exchange(wait_for_token_, {})) {
           if (!is_refused) task();
         }
         if (!is_refused) return;
         // Calls that wait would be refused as well.
         for (const auto& call : std::set<std::shared_ptr<Call>>(calls_)) {
           if (!call->is_authentication()) end_call(call, response.status());
         }
         for (const auto& [id, watch] : std::map<WatchId, std::shared_ptr<Watch>>(watches_)) {
           if (watch->stream == nullptr) end_watch(*watch, response.status());
         }
       });
}

}  // namespace sinew::internal::etcd
