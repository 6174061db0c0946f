#include "sinew/rref/rref.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "sinew/rpc.pb.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/calls/call_link.h"
#include "sinew/rpc/calls/type_text.h"
#include "sinew/rpc/calls/worker_services.h"
#include "sinew/rpc/wire/message_context.h"
#include "sinew/rref/internal/ledger_codec.h"
#include "sinew/rref/internal/reference_handles.h"
#include "sinew/rref/internal/reference_manager.h"

namespace sinew::internal {
namespace {

MessageRoute& route_of(MessageRoute* route) {
  if (route == nullptr) {
    throw RpcError(ErrorCode::kFailedPrecondition,
                   "an RRef can be written and read only as part of a call");
  }
  return *route;
}

/// The outcome of the call that makes a user's value.
class RemoteOutcome final : public PendingCall {
 public:
  RemoteOutcome(const std::shared_ptr<ReferenceManager>& manager, ForkId fork,
                std::shared_ptr<Creation> creation)
      : manager_(manager), fork_(fork), creation_(std::move(creation)) {}

  void on_reply(ReceivedReply reply) override {
    try {
      reply.throw_if_error();
    } catch (...) {
      on_error(std::current_exception());
      return;
    }
    if (auto manager = manager_.lock()) manager->create_succeeded(fork_);
    creation_->succeed();
  }

  void on_error(std::exception_ptr error) override {
    // In this order: code that sees the ledger's failure finds the exception, and code that sees
    // the call's end finds a reference that has failed.
    creation_->keep_failure(error);
    if (auto manager = manager_.lock()) manager->create_failed(fork_, to_status(error), deadline);
    creation_->fail(std::move(error));
  }

 private:
  const std::weak_ptr<ReferenceManager> manager_;
  const ForkId fork_;
  const std::shared_ptr<Creation> creation_;
};

/// The outcome of a call to this worker itself: its value is set by the call, its failure to run
/// here.
class LocalOutcome final : public PendingCall {
 public:
  LocalOutcome(const std::shared_ptr<ReferenceManager>& manager, RRefId rref)
      : manager_(manager), rref_(rref) {}

  void on_reply(ReceivedReply reply) override {
    try {
      reply.throw_if_error();
    } catch (...) {
      on_error(std::current_exception());
    }
  }

  void on_error(std::exception_ptr error) override {
    const auto manager = manager_.lock();
    if (manager == nullptr) return;
    proto::Retain retain;
    write_id(rref_, *retain.mutable_rref());
    manager->fail_retain(retain, std::move(error));
  }

 private:
  const std::weak_ptr<ReferenceManager> manager_;
  const RRefId rref_;
};

}  // namespace

void throw_empty_reference() {
  throw RpcError(ErrorCode::kFailedPrecondition, "an empty RRef was used: it refers to nothing");
}

void throw_not_copyable(const std::type_info& type) {
  throw RpcError(
      ErrorCode::kFailedPrecondition,
      absl::StrFormat("a %s cannot be copied: at its owner, use local_value() instead of to_here()",
                      type_text(type)));
}

void write_reference(ValueWriter& writer, const std::shared_ptr<ReferenceHandle>& handle,
                     const std::type_info&) {
  if (handle == nullptr) throw_empty_reference();
  MessageRoute& route = route_of(writer.context().route());
  handle->write_to(writer.reference(), route);
}

std::shared_ptr<ReferenceHandle> read_reference(const ValueReader& reader,
                                                const std::type_info& type) {
  MessageRoute& route = route_of(reader.context().route());
  const std::shared_ptr<ReferenceManager> manager = ReferenceManager::of(route.services());
  absl::StatusOr<ledger::ForkRecord> record = read_record(reader.reference());
  if (!record.ok()) reader.fail(std::string(record.status().message()));
  const bool own = record->owner.incarnation == manager->self().incarnation;
  // Not the caller's mistake: the owner was lost here first, or has joined a moment ago.
  if (!own && !route.services().directory().find(record->owner).ok()) {
    throw RpcError(
        ErrorCode::kUnavailable,
        absl::StrFormat("%s: the owner of the reference, worker '%s', is not in the job as worker "
                        "'%s' sees it: it has gone, or has only just come",
                        reader.path().text(), printable(record->owner.name, 128),
                        manager->self().name));
  }
  absl::StatusOr<ReferenceManager::Arrived> arrived =
      manager->receive(*record, route.peer(), type_text(type));
  if (!arrived.ok()) throw_error(arrived.status());
  const ledger::Received& received = arrived->received;
  if (arrived->confirmation.valid()) route.wait_for(arrived->confirmation);
  if (received.role == ledger::Role::kUser) {
    return std::make_shared<UserHandle>(*manager, record->owner, received.rref, received.fork,
                                        type_text(type), nullptr);
  }
  if (arrived->confirmation.valid()) {
    return std::make_shared<OwnerHandle>(*manager, type_text(type), received.rref, received.fork,
                                         arrived->confirmation);
  }
  return std::make_shared<OwnerHandle>(*manager, manager->slot(received.rref), type_text(type),
                                       received.rref);
}

std::shared_ptr<ReferenceHandle> own_value(const Worker& worker, AnyValue value) {
  const auto services = WorkerAccess::services(worker);
  if (services == nullptr) {
    throw RpcError(ErrorCode::kFailedPrecondition,
                   "a reference was made with an empty Worker: start one with sinew::init_rpc()");
  }
  if (!services->is_running()) {
    throw_error(services->ended("no reference can be made there any more"));
  }
  const std::shared_ptr<ReferenceManager> manager = ReferenceManager::of(*services);
  const std::string type_name = type_text(*value.type);
  if (value.empty()) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrFormat("a reference was made to a null std::shared_ptr<%s>: it needs "
                                   "an object",
                                   type_name));
  }
  auto slot = std::make_shared<ValueSlot>(services->executor().get());
  slot->promise.set_value(std::move(value));
  return std::make_shared<OwnerHandle>(*manager, std::move(slot), type_name);
}

RemoteCreation begin_remote(CallBuilder& call, const Peer& owner, const std::type_info& type) {
  const auto& services = PeerAccess::services(owner);
  const std::shared_ptr<ReferenceManager> manager = ReferenceManager::of(*services);
  const std::string type_name = type_text(type);
  RemoteCreation creation;
  proto::Retain& retain = call.retain();
  if (owner.info() == services->self()) {
    auto slot = std::make_shared<ValueSlot>(services->executor().get());
    const RRefId rref = manager->own(slot, ledger::ValueState::kPending, type_name,
                                     "remote call of " + call.method());
    write_id(rref, *retain.mutable_rref());
    creation.handle = std::make_shared<OwnerHandle>(*manager, std::move(slot), type_name, rref);
    creation.pending = std::make_unique<LocalOutcome>(manager, rref);
    return creation;
  }
  absl::StatusOr<ledger::Created> created = manager->create(owner.info(), type_name, call.method());
  if (!created.ok()) {
    // Its link knows first-hand that the owner is lost.
    const absl::Status lost = PeerAccess::link(owner)->retired();
    throw_error(lost.ok() ? created.status() : about_peer(lost, owner.name()));
  }
  write_id(created->rref, *retain.mutable_rref());
  write_id(created->fork, *retain.mutable_fork());
  auto outcome = std::make_shared<Creation>(services->executor().get());
  creation.handle = std::make_shared<UserHandle>(*manager, owner.info(), created->rref,
                                                 created->fork, type_name, outcome);
  creation.pending = std::make_unique<RemoteOutcome>(manager, created->fork, std::move(outcome));
  return creation;
}

}  // namespace sinew::internal
