#include "sinew/rref/internal/reference_handles.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_format.h"
#include "sinew/rpc.pb.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/calls/call_link.h"
#include "sinew/rpc/calls/type_text.h"
#include "sinew/rpc/calls/worker_services.h"
#include "sinew/rref/internal/ledger_codec.h"

namespace sinew::internal {
namespace {

absl::Status ended(const WorkerEnd& worker) {
  return worker.with("its references have been deleted");
}

[[noreturn]] void throw_ended(const WorkerEnd& worker) { throw_error(ended(worker)); }

// A fork of it holds what its parent holds, and has nothing to say to anybody.
bool is_in_its_process(const ReferenceManager& manager) {
  return !manager.services().process().is_orphan();
}

// The reason is no longer stored.
absl::Status lost_long_ago(const WorkerInfo& owner) {
  return about_peer(absl::UnavailableError(
                        absl::StrFormat("worker '%s' is lost, or has left the job", owner.name)),
                    owner.name);
}

// Never throws: the caller may ask because a call has failed.
Peer peer_to(const std::weak_ptr<WorkerServices>& weak, const WorkerEnd& end,
             const WorkerInfo& owner) {
  std::shared_ptr<WorkerServices> services = weak.lock();
  if (services != nullptr && services->process().is_orphan()) {
    return PeerAccess::make_gone(owner, services->process().check());
  }
  if (services == nullptr || !services->is_running()) {
    return PeerAccess::make_gone(owner, ended(end));
  }
  absl::StatusOr<std::shared_ptr<CallLink>> link = services->link(owner);
  if (!link.ok()) return PeerAccess::make_gone(owner, lost_long_ago(owner));
  return PeerAccess::make(std::move(services), *std::move(link));
}

AnyValue checked(const AnyValue& value, const std::type_info& type) {
  if (*value.type != type) {
    throw RpcError(ErrorCode::kFailedPrecondition,
                   absl::StrFormat("the reference is to a %s, but it is used as one to a %s",
                                   type_text(*value.type), type_text(type)));
  }
  return value;
}

std::chrono::nanoseconds checked_timeout(const CallOptions& options,
                                         const WorkerServices& services) {
  const std::chrono::nanoseconds timeout = options.timeout.value_or(services.default_timeout());
  if (timeout > std::chrono::nanoseconds(0)) return timeout;
  throw RpcError(ErrorCode::kInvalidArgument,
                 absl::StrFormat("a timeout must be positive, or kNoTimeout; this one is %d ns",
                                 timeout.count()));
}

void check_receiver(const MessageRoute& route) {
  if (route.peer().rank >= 0) return;
  throw RpcError(ErrorCode::kInvalidArgument,
                 "a reference can be passed to a worker only, not to a client that is none");
}

}  // namespace

// ---- Any handle

Future<AnyValue> ReferenceHandle::local_async(const std::type_info& type,
                                              const CallOptions& options) const {
  return value_async(options).then([&type](const AnyValue& made) { return checked(made, type); });
}

// ---- Creation

void Creation::keep_failure(std::exception_ptr error) {
  MutexLock lock(mutex_);
  failure_ = std::move(error);
}

void Creation::fail(std::exception_ptr error) {
  ended_.try_set_error(std::move(error));
  failed_.cancel();
}

std::exception_ptr Creation::failure() const {
  MutexLock lock(mutex_);
  return failure_;
}

// ---- UserHandle

UserHandle::UserHandle(ReferenceManager& manager, WorkerInfo owner, RRefId rref, ForkId fork,
                       std::string type_name, std::shared_ptr<Creation> creation)
    : manager_(manager.weak_from_this()),
      services_(manager.services().weak_services()),
      end_(manager.services().end()),
      owner_(std::move(owner)),
      rref_(rref),
      fork_(fork),
      type_name_(std::move(type_name)),
      creation_(std::move(creation)) {}

UserHandle::~UserHandle() {
  const std::shared_ptr<ReferenceManager> manager = manager_.lock();
  if (manager != nullptr && is_in_its_process(*manager)) manager->release_user(fork_);
}

void UserHandle::throw_if_unusable(OwnerLost owner_lost) const {
  const std::shared_ptr<ReferenceManager> manager = manager_.lock();
  if (manager == nullptr) throw_ended(*end_);
  manager->services().process().require();
  const absl::StatusOr<ledger::UserView> view = manager->view(fork_);
  if (!view.ok()) {
    // What the creating call threw says more than the status that the ledger keeps of it.
    if (creation_ != nullptr) {
      if (const std::exception_ptr error = creation_->failure()) std::rethrow_exception(error);
    }
    if (!absl::IsUnavailable(view.status())) throw_error(view.status());
    if (owner_lost == OwnerLost::kLinkSaysWhy) return;
    throw_error(loss_of_owner(manager->services()).value_or(view.status()));
  }
  if (view->state == ledger::UserView::State::kUnconfirmed) {
    throw RpcError(ErrorCode::kFailedPrecondition,
                   absl::StrFormat("%s is not confirmed by its owner yet", to_string()));
  }
}

// As calls to the owner say it. None: it is not known yet who is out, the owner or this worker.
std::optional<absl::Status> UserHandle::loss_of_owner(WorkerServices& services) const {
  if (absl::Status evicted = services.evicted(); !evicted.ok()) return evicted;
  const absl::StatusOr<std::shared_ptr<CallLink>> link = services.link(owner_);
  if (!link.ok()) return lost_long_ago(owner_);
  const absl::Status why = (*link)->retired();
  return why.ok() ? std::nullopt : std::make_optional(about_peer(why, owner_.name));
}

Future<void> UserHandle::created() const {
  return creation_ == nullptr ? make_ready_future() : creation_->ended();
}

bool UserHandle::confirmed() const {
  const std::shared_ptr<ReferenceManager> manager = manager_.lock();
  if (manager == nullptr || !is_in_its_process(*manager)) return false;
  const absl::StatusOr<ledger::UserView> view = manager->view(fork_);
  return view.ok() && view->confirmed_by_owner;
}

void UserHandle::throw_not_owner() const {
  const std::shared_ptr<ReferenceManager> manager = manager_.lock();
  throw RpcError(
      ErrorCode::kFailedPrecondition,
      absl::StrFormat(
          "%s has its value at worker '%s', this is worker '%s': fetch a copy with to_here(), "
          "or call a method through the reference",
          to_string(), owner_.name, manager == nullptr ? "?" : manager->self().name));
}

Future<AnyValue> UserHandle::value_async(const CallOptions&) const { throw_not_owner(); }

AnyValue UserHandle::local(const std::type_info&, const CallOptions&) const { throw_not_owner(); }

Peer UserHandle::owner_peer() const { return peer_to(services_, *end_, owner_); }

std::string UserHandle::to_string() const {
  return absl::StrFormat("UserRRef(%s, %s, %s at worker '%s')", ledger::describe(rref_),
                         ledger::describe(fork_), type_name_, owner_.name);
}

// That the owner is lost its link knows first-hand, and also when it may be this worker that is
// out: the call waits there for the verdict, as all calls to the owner do.
void UserHandle::write_target(CallBuilder& call) const {
  throw_if_unusable(OwnerLost::kLinkSaysWhy);
  proto::Reference& target = call.target();
  write_id(rref_, *target.mutable_rref());
  write_id(fork_, *target.mutable_fork());
  // A Delete must not overtake this use, nor one that repeats it.
  call.route().keep_alive(shared_from_this());
  if (call.route().may_be_repeated()) {
    call.route().when_repeated([self = shared_from_this()](MessageRoute& route) {
      self->throw_if_unusable(OwnerLost::kLinkSaysWhy);
      route.keep_alive(self);
    });
  }
  // The use may wait at the owner for an object that is not going to be made, or find that the
  // owner has forgotten it.
  if (creation_ != nullptr && !creation_->ended().done()) {
    call.cancel_with(creation_->failed());
    call.explain_errors([creation = creation_] { return creation->failure(); });
  }
}

void UserHandle::write_to(proto::Reference& out, MessageRoute& route) {
  check_receiver(route);
  throw_if_unusable(OwnerLost::kIsAnError);
  const std::shared_ptr<ReferenceManager> manager = manager_.lock();
  if (manager == nullptr) throw_ended(*end_);
  absl::StatusOr<ledger::ForkRecord> record = manager->share_user(fork_, route);
  if (!record.ok()) throw_error(record.status());
  record->type_name = type_name_;
  write_record(*record, out);
  route.carries_reference(manager->on_carrier_end(record->fork, route.deadline()));
  if (!route.may_be_repeated()) return;
  route.when_repeated(
      [self = shared_from_this(), &out](MessageRoute& again) { self->write_to(out, again); });
}

// ---- OwnerHandle

OwnerHandle::OwnerHandle(ReferenceManager& manager, std::shared_ptr<ValueSlot> slot,
                         std::string type_name)
    : OwnerHandle(manager, std::move(slot), std::move(type_name), RRefId()) {}

OwnerHandle::OwnerHandle(ReferenceManager& manager, std::shared_ptr<ValueSlot> slot,
                         std::string type_name, RRefId rref)
    : manager_(manager.weak_from_this()),
      services_(manager.services().weak_services()),
      end_(manager.services().end()),
      self_(manager.self()),
      type_name_(std::move(type_name)),
      slot_(std::move(slot)),
      rref_(rref) {}

OwnerHandle::OwnerHandle(ReferenceManager& manager, std::string type_name, RRefId rref,
                         ForkId waiting, const Future<void>& confirmation)
    : manager_(manager.weak_from_this()),
      services_(manager.services().weak_services()),
      end_(manager.services().end()),
      self_(manager.self()),
      type_name_(std::move(type_name)),
      confirmation_(confirmation),
      waiting_(waiting),
      rref_(rref) {}

OwnerHandle::~OwnerHandle() {
  const std::shared_ptr<ReferenceManager> manager = manager_.lock();
  if (manager == nullptr || !is_in_its_process(*manager)) return;
  const bool never_came = confirmation_.valid() && !confirmation_.done();
  MutexLock lock(mutex_);
  if (never_came) {
    manager->release_user(waiting_);
  } else if (!rref_.empty() && !(confirmation_.valid() && confirmation_.error() != nullptr)) {
    manager->release_owned(rref_);
  }
}

std::shared_ptr<ReferenceManager> OwnerHandle::manager() const {
  std::shared_ptr<ReferenceManager> manager = manager_.lock();
  if (manager == nullptr) throw_ended(*end_);
  manager->services().process().require();
  return manager;
}

std::shared_ptr<ValueSlot> OwnerHandle::slot() const {
  process_.require();
  MutexLock lock(mutex_);
  if (slot_ == nullptr) {
    // A value that came back early is there once it is confirmed.
    confirmation_.value();
    slot_ = manager()->slot(rref_);
    if (slot_ == nullptr) {
      throw RpcError(ErrorCode::kFailedPrecondition,
                     absl::StrFormat("%s has been deleted", ledger::describe(rref_)));
    }
  }
  return slot_;
}

Future<void> OwnerHandle::created() const {
  try {
    return slot()->future.then([](const AnyValue&) {});
  } catch (const RpcError& error) {
    return make_failed_future<void>(std::make_exception_ptr(error));
  }
}

Future<AnyValue> OwnerHandle::value_async(const CallOptions& options) const {
  const Future<AnyValue> value = slot()->future;
  if (value.done()) return value;
  const std::shared_ptr<WorkerServices> services = services_.lock();
  if (services == nullptr) throw_ended(*end_);
  const auto timeout = checked_timeout(options, *services);
  const Clock::TimePoint now = services->clock().now();
  if (timeout >= Clock::TimePoint::max() - now) return value;
  const Promise<AnyValue> promise(services->executor().get());
  const Timers::TimerId timer =
      services->timers().run_at(now + timeout, [promise, text = to_string()] {
        promise.try_set_error(RpcError(
            ErrorCode::kDeadlineExceeded,
            absl::StrFormat("%s has no value yet: the call that makes it has not ended", text)));
      });
  value.on_done([promise, timer, weak = services_](const Future<AnyValue>& done) {
    if (const auto running = weak.lock()) running->timers().cancel(timer);
    if (const std::exception_ptr error = done.error()) {
      promise.try_set_error(error);
    } else {
      promise.try_set_value(done.value());
    }
  });
  return promise.future();
}

AnyValue OwnerHandle::local(const std::type_info& type, const CallOptions& options) const {
  const Future<AnyValue> value = slot()->future;
  if (value.done()) return checked(value.wait(), type);
  return local_async(type, options).take();
}

Peer OwnerHandle::owner_peer() const { return peer_to(services_, *end_, self_); }

std::string OwnerHandle::to_string() const {
  MutexLock lock(mutex_);
  return absl::StrFormat("OwnerRRef(%s, %s)",
                         rref_.empty() ? "not shared" : ledger::describe(rref_), type_name_);
}

RRefId OwnerHandle::shared_id(ReferenceManager& manager) const {
  const std::shared_ptr<ValueSlot> value = slot();
  MutexLock lock(mutex_);
  if (rref_.empty())
    rref_ = manager.own(value, ledger::ValueState::kReady, type_name_, "a value of this program");
  return rref_;
}

void OwnerHandle::write_target(CallBuilder& call) const {
  const std::shared_ptr<ReferenceManager> owner = manager();
  // No fork: the worker uses its own value.
  write_id(shared_id(*owner), *call.target().mutable_rref());
  call.route().keep_alive(shared_from_this());
  if (call.route().may_be_repeated()) {
    call.route().when_repeated(
        [self = shared_from_this()](MessageRoute& route) { route.keep_alive(self); });
  }
}

void OwnerHandle::write_to(proto::Reference& out, MessageRoute& route) {
  check_receiver(route);
  const std::shared_ptr<ReferenceManager> owner = manager();
  absl::StatusOr<ledger::ForkRecord> record = owner->share_owned(shared_id(*owner), route);
  if (!record.ok()) throw_error(record.status());
  record->type_name = type_name_;
  write_record(*record, out);
  route.carries_reference(owner->on_carrier_end(record->fork, route.deadline()));
  if (!route.may_be_repeated()) return;
  route.when_repeated(
      [self = shared_from_this(), &out](MessageRoute& again) { self->write_to(out, again); });
}

}  // namespace sinew::internal
