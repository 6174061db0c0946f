#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "sinew/rpc/base/membership_state.h"
#include "sinew/rpc/call.h"
#include "sinew/rpc/calls/extension.h"
#include "sinew/rpc/member_event.h"
#include "sinew/rpc/peer.h"
#include "sinew/rpc/when_taken.h"
#include "sinew/rpc/worker_options.h"

namespace sinew {

template <class T>
class RRef;
template <class T>
class Team;
struct TeamOptions;

namespace internal {
class WorkerCore;
class WorkerServices;
}  // namespace internal

/// One worker of a job: it serves its methods and calls those of others. A handle: copies name the
/// same worker. Several may live in one process. Thread-safe.
///
/// It does not survive fork(): in the child each use throws kFailedPrecondition, and handles,
/// references and contexts go without a word to anybody. Fork before workers are started, or let
/// the child exec.
///
/// exit() need not be preceded by shutdown(): the process ends with its status, the others lose the
/// worker. Its threads then stand still, for two seconds at most, while what is static in the
/// program is destroyed; destructors of shared libraries do not run.
///
///     sinew::Worker worker = sinew::init_rpc(options);
///     double x = worker.peer("other").call<&app::f>(1.0);
///     worker.shutdown();
class Worker {
 public:
  /// An invalid handle.
  Worker() = default;
  bool valid() const { return core_ != nullptr; }
  const WorkerInfo& info() const;
  const std::string& name() const { return info().name; }
  std::int32_t rank() const { return info().rank; }
  /// Where others reach this worker.
  std::string address() const;
  /// The members that live, by rank, this one among them: those on the job's list as this worker
  /// has it, less those that it has lost itself. Suspected ones are among them. Other workers'
  /// lists may differ for a moment, and for longer while the registrar is away. An evicted worker
  /// sees itself alone.
  std::vector<WorkerInfo> workers() const;

  /// A peer by name, rank or info; no network. By name or rank: the member on the job's list, also
  /// one that is lost while the list without it has not arrived: then calls fail with kUnavailable,
  /// and Peer::alive() is false. By info: that incarnation and no other, also when it is lost.
  /// Throws RpcError: kNotFound when no member on the list has the name or rank (it has left, or
  /// has joined and the new list has not arrived); kFailedPrecondition after a shutdown.
  Peer peer(std::string_view name) const;
  Peer peer(int rank) const;
  /// A name or a rank in any other type.
  template <class To>
  Peer peer(const To& to) const {
    if constexpr (std::is_convertible_v<const To&, std::string_view>) {
      return peer(static_cast<std::string_view>(to));
    } else {
      constexpr bool is_rank = std::is_integral_v<To> && !std::is_same_v<To, bool>;
      static_assert(is_rank, "Sinew: a peer is named by its name, rank, WorkerInfo or Peer");
      if constexpr (is_rank) return peer(checked_rank(to));
      return Peer();
    }
  }
  Peer peer(const WorkerInfo& worker) const;
  Peer peer(const Peer& peer) const { return peer; }
  Peer self() const { return peer(info()); }

  /// Waits until a member of that name is there, for `timeout` (unset: the worker's default
  /// timeout; within a handler also for no longer than the call that is being served): one that has
  /// not come yet, or that comes back after it was lost or has left. At once if it is there.
  /// Blocks. Throws RpcError: kDeadlineExceeded with what is known of it (it was never seen; it was
  /// lost, when and why), kInvalidArgument for what is no worker's name or no timeout, kCancelled
  /// when this worker is shut down meanwhile, kAborted when it is evicted, kFailedPrecondition
  /// after a shutdown.
  ///
  ///     sinew::Peer learner = worker.wait_for("learner", 30s);
  Peer wait_for(std::string_view name,
                std::optional<std::chrono::nanoseconds> timeout = std::nullopt) const;
  /// As wait_for, without blocking: later errors are the future's.
  Future<Peer> wait_for_async(std::string_view name,
                              std::optional<std::chrono::nanoseconds> timeout = std::nullopt) const;

  /// Gives an object of this worker a name, by which others find() it as `worker/name`, and keeps
  /// it alive until the name is taken back, given to another object (`when_taken`), or the worker
  /// ends. `object` is a reference to a value that lives here, or the object itself. `name` is 1 to
  /// 128 letters, digits and `_ . : -`. Include sinew/rref/names.h (sinew.h has it). Throws
  /// RpcError: kAlreadyExists, kInvalidArgument for a name that is not allowed or a value of
  /// another worker, kFailedPrecondition for an empty reference and after a shutdown, kAborted when
  /// this worker is evicted (its names go with it: WorkerOptions::on_rejoined).
  template <class T>
  void publish(std::string_view name, const RRef<T>& object,
               WhenTaken when_taken = WhenTaken::kFail) const;
  template <class T>
  void publish(std::string_view name, std::shared_ptr<T> object,
               WhenTaken when_taken = WhenTaken::kFail) const;
  /// Takes a name back; references that were found by it stay. False: nothing had that name.
  bool unpublish(std::string_view name) const;

  /// Finds a published object by the names of its worker and itself: "learner/agent". Waits until
  /// the worker is there and has published it, for `timeout` (as in wait_for()); when the worker is
  /// lost meanwhile, for the next one of that name. What it returns is a reference like any other,
  /// to an object of one incarnation: when that is lost it stays lost, and is to be found again.
  /// Include sinew/rref/names.h (sinew.h has it). Blocks. Throws RpcError: kDeadlineExceeded, which
  /// says what there is instead; kInvalidArgument for an object of another type than T, or an
  /// `address` that is none; kResourceExhausted when 1024 other questions of this worker wait
  /// there; and what wait_for() throws.
  ///
  ///     auto agent = worker.find<app::Agent>("learner/agent", 30s);
  template <class T>
  RRef<T> find(std::string_view address,
               std::optional<std::chrono::nanoseconds> timeout = std::nullopt) const;
  /// As find, without blocking: what comes after a wrong address is the future's error.
  template <class T>
  Future<RRef<T>> find_async(std::string_view address,
                             std::optional<std::chrono::nanoseconds> timeout = std::nullopt) const;

  /// Objects of class T at all workers whose names match, made there with these arguments, or by a
  /// function of each Peer; or published by them. Include sinew/rref/team.h (sinew.h has it).
  template <class T, class... Args>
  Team<T> team(const TeamOptions& options, Args&&... arguments) const;

  /// Waits until all of `names` (default: all members) have called it, for `timeout` (as in
  /// wait_for()). It does not matter who leaves afterwards. Blocks. Throws RpcError:
  /// kDeadlineExceeded with the names that are missing; kUnavailable when one of them is lost or
  /// leaves before, or no registrar can be reached (such a barrier does not count: the next one of
  /// the same workers takes its place); and what wait_for() throws.
  void barrier(std::optional<std::chrono::nanoseconds> timeout = std::nullopt) const;
  void barrier(std::vector<std::string> names,
               std::optional<std::chrono::nanoseconds> timeout = std::nullopt) const;

  /// Tells of other workers that join, are suspected, lost or leave from now on, and of this one's
  /// own eviction (MemberEvent). `on_member` runs on the worker's executor, one call at a time, in
  /// order, until the result is destroyed. It may block and use the worker, as a handler may. What
  /// it throws is logged.
  ///
  /// Call workers() after this: a member that is not among them is told as kJoined; one that joined
  /// at that moment may be in both. workers() in `on_member` is as new as the event or newer.
  ///
  /// Before kLost and kLeft all calls to that worker have their result or their error, and none of
  /// its own calls is started any more; those that run may go on. Once this worker leaves, losses
  /// are not told any more. Throws RpcError: kInvalidArgument for an empty function,
  /// kFailedPrecondition after a shutdown, kAborted when this worker is evicted.
  ///
  ///     auto watch = worker.on_member(
  ///         [](const sinew::MemberEvent& event) { std::cout << event.worker.name << std::endl; });
  [[nodiscard]] MemberWatch on_member(OnMember on_member) const;

  /// Applies to calls made from now on that set no timeout.
  void set_default_timeout(std::chrono::nanoseconds timeout) const;
  std::chrono::nanoseconds default_timeout() const;

  /// rpc.client_active_calls, rpc.server_active_calls, rpc.requests (calls to other workers so far,
  /// those of layers too), rpc.retries (calls that were repeated), rpc.limited_calls (served now,
  /// of methods with limits), rpc.calls_not_allowed and rpc.calls_over_limit (turned away by rules
  /// of methods), rpc.max_threads (WorkerOptions::num_threads), rpc.threads, rpc.idle_threads,
  /// rpc.blocked_threads, rpc.queued_tasks, rpc.polls_paid, rpc.polls_in_vain and rpc.polled_us
  /// (over gRPC: WorkerOptions::max_poll), rpc.wake_up_ns (docs/threads.md),
  /// rpc.receive_pool_used_bytes, _idle_bytes and _max_idle_bytes (of the process: memory of
  /// received tensors, what is kept for the next ones, and how much that may be), rpc.limit_...
  /// (what the host leaves the process now: docs/deploy.md), and what layers add (rref.owned, ...).
  Counters counters() const;

  /// For a worker that only serves others: returns when the job is over and the worker has been
  /// shut down. A fixed world's job is over when all that live are here or in shutdown(),
  /// however long that takes; in open membership the worker serves until it is asked to end.
  /// SIGTERM, SIGINT and SIGHUP ask for that (StopSignal), unless the program handles or ignores
  /// them: the worker of a fixed world leaves at once, another one with grace (8 s at most); one
  /// that comes 2 s later ends the process. With WorkerOptions::on_rejoined it goes on with the
  /// worker that takes this one's place. Blocks; not to be called in a handler. Throws RpcError:
  /// kUnavailable, with who is lost and why, when none are left but those who serve; kAborted when
  /// this worker is evicted, which may rejoin() then; what shutdown() and rejoin() throw.
  ServedUntil serve_until_done() const;

  /// Ends the worker; see ShutdownOptions. Local teardown happens in any case. Idempotent; not to
  /// be called in a handler. Without grace it ends a graceful one that waits in another thread,
  /// which then throws kCancelled. An evicted worker that is shut down does not rejoin any more;
  /// one that has rejoined is to be shut down itself. Throws RpcError, after the teardown, for the
  /// graceful part: kDeadlineExceeded with the workers that are missing, kUnavailable when no
  /// registrar can be reached, kInvalidArgument for a timeout that is not positive.
  void shutdown(const ShutdownOptions& options = {}) const;
  /// False from its shutdown on, and when it was evicted.
  bool is_running() const;
  /// Whether it is in its job, as far as it knows. Once it is kEvicted, all that it does with
  /// others fails with kAborted: see rejoin().
  MembershipState membership_state() const;

  /// Starts a new worker in the place of this one, which was evicted: ends this one without grace
  /// (waits for its methods that run), then starts and joins as init_rpc() did, with the same
  /// options, layers and default timeout. Returns the new worker: another member of the job, which
  /// knows nothing of the references, contexts and calls of this one. This one stays kEvicted, and
  /// what is done with it fails with kAborted.
  ///
  /// Of threads that call it at once all get the same new worker, or the error of the one attempt;
  /// so does who calls it later, as long as that worker is there. After an error it may be called
  /// again. Throws RpcError: what init_rpc() throws; kFailedPrecondition when this worker is not
  /// evicted, was shut down by the user, or runs the calling thread (a handler or a continuation);
  /// kCancelled when it is shut down meanwhile.
  ///
  /// WorkerOptions::on_rejoined does so by itself.
  Worker rejoin() const;

  friend bool operator==(const Worker& a, const Worker& b) { return a.core_ == b.core_; }

 private:
  friend struct WorkerAccess;
  explicit Worker(std::shared_ptr<internal::WorkerCore> core) : core_(std::move(core)) {}
  internal::WorkerCore& core() const;

  /// No rank is as wide as that, and a narrowed one might exist.
  template <class Rank>
  static int checked_rank(Rank rank) {
    constexpr auto kMost = std::numeric_limits<std::int32_t>::max();
    if constexpr (std::is_signed_v<Rank>) {
      if (rank < 0) return -1;
    }
    return static_cast<std::uint64_t>(rank) > std::uint64_t{kMost} ? kMost : static_cast<int>(rank);
  }

  std::shared_ptr<internal::WorkerCore> core_;
};

/// Starts a worker and joins the job; returns when all workers of a fixed world are there. It has
/// the layers whose headers the program includes: references (sinew/rref/), gradients
/// (sinew/autograd/), optimizers (sinew/optim/), the store of process groups (sinew/groups/);
/// sinew/sinew.h has all. Throws RpcError: kInvalidArgument for options that make no sense (the
/// text names the option), kAlreadyExists for a name, rank or address that is taken,
/// kDeadlineExceeded with the missing ranks, kPermissionDenied and kUnauthenticated for
/// credentials, kResourceExhausted where the process gets too few threads or file descriptors (the
/// text names the limit), kFailedPrecondition in a process that was forked from one with a worker.
Worker init_rpc(WorkerOptions options);

/// The common case: the meeting place, rank and world size come from the environment (MASTER_ADDR,
/// MASTER_PORT, RANK, WORLD_SIZE, or what Slurm and MPI set; see docs/launch.md).
Worker init_rpc(std::string name, MethodTable methods);

/// For the layers of Sinew.
struct WorkerAccess {
  /// Null for an invalid handle.
  static std::shared_ptr<internal::WorkerServices> services(const Worker& worker);
  /// For rpc/worker/ and tests.
  static const std::shared_ptr<internal::WorkerCore>& core(const Worker& worker) {
    return worker.core_;
  }
  static Worker make(std::shared_ptr<internal::WorkerCore> core) { return Worker(std::move(core)); }
};

}  // namespace sinew
