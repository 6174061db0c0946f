#include "sinew/groups/internal/group_engine.h"

#include <algorithm>
#include <utility>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sinew/groups/internal/store_timeout.h"
#include "sinew/rpc/base/credit.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {
namespace {

// More combinations than a program has; then those are compared anew.
constexpr std::size_t kMostAgreed = 65'536;
// Each receive that waits has a thread.
constexpr std::size_t kMostUnderWay = 1000;
constexpr std::uint16_t kCheckDigest = 0x5157;

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
  std::shared_ptr<GroupEngine> engine(new GroupEngine(std::move(setup), std::move(backends)));
  for (const auto& [device, backend] : engine->backends_) {
    backend->watch_broken([weak = std::weak_ptr<GroupEngine>(engine)] {
      if (const auto self = weak.lock()) self->on_broken();
    });
  }
  return engine;
}

void GroupEngine::on_broken() {
  // It may be the beginning of the end, whose reason goes with the one that serves the store.
  runtime_.executor().post([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->board_.end().IgnoreError();
  });
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
  return setup_.size > 1 && !agreed_.contains(signature.key());
}

void GroupEngine::check_open() const {
  MutexLock lock(mutex_);
  const absl::Status open = life_.check_open();
  if (!open.ok()) throw_error(open);
}

GroupEngine::Id GroupEngine::begin_operation_locked() {
  const absl::StatusOr<Id> begun = life_.begin();
  if (!begun.ok()) throw_error(begun.status());
  if (pending_.size() < kMostUnderWay) return *begun;
  life_.end(*begun);
  throw_error(absl::ResourceExhaustedError(absl::StrFormat(
      "%d operations of the group '%s' are under way already, which is the most that it takes",
      pending_.size(), setup_.name)));
}

absl::StatusOr<std::uint64_t> GroupEngine::begin_collective_locked(Operation& operation) {
  const std::uint64_t number = last_number_ + 1;
  if (setup_.size > 1) {
    operation.caller.thread = CollectiveCaller::this_thread();
    const std::optional<std::uint64_t> other = order_.begin(operation.caller, number);
    if (other) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "rank %d calls %s, collective %d of the group '%s', while another thread waits in its "
          "collective %d there. Which of them is first is chance, and may be otherwise at other "
          "ranks: each would get the other one's values. Give each thread a group of its own "
          "(new_group()), or wait for one before the other",
          rank(), operation.signature.text(), number, setup_.name, *other));
    }
  }
  last_number_ = number;
  return number;
}

void GroupEngine::submit(Operation operation) {
  auto pending = std::make_shared<Pending>();
  pending->deadline = deadline_after(operation.timeout.value_or(setup_.timeout));
  const bool collective = is_collective(operation);
  pending->run_on = backend_for(operation.device.type()).here(operation.device);
  pending->operation = std::move(operation);
  Id id = 0;
  bool issues = !collective;
  absl::Status ordered;
  {
    MutexLock lock(mutex_);
    id = begin_operation_locked();
    if (collective) {
      const auto number = begin_collective_locked(pending->operation);
      ordered = number.status();
      pending->number = number.value_or(0);
    }
    if (!ordered.ok()) {
      life_.end(id);
    } else {
      pending_.emplace(id, pending);
      if (collective) queue_.push_back(id);
      if (collective && !is_issuing_) issues = is_issuing_ = true;
    }
  }
  if (!ordered.ok()) fail_and_throw(ordered);
  if (collective && issues) {
    issue_queued();
  } else if (issues) {
    issue(id);
  }
  arm(id);
}

std::optional<int> GroupEngine::run_in_place(Operation& operation) {
  Backend& backend = backend_for(operation.device.type());
  if (!backend.is_waited_for_in_place() || !begin_in_place(operation)) return std::nullopt;
  c10::intrusive_ptr<c10d::Work> work;
  std::exception_ptr error;
  try {
    backend.announce(operation.signature.function, digest_of(operation));
    work = operation.start(backend.c10d());
  } catch (...) {
    error = std::current_exception();
  }
  // Others have their turn.
  if (is_collective(operation)) issue_queued();
  if (error != nullptr) fail_and_throw(reason_of(error, operation));
  wait_in_place(operation, work);
  return operation.signature.function == Function::kRecvAnySource ? work->sourceRank() : -1;
}

bool GroupEngine::begin_in_place(Operation& operation) {
  const bool collective = is_collective(operation);
  absl::Status ordered;
  {
    MutexLock lock(mutex_);
    if (collective && (is_issuing_ || !queue_.empty() || needs_check_locked(operation.signature))) {
      return false;
    }
    const absl::Status open = life_.check_open();
    if (!open.ok()) throw_error(open);
    if (!collective) return true;
    ordered = begin_collective_locked(operation).status();
    if (ordered.ok()) is_issuing_ = true;
  }
  if (!ordered.ok()) fail_and_throw(ordered);
  return true;
}

// Who fails or destroys the group ends this too: by the backend's abort().
void GroupEngine::wait_in_place(Operation& operation, const c10::intrusive_ptr<c10d::Work>& work) {
  const std::chrono::nanoseconds timeout = operation.timeout.value_or(setup_.timeout);
  {
    MutexLock lock(mutex_);
    in_place_[&operation] = is_collective(operation) ? last_number_ : 0;
  }
  const Credit seen([this, &operation] {
    MutexLock lock(mutex_);
    in_place_.erase(&operation);
  });
  try {
    work->wait(std::max(std::chrono::duration_cast<std::chrono::milliseconds>(timeout),
                        std::chrono::milliseconds(1)));
  } catch (...) {
    if (!work->isCompleted()) end_late(std::move(operation));
    fail_and_throw(reason_of(std::current_exception(), operation));
  }
  if (operation.finish) operation.finish();
  if (!is_collective(operation)) return;
  MutexLock lock(mutex_);
  order_.end(operation.caller);
}

// As one that was submitted and whose time is over.
void GroupEngine::end_late(Operation operation) {
  const Promise<void> promise(nullptr);
  operation.done = [promise](const std::exception_ptr& error, int) {
    promise.try_set_error(error);
  };
  auto pending = std::make_shared<Pending>();
  pending->run_on = backend_for(operation.device.type()).here(operation.device);
  pending->operation = std::move(operation);
  Id id = 0;
  {
    MutexLock lock(mutex_);
    id = begin_operation_locked();
    if (is_collective(pending->operation)) pending->number = last_number_;
    pending_.emplace(id, std::move(pending));
  }
  time_out(id);
  promise.future().wait();
  throw_error(absl::InternalError("an operation over its time limit has no error"));
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
  const std::shared_ptr<Pending> pending = find(id);
  if (pending == nullptr) return;
  const Operation& operation = pending->operation;
  try {
    Backend& backend = backend_for(operation.device.type());
    backend.announce(operation.signature.function, digest_of(operation));
    c10::intrusive_ptr<c10d::Work> work;
    run_on(*pending, [&] { work = operation.start(backend.c10d()); });
    follow(id, pending, backend, work);
  } catch (...) {
    on_work_failed(id, std::current_exception());
  }
}

/// Compares what the ranks call, by an operation of the backend.
struct GroupEngine::Check {
  std::vector<at::Tensor> input;
  std::vector<std::vector<at::Tensor>> outputs = std::vector<std::vector<at::Tensor>>(1);

  Check(const CallSignature& own, int size, c10::Device device) {
    const std::vector<std::int64_t> numbers = own.encode(size);
    input.push_back(at::tensor(numbers, at::device(at::kCPU).dtype(at::kLong)).to(device));
    for (int rank = 0; rank < size; ++rank) outputs[0].push_back(at::empty_like(input[0]));
  }

  absl::Status result(int size) const {
    SignaturesByRank signatures;
    for (int rank = 0; rank < size; ++rank) {
      const at::Tensor numbers = outputs[0][static_cast<std::size_t>(rank)].cpu();
      signatures[rank] = CallSignature::decode(numbers.data_ptr<std::int64_t>(), size);
    }
    return check_agreement(signatures);
  }
};

void GroupEngine::start_check(Id id) {
  const std::shared_ptr<Pending> pending = find(id);
  if (pending == nullptr) {
    runtime_.executor().post([self = shared_from_this()] { self->issue_queued(); });
    return;
  }
  const c10::Device device = pending->operation.device;
  try {
    Backend& backend = backend_for(device.type());
    backend.announce(Function::kAllGather, kCheckDigest);
    std::shared_ptr<Check> check;
    c10::intrusive_ptr<c10d::Work> work;
    run_on(*pending, [&] {
      check = std::make_shared<Check>(pending->operation.signature, size(), device);
      work = backend.c10d().allgather(check->outputs, check->input);
    });
    auto self = shared_from_this();
    if (!backend.has_future(Function::kAllGather)) {
      runtime_.executor().post([self, id, check, work, &backend, device] {
        std::exception_ptr error;
        absl::Status agreed;
        try {
          const Executor::BlockingScope blocking;
          backend.finish(*work, device, [&] { agreed = check->result(self->size()); });
        } catch (...) {
          error = std::current_exception();
        }
        self->on_checked(id, agreed, error);
      });
      return;
    }
    work->getFuture()->addCallback([self, id, check](c10::ivalue::Future& future) {
      const std::exception_ptr error = future.hasError() ? future.exception_ptr() : nullptr;
      // What follows may issue more, and this is a thread of the backend.
      self->runtime_.executor().post([self, id, check, error] {
        self->on_checked(id, error == nullptr ? check->result(self->size()) : absl::OkStatus(),
                         error);
      });
    });
  } catch (...) {
    on_checked(id, absl::OkStatus(), std::current_exception());
  }
}

void GroupEngine::on_checked(Id id, const absl::Status& agreed, const std::exception_ptr& error) {
  if (error != nullptr) {
    on_work_failed(id, error);
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

void GroupEngine::follow(Id id, const std::shared_ptr<Pending>& pending, Backend& backend,
                         const c10::intrusive_ptr<c10d::Work>& work) {
  const Function function = pending->operation.signature.function;
  if (backend.has_future(function)) {
    work->getFuture()->addCallback(
        [self = shared_from_this(), id, pending](c10::ivalue::Future& future) {
          if (future.hasError()) return self->on_work_failed(id, future.exception_ptr());
          std::exception_ptr error;
          try {
            if (pending->operation.finish) pending->operation.finish();
          } catch (...) {
            error = std::current_exception();
          }
          self->end(id, error, -1);
        });
    return;
  }
  const auto wait = [self = shared_from_this(), id, pending, work, function, &backend] {
    int source = -1;
    try {
      const Executor::BlockingScope blocking;
      backend.finish(*work, pending->operation.device, pending->operation.finish);
      if (function == Function::kRecvAnySource) source = work->sourceRank();
    } catch (...) {
      return self->on_work_failed(id, std::current_exception());
    }
    self->end(id, nullptr, source);
  };
  if (work->isCompleted()) {
    wait();
  } else {
    runtime_.executor().post(wait);
  }
}

void GroupEngine::on_work_failed(Id id, const std::exception_ptr& error) {
  const std::shared_ptr<Pending> pending = find(id);
  if (pending == nullptr) return;
  // The operation is told when it is known why: with the group.
  runtime_.executor().post([self = shared_from_this(), error, pending] {
    self->fail(self->reason_of(error, pending->operation));
  });
}

std::shared_ptr<GroupEngine::Pending> GroupEngine::find(Id id) const {
  MutexLock lock(mutex_);
  const auto found = pending_.find(id);
  return found == pending_.end() ? nullptr : found->second;
}

void GroupEngine::run_on(const Pending& pending, const std::function<void()>& f) {
  if (pending.run_on) {
    pending.run_on(f);
  } else {
    f();
  }
}

void GroupEngine::end(Id id, const std::exception_ptr& error, int source) {
  std::shared_ptr<Pending> pending;
  Timers::TimerId timer = 0;
  {
    MutexLock lock(mutex_);
    if (!life_.end(id)) return;
    const auto found = pending_.find(id);
    pending = std::move(found->second);
    if (pending->number != 0) order_.end(pending->operation.caller);
    timer = pending->timer;
    pending_.erase(found);
  }
  if (timer != 0) runtime_.timers().cancel(timer);
  pending->operation.done(error, source);
}

}  // namespace sinew::internal
