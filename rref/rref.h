#pragma once

#include <chrono>
#include <memory>
#include <ostream>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "sinew/rpc/call.h"
#include "sinew/rpc/call_context.h"
#include "sinew/rpc/worker.h"
#include "sinew/rref/internal/layer.h"
#include "sinew/rref/internal/reference_handle.h"

namespace sinew {

/// A counted reference to a value that stays at the worker which made it, its owner. Copies share
/// one local handle; passing an RRef in an argument or a result gives the receiver a handle of its
/// own. The value lives as long as any handle, anywhere, does. T can be any type, also one that
/// cannot travel (a class with a mutex): then it can be held and its methods called, but not
/// fetched.
///
/// When the owner is lost every use fails with kUnavailable, permanently. When a holder is lost its
/// handles are dropped. Thread-safe, except that one RRef object must not be assigned to while it
/// is used.
template <class T>
class RRef {
 public:
  using value_type = T;

  /// An empty reference; using it throws kFailedPrecondition.
  RRef() = default;
  bool valid() const { return handle_ != nullptr; }

  bool is_owner() const { return handle().is_owner(); }
  WorkerInfo owner() const { return handle().owner(); }
  const std::string& owner_name() const { return handle().owner().name; }
  /// Always true at the owner; at a user, once the owner knows of this handle.
  bool confirmed_by_owner() const { return handle().confirmed(); }
  /// Completes when the call that makes the value has ended, with its error if it failed. A handle
  /// that came in a message is complete at once: what is known of it is that the owner lists it.
  Future<void> created() const { return handle().created(); }

  /// Fetches a copy of the value, waiting until the owner has made it. At the owner itself a
  /// tensor's copy aliases the value. Throws RpcError: kUnavailable if the owner is lost,
  /// kDeadlineExceeded, or what the creating call failed with. Blocks.
  T to_here() const { return to_here_async().take(); }
  /// As to_here, without blocking. At the owner the future completes when the value is made.
  Future<T> to_here_async() const {
    static_assert(is_wire_type_v<T>,
                  "Sinew: a value of this type cannot travel: call its methods through the RRef, "
                  "or, if it is a struct of yours, list its fields with SINEW_STRUCT before its "
                  "first use; otherwise specialise sinew::Codec for it");
    if constexpr (is_wire_type_v<T>) {
      if (is_owner()) {
        return handle()
            .local_async(typeid(T), options_)
            .then([](const internal::AnyValue& value) -> T {
              if constexpr (std::is_copy_constructible_v<T>) {
                return *static_cast<const T*>(value.pointer.get());
              } else {
                internal::throw_not_copyable(typeid(T));
              }
            });
      }
      return internal::fetch<T>(handle(), peer());
    } else {
      return Future<T>();
    }
  }

  /// The value itself, at the owner: changes through it are seen by everyone. Waits until it is
  /// made. Throws kFailedPrecondition elsewhere; the text names the reference, this worker and the
  /// owner.
  T& local_value() const {
    return *static_cast<T*>(handle().local(typeid(T), options_).pointer.get());
  }
  /// As local_value, sharing the value's life.
  std::shared_ptr<T> local_shared() const {
    return std::static_pointer_cast<T>(handle().local(typeid(T), options_).pointer);
  }

  /// Calls a member function on the object that this refers to, at its owner, and waits for the
  /// result; or does not. Waits there until the object exists. Otherwise as Peer::call() and
  /// Peer::async().
  ///
  ///     std::int64_t action = agent.call<&app::Agent::select_action>(1, state);
  template <auto Method, class... Args>
  auto call(Args&&... arguments) const;
  template <auto Method, class... Args>
  auto async(Args&&... arguments) const;
  /// Calls a member function on the object and keeps its result there, as Peer::remote().
  template <auto Method, class... Args>
  auto remote(Args&&... arguments) const;

  /// The same reference, with other options for what is done through the result, or another time
  /// that each call or wait may take. They stay here: a receiver's reference has none.
  ///
  ///     agent.within(1s).call<&app::Agent::select_action>(1, state);
  RRef with(CallOptions options) const {
    RRef rref = *this;
    rref.options_ = std::move(options);
    return rref;
  }
  RRef within(std::chrono::nanoseconds timeout) const {
    RRef rref = *this;
    rref.options_.timeout = timeout;
    return rref;
  }
  /// The same reference, with calls that are repeated where that may help, at this owner: see
  /// Peer::retrying(). RetryAt::kNextOfItsName is kInvalidArgument in a call, since a reference is
  /// to a value of one incarnation.
  RRef retrying(RetryPolicy policy = RetryPolicy()) const {
    RRef rref = *this;
    rref.options_.retry = internal::checked(policy);
    return rref;
  }
  const CallOptions& options() const { return options_; }
  /// The peer that owns the value, with the options of this reference. Says whether the owner is
  /// there, alive(), also when the worker here has ended: then calls on it fail.
  Peer peer() const { return handle().owner_peer().with(options_); }

  /// Computes gradients, at the owner, of the scalar tensor that this refers to, and adds them to
  /// `context`, an autograd::Context: see autograd::backward, of which `options` are those. Blocks.
  template <class Context, class... Options>
  void backward(const Context& context, const Options&... options) const {
    static_assert(std::is_same_v<T, at::Tensor>,
                  "Sinew: backward() needs a reference to a tensor: RRef<at::Tensor>");
    context.backward_at(*this, {options...});
  }

  /// `OwnerRRef(id)` or `UserRRef(id, fork, owner)`.
  std::string to_string() const { return handle_ ? handle().to_string() : "RRef()"; }
  friend std::ostream& operator<<(std::ostream& out, const RRef& rref) {
    return out << rref.to_string();
  }

 private:
  friend struct RRefAccess;
  explicit RRef(std::shared_ptr<internal::ReferenceHandle> handle) : handle_(std::move(handle)) {}
  const internal::ReferenceHandle& handle() const {
    if (handle_ == nullptr) internal::throw_empty_reference();
    return *handle_;
  }

  std::shared_ptr<internal::ReferenceHandle> handle_;
  CallOptions options_;
};

/// For the layers of Sinew.
struct RRefAccess {
  template <class T>
  static RRef<T> make(std::shared_ptr<internal::ReferenceHandle> handle) {
    return RRef<T>(std::move(handle));
  }
  template <class T>
  static const std::shared_ptr<internal::ReferenceHandle>& handle(const RRef<T>& rref) {
    return rref.handle_;
  }
};

/// Makes what `rref` refers to the object of `call`. For the layers of Sinew.
template <class T>
void write_call_target(const RRef<T>& rref, internal::CallBuilder& call) {
  const auto& handle = RRefAccess::handle(rref);
  if (handle == nullptr) internal::throw_empty_reference();
  handle->write_target(call);
}

/// RRef<T> is a wire type wherever it stands, within containers and structs too.
template <class T>
struct Codec<RRef<T>> {
  static void encode(ValueWriter& writer, const RRef<T>& rref) {
    internal::write_reference(writer, RRefAccess::handle(rref), typeid(T));
  }
  static RRef<T> decode(const ValueReader& reader) {
    return RRefAccess::make<T>(internal::read_reference(reader, typeid(T)));
  }
  static std::string signature() { return "reference"; }
};

/// A reference to a value of this worker, current_worker() if none is given. Costs no message until
/// it is shared. Throws kFailedPrecondition when the worker is empty or was shut down; so does
/// share_rref().
template <class T>
RRef<std::decay_t<T>> make_rref(const Worker& worker, T&& value) {
  using Value = std::decay_t<T>;
  return RRefAccess::make<Value>(internal::own_value(
      worker, internal::AnyValue::of(std::make_shared<Value>(std::forward<T>(value)))));
}
template <class T>
RRef<std::decay_t<T>> make_rref(T&& value) {
  return make_rref(current_worker(), std::forward<T>(value));
}
/// A reference to an object that the program holds too. Throws kInvalidArgument for a null pointer.
template <class T>
RRef<T> share_rref(const Worker& worker, std::shared_ptr<T> value) {
  return RRefAccess::make<T>(internal::own_value(worker, internal::AnyValue::of(std::move(value))));
}
template <class T>
RRef<T> share_rref(std::shared_ptr<T> value) {
  return share_rref(current_worker(), std::move(value));
}

}  // namespace sinew
