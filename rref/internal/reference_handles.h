#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/process_life.h"
#include "sinew/rpc/base/worker_end.h"
#include "sinew/rpc/cancellation.h"
#include "sinew/rref/internal/reference_handle.h"
#include "sinew/rref/internal/reference_manager.h"

namespace sinew::internal {

/// What became of the call that makes a user's value, shared by that call and the handle.
class Creation {
 public:
  explicit Creation(Executor* executor) : ended_(executor) {}

  /// The call's outcome, published once the ledger knows it too.
  Future<void> ended() const { return ended_.future(); }
  void succeed() { ended_.try_set_value(); }
  /// Keeps what was thrown: the ledger, which is told next, keeps only a status.
  void keep_failure(std::exception_ptr error);
  void fail(std::exception_ptr error);
  /// Cancels what uses a value that is not going to be.
  CancellationToken failed() const { return failed_.token(); }
  /// Null unless the call has failed.
  std::exception_ptr failure() const;

 private:
  const Promise<void> ended_;
  CancellationSource failed_;
  mutable Mutex mutex_;
  std::exception_ptr failure_ ABSL_GUARDED_BY(mutex_);
};

/// A handle at a user. Holds its worker weakly: references may lie in values that the worker itself
/// keeps.
class UserHandle final : public ReferenceHandle, public std::enable_shared_from_this<UserHandle> {
 public:
  UserHandle(ReferenceManager& manager, WorkerInfo owner, RRefId rref, ForkId fork,
             std::string type_name, std::shared_ptr<Creation> creation);
  ~UserHandle() override;

  bool is_owner() const override { return false; }
  const WorkerInfo& owner() const override { return owner_; }
  bool confirmed() const override;
  Future<void> created() const override;
  Future<AnyValue> value_async(const CallOptions& options) const override;
  AnyValue local(const std::type_info& type, const CallOptions& options) const override;
  Peer owner_peer() const override;
  std::string to_string() const override;
  void write_target(CallBuilder& call) const override;
  void write_to(proto::Reference& out, MessageRoute& route) override;

 private:
  [[noreturn]] void throw_not_owner() const;
  enum class OwnerLost { kIsAnError, kLinkSaysWhy };
  void throw_if_unusable(OwnerLost owner_lost) const;
  std::optional<absl::Status> loss_of_owner(WorkerServices& services) const;

  const std::weak_ptr<ReferenceManager> manager_;
  const std::weak_ptr<WorkerServices> services_;
  const std::shared_ptr<const WorkerEnd> end_;
  const WorkerInfo owner_;
  const RRefId rref_;
  const ForkId fork_;
  const std::string type_name_;
  // Null at a worker that the reference was passed to.
  const std::shared_ptr<Creation> creation_;
};

/// A handle at the owner. A value that was never shared is in no table.
class OwnerHandle final : public ReferenceHandle, public std::enable_shared_from_this<OwnerHandle> {
 public:
  /// A value of the program.
  OwnerHandle(ReferenceManager& manager, std::shared_ptr<ValueSlot> slot, std::string type_name);
  /// One that is in the table, with a handle counted for this one.
  OwnerHandle(ReferenceManager& manager, std::shared_ptr<ValueSlot> slot, std::string type_name,
              RRefId rref);
  /// One that came back to its owner before the call that makes it: `confirmation` tells when it is
  /// there.
  OwnerHandle(ReferenceManager& manager, std::string type_name, RRefId rref, ForkId waiting,
              const Future<void>& confirmation);
  ~OwnerHandle() override;

  bool is_owner() const override { return true; }
  const WorkerInfo& owner() const override { return self_; }
  bool confirmed() const override { return true; }
  Future<void> created() const override;
  Future<AnyValue> value_async(const CallOptions& options) const override;
  AnyValue local(const std::type_info& type, const CallOptions& options) const override;
  Peer owner_peer() const override;
  std::string to_string() const override;
  void write_target(CallBuilder& call) const override;
  void write_to(proto::Reference& out, MessageRoute& route) override;

 private:
  std::shared_ptr<ReferenceManager> manager() const;
  std::shared_ptr<ValueSlot> slot() const;
  RRefId shared_id(ReferenceManager& manager) const;

  const std::weak_ptr<ReferenceManager> manager_;
  const ProcessBound process_;
  const std::weak_ptr<WorkerServices> services_;
  const std::shared_ptr<const WorkerEnd> end_;
  const WorkerInfo self_;
  const std::string type_name_;
  const Future<void> confirmation_;
  const ForkId waiting_;

  mutable Mutex mutex_;
  mutable std::shared_ptr<ValueSlot> slot_ ABSL_GUARDED_BY(mutex_);
  // Empty until the value is in the table.
  mutable RRefId rref_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
