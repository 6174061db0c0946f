#include "sinew/groups/internal/group_engine.h"

#include <algorithm>
#include <utility>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sinew/groups/internal/store_timeout.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/calls/worker_services.h"

namespace sinew::internal {
namespace {

// An operation that takes longer is written on the board.
constexpr std::chrono::milliseconds kLookAfter{250};
// And looked at again so often.
constexpr std::chrono::milliseconds kLookAgain{1000};
// The first looks of operations with short limits: before the others give up.
constexpr int kLooksInLimit = 4;
// More combinations than a program has; then those are compared anew.
constexpr std::size_t kMostAgreed = 65'536;
constexpr std::uint16_t kCheckDigest = 0x5157;

std::string seconds_text(std::chrono::nanoseconds time) {
  return absl::StrFormat("%g s", std::chrono::duration<double>(time).count());
}

/// The digest that keeps ranks apart that call something else.
std::uint16_t digest_of(const Operation& operation) {
  if (operation.signature.function == Function::kSend ||
      operation.signature.function == Function::kRecv ||
      operation.signature.function == Function::kRecvAnySource) {
    // Either end has its own function; sizes are the transport's to compare.
    return static_cast<std::uint16_t>(operation.signature.type);
  }
  return static_cast<std::uint16_t>(operation.signature.key());
}

bool is_collective(const Operation& operation) {
  const Function function = operation.signature.function;
  return function != Function::kSend && function != Function::kRecv &&
         function != Function::kRecvAnySource;
}

}  // namespace

std::shared_ptr<GroupEngine> GroupEngine::make(Setup setup, Backends backends) {
  return std::shared_ptr<GroupEngine>(new GroupEngine(std::move(setup), std::move(backends)));
}

GroupEngine::GroupEngine(Setup setup, Backends backends)
    : setup_(std::move(setup)),
      backends_(std::move(backends)),
      runtime_(GroupRuntime::get()),
      board_(setup_.store, setup_.rank, setup_.size),
      life_(setup_.name) {}

GroupEngine::~GroupEngine() {
  destroy();
  // They join their threads, one of which may run this.
  runtime_.executor().post([backends = std::move(backends_)] {});
}

Backend& GroupEngine::backend_for(c10::DeviceType device) const {
  const auto found = backends_.find(device);
  if (found != backends_.end()) return *found->second;
  std::vector<std::string> names;
  for (const auto& [type, backend] : backends_) {
    names.push_back(absl::StrCat(std::string(backend->name()), " for ",
                                 c10::DeviceTypeName(type, /*lower_case=*/true)));
  }
  throw RpcError(ErrorCode::kUnimplemented,
                 absl::StrFormat("the group '%s' has no backend for tensors on %s; it has %s. See "
                                 "GroupOptions::backend",
                                 setup_.name, c10::DeviceTypeName(device, /*lower_case=*/true),
                                 absl::StrJoin(names, ", ")));
}

bool GroupEngine::needs_check_locked(const CallSignature& signature) const {
  if (setup_.size == 1 || setup_.checks == GroupChecks::kNever) return false;
  return setup_.checks == GroupChecks::kAlways || !agreed_.contains(signature.key());
}

void GroupEngine::submit(Operation operation) {
  auto pending = std::make_shared<Pending>();
  pending->deadline = deadline_after(operation.timeout.value_or(setup_.timeout));
  const bool collective = is_collective(operation);
  pending->operation = std::move(operation);
  Id id = 0;
  bool issues = !collective;
  {
    MutexLock lock(mutex_);
    const absl::StatusOr<Id> begun = life_.begin();
    if (!begun.ok()) throw_error(begun.status());
    id = *begun;
    pending_.emplace(id, pending);
    if (collective) {
      pending->number = ++last_number_;
      queue_.push_back(id);
      if (!is_issuing_) issues = is_issuing_ = true;
    }
  }
  if (collective && issues) {
    issue_queued();
  } else if (issues) {
    issue(id);
  }
  arm(id);
}

// By one thread at a time: the order is that of the queue.
void GroupEngine::issue_queued() {
  for (;;) {
    Id id = 0;
    bool checks = false;
    {
      MutexLock lock(mutex_);
      std::shared_ptr<Pending> pending;
      while (pending == nullptr) {
        if (queue_.empty()) {
          is_issuing_ = false;
          return;
        }
        id = queue_.front();
        queue_.pop_front();
        const auto found = pending_.find(id);
        if (found != pending_.end()) pending = found->second;
      }
      checks = needs_check_locked(pending->operation.signature);
    }
    // Goes on when the ranks have compared.
    if (checks) return start_check(id);
    issue(id);
  }
}

void GroupEngine::issue(Id id) {
  std::shared_ptr<Pending> pending;
  {
    MutexLock lock(mutex_);
    const auto found = pending_.find(id);
    if (found == pending_.end()) return;
    pending = found->second;
  }
  const Operation& operation = pending->operation;
  try {
    Backend& backend = backend_for(operation.device);
    backend.announce(operation.signature.function, digest_of(operation));
    follow(id, operation.signature.function, backend, operation.start(backend.c10d()));
  } catch (...) {
    on_work_done(id, std::current_exception(), -1);
  }
}

void GroupEngine::start_check(Id id) {
  std::shared_ptr<Pending> pending;
  {
    MutexLock lock(mutex_);
    const auto found = pending_.find(id);
    if (found == pending_.end()) {
      runtime_.executor().post([self = shared_from_this()] { self->issue_queued(); });
      return;
    }
    pending = found->second;
  }
  try {
    Backend& backend = backend_for(pending->operation.device);
    const auto device = at::device(pending->operation.device).dtype(at::kLong);
    const std::vector<std::int64_t> own = pending->operation.signature.encode(size());
    const auto count = static_cast<std::int64_t>(own.size());
    std::vector<at::Tensor> input{
        at::tensor(own, at::device(at::kCPU).dtype(at::kLong)).to(pending->operation.device)};
    std::vector<std::vector<at::Tensor>> outputs(1);
    for (int rank = 0; rank < size(); ++rank) outputs[0].push_back(at::empty({count}, device));
    backend.announce(Function::kAllGather, kCheckDigest);
    c10::intrusive_ptr<c10d::Work> work = backend.c10d().allgather(outputs, input);
    const auto compare = [self = shared_from_this(), id, outputs,
                          work](const std::exception_ptr& error) {
      absl::Status agreed;
      if (error == nullptr) {
        std::vector<std::optional<CallSignature>> signatures;
        for (const at::Tensor& output : outputs[0]) {
          const at::Tensor numbers = output.cpu();
          signatures.push_back(
              CallSignature::decode(numbers.data_ptr<std::int64_t>(), self->size()));
        }
        agreed = check_agreement(signatures);
      }
      self->on_checked(id, agreed, error);
    };
    if (!backend.has_future(Function::kAllGather)) {
      runtime_.executor().post([work, compare] {
        std::exception_ptr error;
        try {
          const Executor::BlockingScope blocking;
          work->wait();
        } catch (...) {
          error = std::current_exception();
        }
        compare(error);
      });
      return;
    }
    work->getFuture()->addCallback([compare, this](c10::ivalue::Future& future) {
      const std::exception_ptr error = future.hasError() ? future.exception_ptr() : nullptr;
      runtime_.executor().post([compare, error] { compare(error); });
    });
  } catch (...) {
    on_checked(id, absl::OkStatus(), std::current_exception());
  }
}

void GroupEngine::on_checked(Id id, const absl::Status& agreed, const std::exception_ptr& error) {
  if (error != nullptr) {
    on_work_done(id, error, -1);
  } else if (!agreed.ok()) {
    // Nothing has been done to any tensor, and all ranks know: the group can go on.
    end(id, make_error(agreed), -1);
  } else {
    {
      MutexLock lock(mutex_);
      const auto found = pending_.find(id);
      if (found != pending_.end()) {
        if (agreed_.size() >= kMostAgreed) agreed_.clear();
        agreed_.insert(found->second->operation.signature.key());
      }
    }
    issue(id);
  }
  issue_queued();
}

void GroupEngine::follow(Id id, Function function, Backend& backend,
                         const c10::intrusive_ptr<c10d::Work>& work) {
  if (backend.has_future(function)) {
    work->getFuture()->addCallback([self = shared_from_this(), id](c10::ivalue::Future& future) {
      self->on_work_done(id, future.hasError() ? future.exception_ptr() : nullptr, -1);
    });
    return;
  }
  const auto wait = [self = shared_from_this(), id, work, function] {
    std::exception_ptr error;
    int source = -1;
    try {
      const Executor::BlockingScope blocking;
      work->wait();
      if (function == Function::kRecvAnySource) source = work->sourceRank();
    } catch (...) {
      error = std::current_exception();
    }
    self->on_work_done(id, error, source);
  };
  if (work->isCompleted()) {
    wait();
  } else {
    runtime_.executor().post(wait);
  }
}

void GroupEngine::on_work_done(Id id, const std::exception_ptr& error, int source) {
  std::shared_ptr<Pending> pending;
  {
    MutexLock lock(mutex_);
    const auto found = pending_.find(id);
    if (found == pending_.end()) return;
    pending = found->second;
  }
  if (error == nullptr) {
    std::exception_ptr failed;
    try {
      if (pending->operation.finish) pending->operation.finish();
    } catch (...) {
      failed = std::current_exception();
    }
    return end(id, failed, source);
  }
  // The operation is told when it is known why: with the group.
  runtime_.executor().post([self = shared_from_this(), error, pending] {
    self->fail(self->reason_of(error, pending->operation));
  });
}

void GroupEngine::end(Id id, const std::exception_ptr& error, int source) {
  std::shared_ptr<Pending> pending;
  Timers::TimerId timer = 0;
  {
    MutexLock lock(mutex_);
    if (!life_.end(id)) return;
    const auto found = pending_.find(id);
    pending = std::move(found->second);
    timer = pending->timer;
    pending_.erase(found);
  }
  if (timer != 0) runtime_.timers().cancel(timer);
  pending->operation.done(error, source);
}

void GroupEngine::arm(Id id) {
  MutexLock lock(mutex_);
  const auto found = pending_.find(id);
  if (found == pending_.end()) return;
  Pending& pending = *found->second;
  const Clock::TimePoint now = Clock::system().now();
  const std::chrono::nanoseconds first =
      std::min<std::chrono::nanoseconds>(kLookAfter, (pending.deadline - now) / kLooksInLimit);
  pending.timer = runtime_.timers().run_at(now + first, [weak = weak_from_this(), id] {
    if (auto self = weak.lock()) self->on_timer(id);
  });
}

void GroupEngine::on_timer(Id id) {
  bool is_over = false;
  {
    MutexLock lock(mutex_);
    const auto found = pending_.find(id);
    if (found == pending_.end()) return;
    Pending& pending = *found->second;
    const Clock::TimePoint now = Clock::system().now();
    is_over = now >= pending.deadline;
    if (!is_over) {
      pending.timer =
          runtime_.timers().run_at(std::min<Clock::TimePoint>(pending.deadline, now + kLookAgain),
                                   [weak = weak_from_this(), id] {
                                     if (auto self = weak.lock()) self->on_timer(id);
                                   });
    }
  }
  runtime_.executor().post([self = shared_from_this(), id, is_over] {
    if (is_over) {
      self->time_out(id);
    } else {
      self->look(id);
    }
  });
}

void GroupEngine::look(Id id) {
  std::shared_ptr<Pending> pending;
  {
    MutexLock lock(mutex_);
    const auto found = pending_.find(id);
    if (found == pending_.end() || life_.state() != GroupLife::State::kOpen) return;
    pending = found->second;
    // Only the oldest collective is written: nobody can be at a later one without it.
    for (const auto& [other, entry] : pending_) {
      if (entry->number != 0 && entry->number < pending->number) return;
    }
  }
  const absl::Status over = board_.end();
  if (!over.ok()) return fail(over);
  if (pending->number == 0) return;
  board_.publish(pending->number, pending->operation.signature);
  const absl::Status agreed = board_.check_agreement(pending->number, pending->operation.signature);
  if (!agreed.ok()) fail(agreed);
}

void GroupEngine::time_out(Id id) {
  std::shared_ptr<Pending> pending;
  {
    MutexLock lock(mutex_);
    const auto found = pending_.find(id);
    if (found == pending_.end()) return;
    pending = found->second;
  }
  const Operation& operation = pending->operation;
  std::string text = absl::StrCat(operation.signature.text(), " was not done within ",
                                  seconds_text(operation.timeout.value_or(setup_.timeout)));
  if (pending->number == 0) {
    absl::StrAppend(&text, operation.peer < 0
                               ? ": nobody has sent anything"
                               : absl::StrCat(": ", member_text(operation.peer), " has not come"));
    return fail(absl::DeadlineExceededError(text));
  }
  board_.publish(pending->number, operation.signature);
  const absl::Status agreed = board_.check_agreement(pending->number, operation.signature);
  if (!agreed.ok()) return fail(agreed);
  const std::vector<int> missing = board_.missing_ranks(pending->number);
  const std::vector<int> awaited = backend_for(operation.device).awaited_ranks();
  if (!missing.empty()) {
    absl::StrAppend(&text, ": ", rank_list(missing),
                    missing.size() == 1 ? " has not come to it" : " have not come to it");
  } else if (!awaited.empty()) {
    absl::StrAppend(&text, ": data of ", rank_list(awaited), " have not come");
  }
  fail(absl::DeadlineExceededError(text));
}

std::optional<Worker> GroupEngine::worker() const {
  const auto services = watched_.lock();
  if (services == nullptr) return std::nullopt;
  return services->handle();
}

void GroupEngine::watch(const Worker& worker) {
  watched_ = WorkerAccess::services(worker)->weak_services();
  watch_ = worker.on_member([weak = weak_from_this()](const MemberEvent& event) {
    const auto self = weak.lock();
    if (self == nullptr) return;
    if (event.kind == MemberEvent::Kind::kEvicted) {
      self->runtime_.executor().post([self, reason = event.reason] {
        self->fail(absl::AbortedError(absl::StrCat("this worker is out of its job: ", reason)));
      });
      return;
    }
    if (event.kind != MemberEvent::Kind::kLost) return;
    const auto& workers = self->setup_.workers;
    const auto found = std::find(workers.begin(), workers.end(), event.worker);
    if (found == workers.end()) return;
    self->on_lost(static_cast<int>(found - workers.begin()), event.reason);
  });
  // Who was lost before the watch began.
  const std::vector<WorkerInfo> alive = worker.workers();
  for (int rank = 0; rank < size(); ++rank) {
    const WorkerInfo& member = setup_.workers[static_cast<std::size_t>(rank)];
    if (std::find(alive.begin(), alive.end(), member) == alive.end()) {
      on_lost(rank, "it has gone");
    }
  }
}

void GroupEngine::on_lost(int rank, const std::string& reason) {
  // This waits for the store, which may be at the lost worker: not on the worker's thread.
  runtime_.executor().post([self = shared_from_this(), rank, reason] {
    self->fail(absl::UnavailableError(absl::StrCat(self->member_text(rank), " is lost: ", reason)));
  });
}

std::string GroupEngine::member_text(int rank) const {
  const auto at = static_cast<std::size_t>(rank);
  if (at >= setup_.workers.size()) return absl::StrCat("rank ", rank);
  return absl::StrCat("rank ", rank, " (worker '", setup_.workers[at].name, "')");
}

absl::Status GroupEngine::reason_of(const std::exception_ptr& error,
                                    const Operation& operation) const {
  const ErrorInfo info = describe(error);
  const int broken = backend_for(operation.device).broken_rank();
  if (broken >= 0) {
    return absl::UnavailableError(absl::StrCat(
        member_text(broken), " has ended or left the group: its connection broke during ",
        operation.signature.text(), " (", info.message, ")"));
  }
  return absl::Status(info.code,
                      absl::StrCat(operation.signature.text(), " failed: ", info.message));
}

void GroupEngine::fail(const absl::Status& reason) {
  {
    MutexLock lock(mutex_);
    if (!life_.begin_failing(reason)) return;
  }
  // Before connections are closed: whoever notices that is to find the reason here.
  const absl::Status agreed = board_.agree_on_end(reason);
  std::vector<Pending> ended;
  {
    MutexLock lock(mutex_);
    ended = take(life_.fail(agreed));
  }
  abort_backends(agreed);
  const std::exception_ptr error = make_error(agreed);
  for (Pending& pending : ended) pending.operation.done(error, -1);
}

void GroupEngine::abort_backends(const absl::Status& reason) {
  for (const auto& [device, backend] : backends_) backend->abort(reason);
}

std::vector<GroupEngine::Pending> GroupEngine::take(const std::vector<Id>& ids) {
  mutex_.assert_held();
  std::vector<Pending> taken;
  for (const Id id : ids) {
    const auto found = pending_.find(id);
    if (found == pending_.end()) continue;
    if (found->second->timer != 0) runtime_.timers().cancel(found->second->timer);
    taken.push_back(*found->second);
    pending_.erase(found);
  }
  queue_.clear();
  return taken;
}

void GroupEngine::destroy() {
  std::vector<Pending> ended;
  {
    MutexLock lock(mutex_);
    if (life_.state() == GroupLife::State::kDestroyed) return;
    ended = take(life_.destroy());
  }
  watch_.end();
  const absl::Status reason =
      absl::CancelledError(absl::StrCat("the group '", setup_.name, "' was destroyed here"));
  abort_backends(reason);
  const std::exception_ptr error = make_error(reason);
  for (Pending& pending : ended) pending.operation.done(error, -1);
}

}  // namespace sinew::internal
