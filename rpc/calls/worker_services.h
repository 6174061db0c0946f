#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/base/process_life.h"
#include "sinew/rpc/base/threads/executor.h"
#include "sinew/rpc/base/threads/timer_queue.h"
#include "sinew/rpc/base/worker_end.h"
#include "sinew/rpc/calls/extension.h"
#include "sinew/rpc/link/link.h"
#include "sinew/rpc/membership/control_plane.h"
#include "sinew/rpc/membership/directory.h"
#include "sinew/rpc/worker_options.h"

namespace sinew {

class Worker;

namespace internal {

class CallLink;
class CallServer;
class MessageDevices;
class StateReport;

/// A link that has ended by itself.
struct EndedLink {
  Gone cause;
  absl::Status reason;
  /// From when on its other end uses nothing any more.
  Clock::TimePoint drop_at;
  /// Fails its calls; of several reasons the first counts. Run once it is known which end is out,
  /// and noted: whose call fails asks whether the other one is lost.
  std::function<void(const absl::Status& reason)> retire;
};

/// What calls, and the layers that plug into them, see of their worker. A holder of a reference to
/// it is a part of the worker, or lives no longer than it does. Thread-safe; nothing here blocks or
/// runs user code.
class WorkerServices : public ControlPlane {
 public:
  // Constant once the worker has started.

  /// Which process it works in: in a forked child nothing of it may be used.
  virtual const ProcessBound& process() const = 0;
  virtual const WorkerInfo& self() const = 0;
  virtual const WorkerOptions& options() const = 0;
  /// Runs handlers and continuations.
  virtual const std::shared_ptr<Executor>& executor() const = 0;
  /// Runs control work: short, never user code, never blocked.
  virtual Executor& control_executor() = 0;
  virtual TimerQueue& timers() = 0;
  virtual Clock& clock() const = 0;
  virtual Directory& directory() = 0;
  virtual CallServer& server() = 0;
  virtual MessageDevices& devices() = 0;
  virtual const std::vector<std::shared_ptr<Extension>>& extensions() const = 0;
  /// Tells operators of the worker.
  virtual void report(StateReport& report) = 0;
  /// Cancels the call that it serves of that worker (empty: of a client) under that number. False:
  /// there is none.
  virtual bool cancel_served(const std::string& caller, std::uint64_t id) = 0;
  /// Null when there is none. Throws kFailedPrecondition in a forked child.
  virtual Extension* extension(std::string_view layer) const = 0;
  /// On the control executor. Whether the extensions are still to be made; then the task runs there
  /// once they are, or never if the worker does not start.
  virtual bool waits_for_layers() const = 0;
  virtual void when_layers_are_made(Task task) = 0;
  /// Null when no reference layer is there.
  virtual References* references() const = 0;
  /// An extension registers itself as the reference layer when it is made.
  virtual void set_references(References* references) = 0;
  /// Empty when there is none.
  virtual ControlHandler find_control_method(std::string_view name) const = 0;

  /// The link with a member; makes it if there is none. One with a lost incarnation fails all
  /// calls.
  virtual absl::StatusOr<std::shared_ptr<CallLink>> link(const WorkerInfo& worker) = 0;
  /// See LinkUser::on_unreached().
  virtual void on_unreached(const WorkerInfo& peer) = 0;
  /// A member does not answer, or answers again.
  virtual void on_suspected(const WorkerInfo& peer, bool suspected) = 0;
  /// A link has ended by itself: either its other end is lost or this worker is out of the job.
  virtual void on_link_ended(const WorkerInfo& peer, EndedLink link) = 0;
  virtual const std::shared_ptr<WorkerEnd>& end() const = 0;
  /// Why this worker is out of the job although it runs: what it does with others fails with that.
  absl::Status evicted() const { return end()->evicted(); }
  /// Why a worker that has ended does something no more.
  absl::Status ended(std::string_view consequence) const { return end()->with(consequence); }
  virtual bool is_lost(const WorkerInfo& worker) const = 0;
  /// Completes with a member of that name, at once if there is one, unless it is the incarnation
  /// `other_than`. Fails with kDeadlineExceeded, which says what is known of it, with kAborted when
  /// this worker is evicted, and when it ends.
  virtual Future<WorkerInfo> wait_for_member(std::string name, Incarnation other_than,
                                             Clock::TimePoint deadline) = 0;
  /// Completes at `when`; fails once this worker ends.
  virtual Future<void> wait_until(Clock::TimePoint when) = 0;
  /// The rank of an incarnation in the list of members, this worker included; -1: it is none.
  virtual std::int32_t rank_of(const WorkerInfo& worker) const = 0;
  /// One-way message to a layer of a peer: see Extension::on_note(). `on_end` runs once, on any
  /// thread, and before this returns where nothing can be sent; it must not block, and the caller
  /// holds no lock that it takes. kNotSent: the peer is not known yet, or the link has ended;
  /// kFailed: the link ended meanwhile, or the note is too large.
  virtual void send_note(const WorkerInfo& to, std::string_view layer, std::string body,
                         OnCarrierEnd on_end = nullptr) = 0;

  /// A line of the worker's log.
  virtual void log(const std::string& text) const = 0;
  /// Of calls that set no timeout.
  virtual std::chrono::nanoseconds default_timeout() const = 0;
  /// False before the worker joins, and from its teardown on.
  virtual bool is_running() const = 0;

  /// For who must keep the worker, or find out whether it is still there.
  virtual std::shared_ptr<WorkerServices> shared_services() = 0;
  virtual std::weak_ptr<WorkerServices> weak_services() = 0;
  /// The worker as users see it.
  virtual Worker handle() = 0;
};

}  // namespace internal
}  // namespace sinew
