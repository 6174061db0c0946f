#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/inlined_vector.h"
#include "absl/functional/any_invocable.h"
#include "sinew/autograd/internal/context_state.h"
#include "sinew/autograd/internal/edge_gradients.h"
#include "sinew/autograd/internal/local_backward.h"
#include "sinew/autograd/internal/pass_id.h"
#include "sinew/autograd/internal/pass_part.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/threads/executor.h"
#include "sinew/rpc/base/threads/timer_queue.h"
#include "sinew/rpc/cancellation.h"

namespace sinew::internal {

class BackwardPass;

struct PassOptions {
  LocalBackward::Graph graph = LocalBackward::Graph::kRelease;
  Clock::TimePoint deadline = Clock::TimePoint::max();
  /// Runs what answers of other workers lead to.
  std::shared_ptr<TaskRunner> runner;
};

/// What a worker that was asked to take part, or given gradients, answers.
struct PartAnswer {
  /// For the worker that asked.
  std::vector<EdgeGradients> gradients;
  /// Its part is not done: it waits for further gradients from the worker that asked.
  bool waits = false;
};

/// How a pass reaches other workers. Nothing blocks; answers come to the pass, which it keeps.
class PassNetwork {
 public:
  virtual ~PassNetwork() = default;
  /// Asks a worker to take part; ends in on_answer().
  virtual void ask(const std::shared_ptr<BackwardPass>& pass, Incarnation worker,
                   const std::vector<MessageEdges>& live, std::vector<EdgeGradients> gradients,
                   Answering answering) = 0;
  /// Brings gradients to a worker; ends in on_answer().
  virtual void bring(const std::shared_ptr<BackwardPass>& pass, Incarnation worker,
                     std::vector<EdgeGradients> gradients, Answering answering) = 0;
  /// Tells workers that were asked that the pass has failed.
  virtual void abort(const std::shared_ptr<ContextState>& context, const PassId& pass,
                     const std::vector<Incarnation>& workers) = 0;
};

/// The part of one worker in a backward pass: does what PassPart says, with gradients, a graph and
/// other workers. Runs its part of the graph on the threads that bring gradients, one at a time;
/// never blocks. Thread-safe.
class BackwardPass : public std::enable_shared_from_this<BackwardPass> {
 public:
  /// Runs once, when there is an answer (see Answering): null, and what it is; or what the pass has
  /// failed with. Any thread.
  using OnAnswer = absl::AnyInvocable<void(std::exception_ptr, PartAnswer) &&>;

  BackwardPass(PassNetwork& network, std::shared_ptr<ContextState> context, PassId id);

  const PassId& id() const { return id_; }
  ContextState& context() const { return *context_; }
  PassOptions options() const;
  /// Cancelled when the pass fails.
  CancellationToken cancellation() const { return cancellation_.token(); }

  /// Says who wants to know of the end. False if that was said before; `on_answer` is then not
  /// used.
  bool prepare(const PassOptions& options, std::optional<Incarnation> requester,
               Answering answering, OnAnswer& on_answer);

  /// What a worker does in a pass.
  struct Part {
    /// At the initiator: where gradients enter first.
    torch::autograd::edge_list roots;
    torch::autograd::variable_list root_gradients;
    /// The messages of this worker that gradients come for, and where those enter.
    std::vector<MessageEdges> live;
    ContextState::Entries entries;
    /// The workers to ask, with their messages.
    std::map<Incarnation, std::vector<MessageEdges>> ask;
    /// Those that have nothing to do before this one has gradients for them: asked together with
    /// the first.
    std::map<Incarnation, std::vector<MessageEdges>> ask_later;
    /// For messages of this worker, what came with the request.
    std::vector<EdgeGradients> gradients;
  };
  /// Once, after prepare().
  void begin(Part part);

  /// Gradients for messages of this worker; may come before begin(). `on_answer` runs at once
  /// unless the answers come in steps.
  void deliver(std::vector<EdgeGradients> gradients, Answering answering, OnAnswer on_answer);

  /// Another worker that was asked, or brought gradients, has answered; or failed.
  void on_answer(Incarnation worker, std::exception_ptr error, PartAnswer answer);

  /// Ends the pass here, and at all that this worker has asked. Does nothing after the end.
  void fail(std::exception_ptr error);
  /// fail(), where the initiator will not call again to hear of it.
  void abandon(std::exception_ptr error);
  /// What the pass waits for, for the text of an error.
  std::string describe_wait() const;

 private:
  using Outgoing = std::map<Incarnation, std::vector<EdgeGradients>>;
  /// What PassPart wants to be done, with what stands behind its numbers.
  struct Todo {
    Todo() = default;
    explicit Todo(PassPart::Actions said) : actions(std::move(said)) {}

    PassPart::Actions actions;
    std::vector<std::vector<EdgeGradients>> sends;
    std::vector<EdgeGradients> arrivals;
    std::vector<EdgeGradients> answer;
    std::vector<OnAnswer> answered;
    std::vector<OnAnswer> failed;
    std::exception_ptr failure;
  };

  bool is_initiator() const { return id_.initiator == context_->self().incarnation; }
  PassPart::Parcels store(std::vector<EdgeGradients> gradients)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  PassPart::Waiter store(OnAnswer on_answer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Todo look_up(PassPart::Actions actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<EdgeGradients> take(const PassPart::Parcels& parcels)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<EdgeGradients> take_all() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<OnAnswer> take(const std::vector<PassPart::Waiter>& waiters)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void carry_out(Todo& todo);
  void perform(Todo& todo);
  void tell_failed(Todo& todo) const;
  void undo_reductions(PassPart::Unreduce what, const std::exception_ptr& failure);
  std::exception_ptr fault_of(const PassPart::Actions& actions) const;
  Todo run(std::vector<EdgeGradients> arrivals);
  Outgoing step(std::vector<EdgeGradients> arrivals);
  void arrive(EdgeGradients arrival);
  PassReductions begin_reductions() const;
  void add_reductions(LocalBackward::Early& early) const;
  void reduce();
  void after_reduction();
  void commit();
  bool send_early(Incarnation worker, std::vector<LocalBackward::Outgoing>& gradients,
                  const std::set<Incarnation>& receivers);
  void send(const PassPart::Send& to, std::vector<EdgeGradients> gradients);
  std::exception_ptr named(const std::exception_ptr& error) const;

  PassNetwork& network_;
  const std::shared_ptr<ContextState> context_;
  const PassId id_;
  const CancellationSource cancellation_;

  // Written by begin(), then used by the one thread that runs the graph at a time.
  std::optional<LocalBackward> local_;
  std::map<std::uint64_t, std::vector<std::uint32_t>> live_;
  std::map<Incarnation, std::vector<MessageEdges>> live_of_others_;
  PassReductions reductions_;
  PassReductions::Reduced reduced_;

  mutable Mutex mutex_;
  PassPart part_ ABSL_GUARDED_BY(mutex_);
  PassOptions options_ ABSL_GUARDED_BY(mutex_);
  // What the pass has failed with: told to those who call later.
  std::exception_ptr failure_ ABSL_GUARDED_BY(mutex_);
  // What the numbers of part_ stand for: places here, which are empty once it is taken.
  absl::InlinedVector<EdgeGradients, 4> parcels_ ABSL_GUARDED_BY(mutex_);
  absl::InlinedVector<OnAnswer, 4> waiters_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
