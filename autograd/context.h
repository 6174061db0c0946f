#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "ATen/core/Tensor.h"
#include "sinew/autograd/context_id.h"
#include "sinew/autograd/internal/layer.h"
#include "sinew/rpc/call_context.h"
#include "sinew/rpc/worker.h"

namespace sinew {
namespace internal {
class CallBuilder;
class ContextState;
}  // namespace internal

namespace autograd {

struct BackwardOptions {
  /// Keeps what the graph needs to run again. The gradients of a further pass are added.
  bool retain_graph = false;
  /// For the whole pass on all workers. Unset: the worker's default. kNoTimeout: no limit.
  /// What runs at this worker is not interrupted: backward() throws when it is through.
  std::optional<std::chrono::nanoseconds> timeout;
};

/// While it lives, calls that this thread makes record how their tensors depend on each other
/// across workers, so that backward() can follow. That holds for call(), async(), remote() and
/// to_here(), for the calls that their handlers make in turn, and for continuations of futures.
/// Gradients are collected in the context, on the worker of each leaf; `.grad` is never touched.
///
///     sinew::autograd::Context context;
///     at::Tensor loss = worker.peer("other").call<&app::layer>(input).sum();
///     sinew::autograd::backward(context, {loss});
///     at::Tensor gradient = sinew::autograd::gradient_of(context, weight);
///
/// Where no worker is given, here and below, it is current_worker().
///
/// At its end it is forgotten on all workers. A worker that is lost takes its contexts with it.
class Context {
 public:
  /// Throws RpcError kFailedPrecondition when the thread works in a context already (the handler of
  /// a call that was made in one does), or when the worker was shut down.
  explicit Context(const Worker& worker = current_worker());
  /// On the thread that made it.
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const ContextId& id() const;
  const Worker& worker() const { return worker_; }

  /// The context that this thread works in, also within handlers. Throws RpcError
  /// kFailedPrecondition when it works in none.
  static ContextId current();
  static std::optional<ContextId> current_or_none();

  /// For RRef::backward().
  template <class Reference>
  void backward_at(const Reference& root, const BackwardOptions& options) const;

 private:
  struct Scope;

  const Worker worker_;
  const std::shared_ptr<internal::ContextState> state_;
  std::unique_ptr<Scope> scope_;
};

/// Lets this thread work in a context that another one has made, or that a call has brought to this
/// worker. The context must outlive it. Throws RpcError kNotFound when the worker has no such
/// context, otherwise as Context.
class ContextScope {
 public:
  ContextScope(const Worker& worker, const ContextId& context);
  explicit ContextScope(const ContextId& context) : ContextScope(current_worker(), context) {}
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  struct Scope;
  std::unique_ptr<Scope> scope_;
};

/// Computes the gradients of the sum of `roots`, scalars of this worker, with respect to all leaves
/// that they depend on, on all workers, and adds them to what the context has. Blocks until every
/// worker is done. When it throws, what the failed pass has added is taken back on all workers, and
/// the context can be used on. Throws RpcError:
///   kInvalidArgument for roots that are none (the text names the root and what is wrong with it),
///   kNotFound for a context that has ended, or that this worker does not have,
///   kFailedPrecondition when another pass of the context runs,
///   kUnavailable when a worker that takes part is lost, kDeadlineExceeded after the timeout,
///   and what a function of the graph threw: the text and peer() name the worker.
void backward(const Context& context, const std::vector<at::Tensor>& roots,
              const BackwardOptions& options = {});
/// The same by a worker that takes part in the context of another worker, e.g. in a handler.
void backward(const Worker& worker, const ContextId& context, const std::vector<at::Tensor>& roots,
              const BackwardOptions& options = {});
inline void backward(const ContextId& context, const std::vector<at::Tensor>& roots,
                     const BackwardOptions& options = {}) {
  backward(current_worker(), context, roots, options);
}

/// Tensors are the same when they are the same object, whatever their elements.
struct TensorIdentity {
  std::size_t operator()(const at::Tensor& tensor) const {
    return std::hash<const void*>()(tensor.unsafeGetTensorImpl());
  }
  bool operator()(const at::Tensor& a, const at::Tensor& b) const { return a.is_same(b); }
};
/// From leaf to gradient.
using Gradients = std::unordered_map<at::Tensor, at::Tensor, TensorIdentity, TensorIdentity>;

/// The gradients of this worker's leaves so far; leaves that no pass has reached are absent. Throws
/// RpcError kNotFound when the worker has no such context.
Gradients gradients(const Context& context);
Gradients gradients(const Worker& worker, const ContextId& context);
inline Gradients gradients(const ContextId& context) {
  return gradients(current_worker(), context);
}
/// That of one leaf; undefined when there is none.
at::Tensor gradient_of(const Context& context, const at::Tensor& leaf);
at::Tensor gradient_of(const Worker& worker, const ContextId& context, const at::Tensor& leaf);
inline at::Tensor gradient_of(const ContextId& context, const at::Tensor& leaf) {
  return gradient_of(current_worker(), context, leaf);
}

}  // namespace autograd

namespace internal {

/// Starts a backward pass at the worker that `call` goes to and waits for its end.
std::unique_ptr<CallBuilder> begin_backward_at(const Peer& owner, const Worker& worker,
                                               const autograd::ContextId& context,
                                               const autograd::BackwardOptions& options);
void finish_backward_at(CallBuilder& call);

/// Whether this worker knows that the context has ended, from its creator or from `caller`.
/// A context that it has never heard of has not.
bool has_ended(const Worker& worker, const autograd::ContextId& context, Incarnation caller);

/// The serial of the next context that this worker makes: those of later ones are greater.
std::uint64_t next_context_serial(const Worker& worker);

/// Who wants gradients to be scaled; what has the same number does it once.
struct ScaleRequest {
  std::uint64_t operation = 0;
  WorkerInfo by;
};
/// Multiplies what the context has for these leaves at this worker. Throws RpcError kNotFound for a
/// context that is not here, kFailedPrecondition while a backward pass of it runs,
/// kPermissionDenied when `by` takes no part in it.
void scale_gradients(const Worker& worker, const autograd::ContextId& context,
                     const std::vector<at::Tensor>& leaves, double factor,
                     const ScaleRequest& request);

}  // namespace internal

template <class Reference>
void autograd::Context::backward_at(const Reference& root, const BackwardOptions& options) const {
  if (root.is_owner()) {
    backward(*this, {root.local_value()}, options);
    return;
  }
  const auto call = internal::begin_backward_at(root.peer(), worker_, id(), options);
  write_call_target(root, *call);
  internal::finish_backward_at(*call);
}

}  // namespace sinew
