#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "c10/core/Device.h"
#include "sinew/rpc/call_context.h"
#include "sinew/rpc/calls/extension.h"
#include "sinew/rpc/calls/object_turns.h"
#include "sinew/rpc/calls/received_envelope.h"
#include "sinew/rpc/link/request_room.h"
#include "sinew/rpc/transport/frame.h"
#include "sinew/rpc/wire/value_reader.h"
#include "sinew/rpc/wire/value_writer.h"

namespace sinew::proto {
class Call;
class Error;
}  // namespace sinew::proto

namespace sinew::internal {

class StateReport;

class Invocation;
struct AuthenticatedPeer;

/// Takes the one reply of a served call: the link with its caller, or a foreign client's unary
/// call.
class ReplySink {
 public:
  virtual ~ReplySink() = default;
  /// False: there is no room for its reply, and the sink starts it again once there is.
  virtual bool may_start(const std::shared_ptr<Invocation>& invocation) = 0;
  /// `reply` is a serialised Envelope with a Reply (for workers) or a serialised Reply (for
  /// others), as wants_envelope() says.
  virtual void on_reply(std::uint64_t call_id, Frame reply, std::vector<OnCarrierEnd> on_end) = 0;
  /// The call failed: in place of on_reply().
  virtual void on_error(std::uint64_t call_id, const proto::Error& error) = 0;
  virtual bool wants_envelope() const = 0;
  /// The call waits once more: see Invocation::is_queued().
  virtual void watch_queued(const Invocation& invocation) = 0;
  /// What the caller has proved of itself.
  virtual AuthenticatedPeer remote() const = 0;
  /// See CallContext::metadata().
  virtual const CallContext::Metadata& metadata() const = 0;
};

/// A call that has arrived and has not begun.
struct ArrivedCall {
  WorkerInfo caller;
  /// The caller's number for it.
  std::uint64_t id = 0;
  Clock::TimePoint arrived;
  Clock::TimePoint deadline = Clock::TimePoint::max();
  /// A serialised Envelope, until it is read.
  std::string bytes;
  /// Holds a call once it is read, an empty one where that failed.
  ReceivedEnvelope envelope;
  absl::Status read_status;
  std::vector<absl::Cord> payloads;
  /// As LinkLanes::room_of() counts, which is also what `room` holds if the caller is a worker.
  std::uint64_t size_bytes = 0;
  RequestRoom room;
  /// Of a worker, where it may matter in which order it has made its calls.
  CallerOrder::Ticket ticket;

  /// Reads `bytes` into `envelope`, unless that has been done. By the thread that serves the call:
  /// it lets go of what reading allocates, and the one that takes frames goes on meanwhile.
  /// kInvalidArgument, kResourceExhausted: as parse_envelope(), or it is no call of this id.
  const absl::Status& read();
};

/// One call that is being served: reads its arguments, runs its method and replies once. It is the
/// context which the handler sees. Held by shared_ptr; start() and everything after it run on
/// executor threads.
class Invocation final : public CallContext, public std::enable_shared_from_this<Invocation> {
 public:
  Invocation(WorkerServices& services, ArrivedCall call, std::shared_ptr<ReplySink> sink);
  ~Invocation() override;

  /// Before it is posted: it waits for a thread until start() or refuse_queued(). Later it may wait
  /// for its turn in the same way.
  void enter_queue() { in_queue_.store(true, std::memory_order_release); }
  bool is_queued() const { return in_queue_.load(std::memory_order_relaxed); }
  Clock::TimePoint arrived() const { return arrived_at_; }
  /// Runs the call from start to end, or to where it waits for something; later, if its sink says
  /// so. Nothing if it was refused in the queue.
  void start();
  /// Whether it waits for its turn at its object, if it is in the queue.
  bool waits_for_turn() const { return waits_for_turn_.load(std::memory_order_acquire); }
  /// Replies that it did not run, and why, if it is in the queue, where it has waited for so long:
  /// from then on it never starts. On the control executor. What it holds is let go of; the room
  /// that it takes of what its caller may send is given back when the queue for threads comes to
  /// it, which bounds that queue.
  void refuse_queued(std::chrono::nanoseconds waited);
  bool has_replied() const { return replied_.load(std::memory_order_acquire); }
  /// The caller no longer waits.
  void cancel() { cancellation_.cancel(); }
  /// The call takes room of what its caller may send until it is answered, not only until it
  /// starts. For methods that return futures, of which any number may be under way. Before
  /// when_ready().
  void keep_room() { keeps_room_ = true; }
  /// Instead of start(), on any thread: replies with an error.
  void abort(const absl::Status& status);

  Worker worker() const override;
  const std::string& method() const override;
  const Metadata& metadata() const override { return sink_->metadata(); }
  std::vector<std::string> chain() const override;
  std::vector<std::string> identities() const override;
  const std::shared_ptr<void>& ambient() const override;
  /// As ArrivedCall::id.
  std::uint64_t call_id() const { return id_; }
  WorkerServices& services() const { return services_; }
  /// Where its caller is, as AuthenticatedPeer has it.
  std::string remote_address() const;
  /// What operators see of it, by that number. Any thread.
  void report(std::uint64_t number, StateReport& report) const;
  /// For what may outlive the worker.
  const std::weak_ptr<WorkerServices>& weak_services() const { return weak_services_; }
  /// That of the call, not of the reply.
  MessageRoute& route();
  /// The turns that it, and those of its chain, have at objects: see CallTurn.
  std::vector<std::uint64_t> held_turns() const;
  /// Around each part of the method that runs but the first one, if it gives up its turn meanwhile.
  /// False: `resume` is posted once it has the turn again.
  bool resume_in_turn(std::function<void()> resume) const;
  void suspended_in_turn() const;
  /// Whether the caller's map says where a result on `device` arrives.
  bool can_return(c10::Device device) const;

  // For the typed code of serve.h.

  /// Throws kInvalidArgument unless the call has `count` arguments.
  void check_argument_count(std::size_t count);
  ValueReader argument(std::size_t index);
  std::size_t argument_count() const;
  /// The object of a member function, made ready before the method is entered. Throws when it is of
  /// another type.
  void* target(const std::type_info& type) const;
  /// Replies with a copy of the target itself.
  void finish_with_target();
  /// Runs `run` in this context now, or when everything that the arguments wait for is complete.
  /// What it throws becomes the reply.
  template <class Run>
  void when_ready(Run run) {
    // Mostly there is nothing to wait for, and nothing to keep then.
    if (std::vector<Future<void>> waits = take_waits(); !waits.empty()) {
      return enter_later(std::move(waits), std::move(run));
    }
    enter();
    run();
  }
  /// Runs `run` in this context; what it throws becomes the reply.
  void guard(absl::FunctionRef<void()> run);
  /// As guard(), for what a future calls: its worker may be gone, and then no caller waits any
  /// more.
  void guard_late(absl::FunctionRef<void()> run);

  bool retains() const;
  ValueWriter result();
  /// Sends the reply with what was written to result() (null if nothing was).
  void finish();
  void finish_retained(AnyValue value);
  void fail(std::exception_ptr error);
  [[noreturn]] void fail_not_a_wire_type(const std::type_info& type) const;

 private:
  struct Request;
  struct CallTurn;
  /// False: it is not in the queue, and another one has seen to it.
  bool leave_queue() { return in_queue_.exchange(false, std::memory_order_acq_rel); }
  void serve();
  /// By serve(), so that one thread allocates what it lets go of. Returns what reading it did.
  absl::Status make_request();
  /// Before the method is entered.
  void begin();
  std::string explain_no_method() const;
  void throw_if_given_up() const;
  std::vector<Future<void>> take_waits();
  void enter() { entered_.store(true, std::memory_order_relaxed); }
  void enter_later(std::vector<Future<void>> waits, Task run);
  /// As the method's rules say; throws.
  void check_allowed() const;
  void take_share();
  void resolve_target_and_run();
  Future<AnyValue> resolve_target();
  // Steps of a call that waits for its turn: invocation_turn.cc.
  Task later(void (Invocation::*step)());
  void line_up();
  void await_line();
  void await_object();
  void await_turn(AnyValue target);
  void begin_turn();
  void resume_all();
  void run_soon(std::function<void()> run);
  void end_turn();
  [[noreturn]] void throw_comes_back() const;
  std::string explain_turn(std::chrono::nanoseconds waited) const;
  void run_method();
  void send_claimed(absl::FunctionRef<void()> fill);
  void drop_result();
  void send_reply();
  void send_error(const ErrorInfo& info);
  void send_instead(const absl::Status& too_large);
  bool claim_reply();
  enum class Outcome { kResult, kError };
  void count(Outcome outcome) const;
  void write_trace(Clock::TimePoint now) const;

  WorkerServices& services_;
  // A handler's future may be completed, or forgotten, when the worker is gone.
  const std::weak_ptr<WorkerServices> weak_services_;
  bool keeps_room_ = false;
  const std::uint64_t id_;
  const Clock::TimePoint arrived_at_;
  const std::shared_ptr<ReplySink> sink_;
  // Before that it has waited for a thread; for its trace.
  Clock::TimePoint begun_at_{};
  std::atomic<bool> in_queue_{false};
  std::atomic<bool> waits_for_turn_{false};
  // Why it was refused in the queue; and what it holds until the refusal is handled.
  std::string refused_;
  RequestRoom queue_room_;
  // Until request_ is made.
  ArrivedCall arrived_;
  std::unique_ptr<Request> request_;
  // The same, for report(): from when the call has been read until it is let go of, which is done
  // under CallServer::reports().
  std::atomic<const Request*> reported_{nullptr};
  // Written before the method is entered.
  bool retain_begun_ = false;
  std::exception_ptr layers_failed_;
  std::atomic<bool> replied_{false};
  // The method was entered: what fails from here on may have run.
  std::atomic<bool> entered_{false};
};

}  // namespace sinew::internal
