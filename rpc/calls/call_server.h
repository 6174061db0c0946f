#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/rate_limited_log.h"
#include "sinew/rpc/base/threads/executor.h"
#include "sinew/rpc/base/threads/timer_queue.h"
#include "sinew/rpc/call_context.h"
#include "sinew/rpc/calls/method_load.h"
#include "sinew/rpc/calls/object_turns.h"
#include "sinew/rpc/method_table.h"
#include "sinew/rpc/transport/transport.h"

namespace sinew::internal {

class MethodStats;
class ReplySink;
class StateReport;
struct ArrivedCall;
class WorkerServices;

/// Wraps the sink for the reply of a call that has arrived and been read, and says when the call
/// may start.
using WrapReplySink = std::function<std::shared_ptr<ReplySink>(
    WorkerServices& services, const ArrivedCall& call, std::shared_ptr<ReplySink> sink)>;

/// What all calls that a worker serves have in common: the methods, the door that opens when the
/// worker has joined, and calls of foreign clients. Thread-safe.
class CallServer final : public UnaryHandler {
 public:
  /// `wrap_sink` may be empty.
  CallServer(WorkerServices& services, WrapReplySink wrap_sink);
  ~CallServer() override;

  /// Null when there is none.
  const MethodTable::Entry* find_method(std::string_view name) const;
  /// For a call to a method that there is not: the one with the most similar name, of those that
  /// its caller may call. Null when none is similar.
  const MethodTable::Entry* nearest_method(const CallContext& call) const;
  /// How much of a method that it serves is under way; null for one without limits.
  std::shared_ptr<MethodLoad> find_load(const MethodTable::Entry& method) const;

  /// What has become of its calls so far; null for a method of a layer.
  MethodStats* find_stats(const MethodTable::Entry& method) const;
  /// What operators see of the calls of clients, and of all methods.
  void report(StateReport& report) const;
  /// Of a client, by the number that report() has told.
  bool cancel_call_of_client(std::uint64_t number);
  /// Held while a call tells what it is, and while one lets go of that before its end.
  Mutex& reports() { return reports_; }

  /// Whether methods are served that wait for their turn.
  bool has_turns() const { return has_turns_; }
  /// The turns at objects, and those at the references to them.
  const std::shared_ptr<ObjectTurns>& turns() const { return turns_; }
  const std::shared_ptr<ObjectTurns>& lines() const { return lines_; }

  /// What a caller has proved of itself.
  std::vector<std::string> identities_of(AuthenticatedPeer remote) const;
  /// kPermissionDenied where the rules do not cover the caller, which is counted, and told in the
  /// worker's log. `caller`: the worker's name; empty: a client.
  absl::Status check_caller(const MethodRules& rules, std::string_view method,
                            const std::string& caller, const AuthenticatedPeer& remote);

  /// A control method that tells nothing but by being answered.
  static constexpr std::string_view kHeardMethod = "sinew.worker.heard";
  /// The control methods that a worker may call before this one knows it as a member.
  static bool is_for_guests(std::string_view method);

  /// `sink`, or what it was wrapped in; the call has been read then.
  std::shared_ptr<ReplySink> sink_for(ArrivedCall& call, std::shared_ptr<ReplySink> sink);

  /// Until then calls are held back: the worker does not know its own job, nor its layers, yet.
  /// `control_methods`: those of the layers. kInvalidArgument: see
  /// MethodTable::check_restrictions().
  absl::Status open(std::vector<std::string> control_methods);
  /// Starts calls on the executor, once the worker is open.
  void start(std::vector<std::shared_ptr<Invocation>> calls);
  /// No call is started any more.
  void close();

  /// Why a call that has waited for a thread for so long is refused.
  std::string explain_queued(std::chrono::nanoseconds waited);
  /// A call has waited for so long: says so in the worker's log if that is long, and was not said
  /// lately.
  void note_queued(std::chrono::nanoseconds waited);

  std::int64_t active_calls() const { return active_calls_.load(std::memory_order_acquire); }
  std::int64_t calls_started() const { return calls_started_.load(std::memory_order_acquire); }
  void call_began() {
    active_calls_.fetch_add(1, std::memory_order_acq_rel);
    calls_started_.fetch_add(1, std::memory_order_acq_rel);
  }
  void call_ended() { active_calls_.fetch_sub(1, std::memory_order_release); }

  /// What the worker's links count together, since they come and go.
  struct Made {
    /// User calls that have not ended; a call counts until what follows from its end has been
    /// posted. And all that were ever started.
    std::atomic<std::int64_t> active{0};
    std::atomic<std::int64_t> started{0};
    /// Calls of any kind and notes to others that were ever started, the layers' own ones too.
    std::atomic<std::int64_t> requests{0};
    /// Attempts of users' calls beyond the first ones.
    std::atomic<std::int64_t> retries{0};
  };
  Made& made() { return made_; }
  /// Calls that rules of methods have turned away.
  struct Refused {
    /// Their callers may not call the method.
    std::atomic<std::int64_t> not_allowed{0};
    std::atomic<std::int64_t> over_limit{0};
  };
  Refused& refused() { return refused_; }
  /// Calls under way of methods that have limits.
  std::int64_t limited_calls() const;

  struct OfClient {
    std::uint64_t number;
    std::shared_ptr<Invocation> call;
  };
  std::vector<OfClient> calls_of_clients() const;

  // UnaryHandler
  void on_unary_call(std::unique_ptr<UnaryCall> call) override;

 private:
  static constexpr std::size_t kFewOfClients = 64;

  void post(std::vector<std::shared_ptr<Invocation>> calls);
  void remember(const std::shared_ptr<Invocation>& of_client);
  void serve_beside(std::shared_ptr<Invocation> call);

  WorkerServices& services_;
  const WrapReplySink wrap_sink_;
  // Constant once calls are served.
  absl::flat_hash_map<std::string, MethodTable::Entry> layer_methods_;
  // Constant after construction.
  absl::flat_hash_map<const MethodTable::Entry*, std::shared_ptr<MethodLoad>> loads_;
  absl::flat_hash_map<const MethodTable::Entry*, std::unique_ptr<MethodStats>> stats_;
  bool has_turns_ = false;
  const std::shared_ptr<ObjectTurns> turns_ = std::make_shared<ObjectTurns>();
  const std::shared_ptr<ObjectTurns> lines_ = std::make_shared<ObjectTurns>();
  std::atomic<std::int64_t> active_calls_{0};
  std::atomic<std::int64_t> calls_started_{0};
  Made made_;
  Refused refused_;
  RateLimitedLog refusals_;
  Mutex reports_;

  mutable Mutex mutex_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  // When the log has heard of calls that wait.
  std::optional<Clock::TimePoint> queue_told_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Invocation>> held_ ABSL_GUARDED_BY(mutex_);
  // Of clients, by numbers that they get here, since their own mean nothing. Those that have ended
  // are dropped when others come.
  absl::btree_map<std::uint64_t, std::weak_ptr<Invocation>> of_clients_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t last_of_clients_ ABSL_GUARDED_BY(mutex_) = 0;
  std::size_t clients_looked_at_ ABSL_GUARDED_BY(mutex_) = kFewOfClients;
};

}  // namespace sinew::internal
