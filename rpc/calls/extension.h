#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/base/threads/timer_queue.h"
#include "sinew/rpc/cancellation.h"
#include "sinew/rpc/wire/codec_traits.h"
#include "sinew/rpc/wire/value_writer.h"

namespace sinew {

namespace proto {
class Call;
class Reference;
class Retain;
}  // namespace proto

/// Numbers about a worker that tests and people read, by name ("rpc.client_active_calls",
/// "rref.owned", ...).
using Counters = std::map<std::string, std::int64_t>;

namespace internal {

class Invocation;
class StateReport;
class TensorHook;
class WorkerServices;

/// A value of any type that stays at the worker which made it.
struct AnyValue {
  std::shared_ptr<void> pointer;
  const std::type_info* type = nullptr;
  /// Writes a copy of the value; null for types that cannot travel.
  void (*encode)(ValueWriter& writer, const void* value) = nullptr;

  template <class T>
  static AnyValue of(std::shared_ptr<T> value) {
    AnyValue any{std::move(value), &typeid(T), nullptr};
    if constexpr (is_wire_type_v<T>) {
      any.encode = [](ValueWriter& writer, const void* object) {
        Codec<T>::encode(writer, *static_cast<const T*>(object));
      };
    }
    return any;
  }
  bool empty() const { return pointer == nullptr; }
};

/// How a message ended that carries references, or a note.
enum class CarrierEnd {
  /// It never left this worker.
  kNotSent,
  /// The call has its reply, the caller has acknowledged the reply, or the note has been handled.
  kAnswered,
  /// It may have arrived or not.
  kFailed,
};
using OnCarrierEnd = absl::AnyInvocable<void(CarrierEnd) &&>;

/// The worker and peer that one message goes between, for codecs of layers above. Lives while the
/// message is written or read; not thread-safe.
class MessageRoute {
 public:
  MessageRoute(WorkerServices& services, WorkerInfo peer, Clock::TimePoint deadline)
      : services_(services), peer_(std::move(peer)), deadline_(deadline) {}

  WorkerServices& services() const { return services_; }
  /// The receiver of a message that is written, the sender of one that is read. Rank -1: not a
  /// worker.
  const WorkerInfo& peer() const { return peer_; }
  /// After this the message has no effect any more; Clock::TimePoint::max() when it has no limit.
  Clock::TimePoint deadline() const { return deadline_; }

  MessageRoute(const MessageRoute&) = delete;
  MessageRoute& operator=(const MessageRoute&) = delete;
  ~MessageRoute() {
    for (OnCarrierEnd& end : on_end_) std::move(end)(CarrierEnd::kNotSent);
  }

  /// Writing: tells that the message carries a reference. `on_end` runs once, when the message has
  /// been dealt with.
  void carries_reference(OnCarrierEnd on_end) {
    has_references_ = true;
    on_end_.push_back(std::move(on_end));
  }
  /// Writing: `on_end` runs once, when the message has been dealt with.
  void when_dealt_with(OnCarrierEnd on_end) { on_end_.push_back(std::move(on_end)); }
  /// Writing: keeps something alive until the message has been dealt with.
  void keep_alive(std::shared_ptr<const void> kept) {
    on_end_.push_back([kept = std::move(kept)](CarrierEnd) {});
  }
  /// Writing: the message may be sent once more, by another route.
  bool may_be_repeated() const { return may_be_repeated_; }
  void set_may_be_repeated() { may_be_repeated_ = true; }
  /// Writing what may be repeated: this part of the message belongs to this route, and `rewrite`
  /// writes it anew, in the same place, for another one. It throws what writing throws.
  void when_repeated(std::function<void(MessageRoute& route)> rewrite) {
    rewrite_.push_back(std::move(rewrite));
  }
  const std::vector<std::function<void(MessageRoute& route)>>& rewrite() const { return rewrite_; }
  /// From now on the caller of this sees to it that they run.
  std::vector<OnCarrierEnd> take_on_end() { return std::exchange(on_end_, {}); }
  bool has_references() const { return has_references_; }

  /// Sees the tensors of the message; null when there is no hook.
  const std::shared_ptr<TensorHook>& tensor_hook() const { return tensor_hook_; }
  void set_tensor_hook(std::shared_ptr<TensorHook> hook) { tensor_hook_ = std::move(hook); }

  /// Writing a reply: the call that it answers, which outlives this. Null: a call is written.
  const MessageRoute* call() const { return call_; }
  void set_call(const MessageRoute* call) { call_ = call; }

  /// What the device layer keeps with the message. Null until it needs something: messages that
  /// have nothing to do with devices cost nothing.
  class DevicePart {
   public:
    virtual ~DevicePart() = default;
    /// Writing: whether tensors go from device to device.
    virtual bool has_transfers() const = 0;
    /// Reading a call: whether its caller has said where a result on `device`, which is not host
    /// memory, arrives.
    virtual bool can_return(c10::Device device) const = 0;
    /// The message, which goes by `route`, has been read: accepts what was read; the route waits
    /// for it. Declines the rest.
    virtual void accept_transfers(MessageRoute& route) = 0;
  };
  DevicePart* device_part() const { return device_part_.get(); }
  void set_device_part(std::unique_ptr<DevicePart> part) { device_part_ = std::move(part); }

  /// Reading a call: what follows the work that serves it; see ThreadContext::ambient.
  const std::shared_ptr<void>& ambient() const { return ambient_; }
  void set_ambient(std::shared_ptr<void> ambient) { ambient_ = std::move(ambient); }
  /// Reading a call: whether its caller records gradients. Unset: it did not say.
  std::optional<bool> grad_mode() const { return grad_mode_; }
  void set_grad_mode(bool enabled) { grad_mode_ = enabled; }

  /// Reading a reply: what cancels its call. For what goes on when the call has its reply.
  const std::vector<CancellationToken>& cancellations() const { return cancellations_; }
  void set_cancellations(std::vector<CancellationToken> tokens) {
    cancellations_ = std::move(tokens);
  }

  /// Reading: the handler must not start (the result must not be handed out) before `ready` is
  /// complete.
  void wait_for(Future<void> ready) { waits_.push_back(std::move(ready)); }
  std::vector<Future<void>> take_waits() { return std::move(waits_); }

 private:
  WorkerServices& services_;
  const WorkerInfo peer_;
  const Clock::TimePoint deadline_;
  bool has_references_ = false;
  bool may_be_repeated_ = false;
  std::shared_ptr<TensorHook> tensor_hook_;
  std::shared_ptr<void> ambient_;
  std::optional<bool> grad_mode_;
  std::vector<OnCarrierEnd> on_end_;
  std::vector<std::function<void(MessageRoute& route)>> rewrite_;
  std::vector<Future<void>> waits_;
  std::vector<CancellationToken> cancellations_;
  const MessageRoute* call_ = nullptr;
  std::unique_ptr<DevicePart> device_part_;
};

/// A layer that plugs into the calls of a worker: remote references, distributed autograd. Layers
/// do not know each other. Functions run on executor threads of the worker unless they say
/// otherwise, and must not block.
class Extension {
 public:
  virtual ~Extension() = default;

  /// The layer's name in Note.layer and in attachments.
  virtual std::string_view layer() const = 0;

  /// A one-way message of the same layer of a peer. `from` is who the connection proved to be.
  /// Each note comes once, in the order in which the peer has sent them, until the link ends: only
  /// the last ones may be missing then. Those of more than 128 KiB may come late. Runs on the
  /// control executor.
  virtual void on_note(const WorkerInfo& from, std::string body) = 0;

  /// A peer is out of use permanently: its lease ended, its address refuses, or it left. It may not
  /// have noticed yet, so what it holds here is kept. Control executor.
  virtual void on_worker_fenced(const WorkerInfo& worker) = 0;
  /// That peer has ended, or has given up all that it holds here. Comes after on_worker_fenced.
  /// Control executor.
  virtual void on_worker_lost(const WorkerInfo& worker) = 0;

  /// Adds the layer's numbers.
  virtual void add_counters(Counters& counters) const = 0;
  /// Tells operators what it has. Control executor.
  virtual void report(StateReport& report) const { (void)report; }

  /// A call or a reply is about to be written by work that `ambient` follows (never null): the
  /// layer may set the route's tensor hook. Calling thread.
  virtual void begin_message(MessageRoute& route, const std::shared_ptr<void>& ambient) {
    (void)route;
    (void)ambient;
  }
  /// The message has been written and is about to be sent. What it attaches under layer(); empty:
  /// nothing. Only for messages that have a tensor hook. Calling thread.
  virtual std::string on_send(MessageRoute& route) {
    (void)route;
    return {};
  }
  /// A call with tensors that require a gradient was written, and no layer has set a tensor hook.
  /// Calling thread.
  virtual void on_unfollowed_gradient(const std::string& method, const WorkerInfo& callee) {
    (void)method;
    (void)callee;
  }
  /// What came attached under layer() with a call or a reply, before its values are read: the layer
  /// may set the route's tensor hook, and what follows the work that serves the call. The thread
  /// that reads. What it throws is what reading throws.
  enum class MessageKind { kCall, kReply };
  virtual void on_receive(MessageRoute& route, MessageKind kind, const std::string& attachment) {
    (void)route;
    (void)kind;
    (void)attachment;
  }

  /// Methods by which the layer talks to itself at peers, with tensors; their names start with
  /// "sinew.". Asked once.
  struct Method {
    std::string_view name;
    void (*serve)(const std::shared_ptr<Invocation>& call);
  };
  virtual std::vector<Method> methods() const { return {}; }

  /// First step of a graceful shutdown: give up what is held at other workers and, when the whole
  /// job ends, wait until others have given up what they hold here. Completes with a report of what
  /// is left when `deadline` has passed: empty if nothing is.
  enum class DrainScope { kThisWorker, kWholeJob };
  virtual Future<std::vector<std::string>> drain_async(DrainScope scope,
                                                       Clock::TimePoint deadline) = 0;

  /// Last step, both kinds of shutdown: no message is sent afterwards. Idempotent. May block
  /// briefly.
  virtual void stop() = 0;
};

/// What calls need of the reference layer: objects of member functions, and results that stay.
class References {
 public:
  virtual ~References() = default;

  /// The object that `target` names, once it exists; checks that `from` holds it. Fails with the
  /// error of the creating call. Fails at `deadline` if the call that makes the object has not
  /// arrived by then.
  virtual Future<AnyValue> resolve(const proto::Reference& target, const WorkerInfo& from,
                                   Clock::TimePoint deadline) = 0;

  /// The object that this worker has published under `name`, once it exists; else kNotFound with
  /// similar names. Fails at `deadline` if the call that makes the object has not ended by then.
  virtual Future<AnyValue> published(const std::string& name, Clock::TimePoint deadline) = 0;

  /// `call`, one with RETAIN, has arrived. An error (the reference was deleted already, an id was
  /// forged) means: do not run it.
  virtual absl::Status begin_retain(const proto::Call& call, const WorkerInfo& from) = 0;
  virtual void retain(const proto::Retain& retain, AnyValue value) = 0;
  virtual void fail_retain(const proto::Retain& retain, std::exception_ptr error) = 0;
};

}  // namespace internal
}  // namespace sinew
