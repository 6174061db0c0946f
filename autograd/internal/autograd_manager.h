#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "sinew/autograd/internal/backward_pass.h"
#include "sinew/autograd/internal/context_state.h"
#include "sinew/autograd/internal/ended_contexts.h"
#include "sinew/autograd/internal/release_queue.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/calls/extension.h"

namespace sinew::proto {
class AutogradDelivery;
class AutogradFactsRequest;
class AutogradRun;
}  // namespace sinew::proto

namespace sinew {
class Peer;
}

namespace sinew::internal {

class PendingCall;

/// The autograd layer of one worker: its contexts, what it attaches to calls, and its part in
/// backward passes. Thread-safe.
class AutogradManager final : public Extension,
                              public PassNetwork,
                              public std::enable_shared_from_this<AutogradManager> {
 public:
  static std::shared_ptr<AutogradManager> make(WorkerServices& services);
  /// That of a worker; throws kFailedPrecondition when it was started without the autograd layer.
  static std::shared_ptr<AutogradManager> of(const WorkerServices& services);
  ~AutogradManager() override;

  WorkerServices& services() const { return services_; }

  // --- For users.

  std::shared_ptr<ContextState> create();
  /// The serial of the next one that this worker makes: those of later ones are greater.
  std::uint64_t next_serial() const;
  /// Ends a context of this worker here and everywhere else. Idempotent.
  void end(const autograd::ContextId& id);
  /// Throws RpcError kNotFound when this worker has no such context.
  std::shared_ptr<ContextState> find(const autograd::ContextId& id) const;
  std::shared_ptr<ContextState> find_or_null(const autograd::ContextId& id) const;
  /// See internal::has_ended().
  bool has_ended(const autograd::ContextId& id, Incarnation caller) const;
  /// Runs a pass, as far as possible on the calling thread, and waits for its end. Throws RpcError
  /// for what is wrong with the roots, when a pass of the context runs already, or what the pass
  /// fails with. Does not use options.runner.
  void backward(const std::shared_ptr<ContextState>& context, const std::vector<at::Tensor>& roots,
                PassOptions options);
  /// Starts a pass. Throws RpcError for what is wrong with the roots, or when a pass of the context
  /// runs already. Runs `on_end` after the end.
  Future<void> backward_async(
      const std::shared_ptr<ContextState>& context, const std::vector<at::Tensor>& roots,
      const PassOptions& options, std::function<void()> on_end = [] {});

  // --- For methods.

  /// A call that asks this worker to take part; `answer` is PassNetwork's on_answer from afar.
  void on_run(const WorkerInfo& from, const proto::AutogradRun& run,
              std::vector<EdgeGradients> gradients, Clock::TimePoint deadline,
              const CancellationToken& cancellation, BackwardPass::OnAnswer answer);
  void on_gradients(const WorkerInfo& from, const proto::AutogradDelivery& delivery,
                    std::vector<EdgeGradients> gradients, BackwardPass::OnAnswer answer);
  std::string on_facts(const WorkerInfo& from, const proto::AutogradFactsRequest& request) const;

  // --- PassNetwork
  void ask(const std::shared_ptr<BackwardPass>& pass, Incarnation worker,
           const std::vector<MessageEdges>& live, std::vector<EdgeGradients> gradients,
           Answering answering) override;
  void bring(const std::shared_ptr<BackwardPass>& pass, Incarnation worker,
             std::vector<EdgeGradients> gradients, Answering answering) override;
  void abort(const std::shared_ptr<ContextState>& context, const PassId& pass,
             const std::vector<Incarnation>& workers) override;

  // --- Extension
  std::string_view layer() const override { return kAutogradLayer; }
  /// Contexts have ended.
  void on_note(const WorkerInfo& from, std::string body) override;
  void on_worker_fenced(const WorkerInfo& worker) override;
  void on_worker_lost(const WorkerInfo& worker) override { on_worker_fenced(worker); }
  void add_counters(Counters& counters) const override;
  void report(StateReport& report) const override;
  void begin_message(MessageRoute& route, const std::shared_ptr<void>& ambient) override;
  std::string on_send(MessageRoute& route) override;
  /// Warns, once, if a context of this worker is open: the call was meant to be in it.
  void on_unfollowed_gradient(const std::string& method, const WorkerInfo& callee) override;
  void on_receive(MessageRoute& route, MessageKind kind, const std::string& attachment) override;
  std::vector<Method> methods() const override;
  Future<std::vector<std::string>> drain_async(DrainScope scope,
                                               Clock::TimePoint deadline) override;
  void stop() override;

 private:
  struct Search;

  explicit AutogradManager(WorkerServices& services);

  void search(const std::shared_ptr<Search>& search);
  void ask_for_facts(const std::shared_ptr<Search>& search,
                     std::map<Incarnation, std::vector<EdgeId>> unknown);
  void begin_pass(const std::shared_ptr<Search>& search);
  void send(const Peer& peer, std::string_view method, const std::string& message,
            const std::vector<EdgeGradients>& gradients, std::unique_ptr<PendingCall> pending);
  std::shared_ptr<BackwardPass> join(const std::shared_ptr<ContextState>& context,
                                     const PassId& id);

  /// For a call of `caller`. Null when the context has ended.
  std::shared_ptr<ContextState> find_or_create(const autograd::ContextId& id,
                                               const WorkerInfo& caller);
  /// Contexts of others that this worker shares with `worker`, and who made them.
  std::vector<std::pair<WorkerInfo, autograd::ContextId>> brought_by(
      const WorkerInfo& worker) const;
  std::uint64_t live_from_locked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Future<std::string> on_abort(const WorkerInfo& from, const std::string& body);
  /// Its initiator says that the pass has failed.
  static void end_failed(const std::shared_ptr<ContextState>& context, const PassId& id);
  /// Forgets a context that is out of the table.
  void drop(const std::shared_ptr<ContextState>& context, ContextState::Released how,
            const absl::Status& reason, std::optional<Incarnation> told_by,
            std::uint64_t live_from);

  WorkerServices& services_;
  ReleaseQueue releases_;
  std::atomic<std::uint64_t> next_message_{1};
  std::atomic<std::uint64_t> next_pass_{1};
  // Calls to other workers for passes.
  std::atomic<std::int64_t> calls_{0};
  std::atomic<bool> has_warned_{false};

  mutable Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::uint64_t next_context_ ABSL_GUARDED_BY(mutex_) = 1;
  absl::flat_hash_map<autograd::ContextId, std::shared_ptr<ContextState>> contexts_
      ABSL_GUARDED_BY(mutex_);
  EndedContexts ended_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
