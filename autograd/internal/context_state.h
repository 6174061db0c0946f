#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "sinew/autograd/context_id.h"
#include "sinew/autograd/internal/edge_gradients.h"
#include "sinew/autograd/internal/gradient_table.h"
#include "sinew/autograd/internal/graph_walk.h"
#include "sinew/autograd/internal/leaf_reducer.h"
#include "sinew/autograd/internal/lineage.h"
#include "sinew/autograd/internal/local_backward.h"
#include "sinew/autograd/internal/pass_book.h"
#include "sinew/autograd/internal/pass_id.h"
#include "sinew/autograd/internal/pass_reductions.h"
#include "sinew/rpc/base/internal/mutex.h"

namespace sinew::internal {

class BackwardPass;

/// What one worker keeps of one context: who takes part, which tensors were sent and received, what
/// is known of the graph elsewhere, the gradients, and the pass that runs. Thread-safe.
class ContextState {
 public:
  ContextState(autograd::ContextId id, WorkerInfo self);
  ~ContextState();

  const autograd::ContextId& id() const { return id_; }
  /// Of the next scope that is opened at this worker.
  std::uint64_t next_scope() { return scopes_.fetch_add(1, std::memory_order_relaxed); }
  const WorkerInfo& self() const { return self_; }

  bool released() const;
  /// Released, although it may go on elsewhere.
  bool is_lost() const;
  /// Why nothing is recorded any more.
  enum class Released {
    /// Its creator, or the worker that brought it here, has ended it.
    kEnded,
    /// This worker takes its creator for lost.
    kLost,
  };
  /// Forgets everything; from now on nothing is recorded. Returns the pass that ran, and the peers
  /// that took part.
  struct Remains {
    std::shared_ptr<BackwardPass> pass;
    std::vector<WorkerInfo> peers;
  };
  Remains release(Released why);

  // --- Recording.

  /// `peer` takes part. Returns false when the context has been released.
  bool add_peer(const WorkerInfo& peer);
  std::vector<WorkerInfo> peers() const;
  /// A message of the context went to that worker, or came from it.
  bool takes_part(const WorkerInfo& worker) const;
  /// Message `message` to `receiver` carries tensors along the edges of `entry` of this worker's
  /// graph, by number.
  void record_send(std::uint64_t message, const WorkerInfo& receiver, LocalBackward::Entry entry);
  void record_recv(std::shared_ptr<RecvNode> node);
  void learn(const std::vector<Lineage::Fact>& facts, Incarnation from);
  std::vector<Lineage::Fact> news_for(const WorkerInfo& peer);

  // --- Searching.

  /// What gradients along `edges` lead to at this worker.
  Behind behind_edges(const torch::autograd::edge_list& edges) const;
  /// What this worker knows about edges and about those that they lead to; unknown ones are left
  /// out.
  std::vector<Lineage::Fact> facts_about(const std::vector<EdgeId>& edges) const;
  std::map<Incarnation, std::vector<EdgeId>> follow(LiveEdges& live) const;

  // --- Passes.

  /// The running pass `id`, or the one that `make` makes. Errors: kNotFound when the context has
  /// been released, kAborted when the pass or a later one of its initiator has ended,
  /// kFailedPrecondition when another one runs.
  struct Joined {
    std::shared_ptr<BackwardPass> pass;
    /// An older pass of the same initiator, which has given it up.
    std::shared_ptr<BackwardPass> stale;
  };
  absl::StatusOr<Joined> join_pass(const PassId& id,
                                   const std::function<std::shared_ptr<BackwardPass>()>& make);
  /// Where gradients for these messages of this worker enter its graph. kInvalidArgument: it has
  /// sent no such message in this context.
  using Entries = LocalBackward::Entries;
  absl::StatusOr<Entries> entries(const std::vector<MessageEdges>& live) const;
  /// kPermissionDenied unless all of these are gradients of tensors that this worker sent to
  /// `from`.
  absl::Status check_brings(Incarnation from, const std::vector<EdgeGradients>& gradients) const;
  /// `reducer` takes part in the next pass at this worker. False when the context has ended.
  bool add_reducer(const std::shared_ptr<LeafReducer>& reducer);
  /// Those for a pass that begins, or that has failed before it did.
  std::vector<std::shared_ptr<LeafReducer>> take_reducers();
  /// Those of all passes whose gradients were added, in the order of their first.
  std::vector<std::shared_ptr<LeafReducer>> past_reducers() const;
  /// Adds the gradients that a pass has brought; false, and nothing is added, when it has ended.
  /// `reductions`, which `reduced` came from, are told when they are taken back.
  bool commit(const PassId& id, std::vector<LocalBackward::Leaf>& leaves,
              const PassReductions& reductions = {}, const PassReductions::Reduced& reduced = {});
  /// The pass has ended; what a failed one has added is taken back. Also for one that never began
  /// here.
  void end_pass(const PassId& id, PassPart::End end);
  std::shared_ptr<BackwardPass> pass() const;
  /// Passes of this worker that have failed, of which these workers have to hear; until they are
  /// said to have. By serial.
  void owe_failure(std::uint64_t failed, const std::vector<Incarnation>& workers);
  void settle_failure(std::uint64_t failed, Incarnation worker);
  std::vector<std::uint64_t> failures_owed_to(Incarnation worker) const;

  // --- Gradients.
  at::Tensor gradient_of(const at::Tensor& leaf) const;
  /// See GradientTable::scale(). False, and nothing is changed, while a pass runs.
  bool scale_gradients(const std::vector<at::Tensor>& leaves, double factor,
                       std::uint64_t operation);
  std::vector<std::pair<at::Tensor, at::Tensor>> gradients() const;

  struct Sizes {
    std::size_t sends = 0;
    std::size_t recvs = 0;
    std::size_t passes = 0;
    /// What is known of the graph, on all workers.
    std::size_t facts = 0;
    /// How many nodes of this worker's graph were looked at for what was sent.
    std::uint64_t nodes = 0;
  };
  Sizes sizes() const;

 private:
  /// A message with tensors.
  struct Sent {
    Incarnation receiver;
    LocalBackward::Entry entry;
  };
  using Sends = absl::btree_map<std::uint64_t, Sent>;
  const autograd::ContextId id_;
  const WorkerInfo self_;
  std::atomic<std::uint64_t> scopes_{0};

  mutable Mutex mutex_;
  std::optional<Released> released_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<Incarnation, WorkerInfo> peers_ ABSL_GUARDED_BY(mutex_);
  Sends sends_ ABSL_GUARDED_BY(mutex_);
  // Tensors hold them. The key: incarnation and message of the sender.
  absl::flat_hash_map<EdgeId, std::weak_ptr<RecvNode>> recvs_ ABSL_GUARDED_BY(mutex_);
  GraphWalk walk_ ABSL_GUARDED_BY(mutex_);
  Lineage lineage_ ABSL_GUARDED_BY(mutex_);
  GradientTable gradients_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<LeafReducer>> reducers_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<LeafReducer>> past_reducers_ ABSL_GUARDED_BY(mutex_);
  // Of the last pass that has added gradients.
  PassReductions reductions_ ABSL_GUARDED_BY(mutex_);
  std::optional<PassId> reduced_by_ ABSL_GUARDED_BY(mutex_);
  // The one that runs.
  std::shared_ptr<BackwardPass> pass_ ABSL_GUARDED_BY(mutex_);
  PassBook book_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
