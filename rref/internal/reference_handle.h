#pragma once

#include <memory>
#include <string>
#include <typeinfo>

#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/call_options.h"
#include "sinew/rpc/calls/call_builder.h"
#include "sinew/rpc/calls/extension.h"
#include "sinew/rpc/peer.h"
#include "sinew/rpc/worker.h"

// What RRef<T> is made of, without T.
namespace sinew::internal {

/// One local handle, shared by all copies of an RRef. Its destructor gives the handle up.
/// Thread-safe.
class ReferenceHandle {
 public:
  virtual ~ReferenceHandle() = default;

  virtual bool is_owner() const = 0;
  virtual const WorkerInfo& owner() const = 0;
  virtual bool confirmed() const = 0;
  virtual Future<void> created() const = 0;
  /// The owner's value, once it is made; kFailedPrecondition elsewhere, or when it is of another
  /// type.
  Future<AnyValue> local_async(const std::type_info& type, const CallOptions& options) const;
  /// Of any type.
  virtual Future<AnyValue> value_async(const CallOptions& options) const = 0;
  virtual AnyValue local(const std::type_info& type, const CallOptions& options) const = 0;
  /// Never throws.
  virtual Peer owner_peer() const = 0;
  virtual std::string to_string() const = 0;
  /// Names the object in a call to its owner, for member functions and to_here. Throws when the
  /// reference has failed or was deleted; when its owner is lost the call fails. The handle stays
  /// alive until the call ends.
  virtual void write_target(CallBuilder& call) const = 0;
  /// Gives the receiver of a message a handle of its own. Throws like write_target, and
  /// when the owner is lost.
  virtual void write_to(proto::Reference& out, MessageRoute& route) = 0;
};

[[noreturn]] void throw_empty_reference();
/// For to_here() at the owner of what can be moved only.
[[noreturn]] void throw_not_copyable(const std::type_info& type);

void write_reference(ValueWriter& writer, const std::shared_ptr<ReferenceHandle>& handle,
                     const std::type_info& type);
std::shared_ptr<ReferenceHandle> read_reference(const ValueReader& reader,
                                                const std::type_info& type);
std::shared_ptr<ReferenceHandle> own_value(const Worker& worker, AnyValue value);

/// Starts a reference whose value a RETAIN call will make: fills call.retain() and returns the
/// handle. `pending` is completed by the call's outcome.
struct RemoteCreation {
  std::shared_ptr<ReferenceHandle> handle;
  std::unique_ptr<PendingCall> pending;
};
RemoteCreation begin_remote(CallBuilder& call, const Peer& owner, const std::type_info& type);

template <class T>
Future<T> fetch(const ReferenceHandle& handle, const Peer& owner) {
  CallBuilder call(owner, kFetchMethod, "");
  handle.write_target(call);
  call.set_idempotent();
  return send_for<T>(call);
}

}  // namespace sinew::internal
