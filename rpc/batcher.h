#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "sinew/rpc/base/future.h"
#include "sinew/rpc/batcher_options.h"
#include "sinew/rpc/internal/batch_calls.h"
#include "sinew/rpc/internal/batch_runner.h"

namespace sinew {

/// Collects calls and answers them together: a network that takes 64 rows in the time of one, a
/// step that needs the gradients of all. A call that waits holds no thread.
///
///     class Classifier {
///      public:
///       sinew::Future<at::Tensor> scores(at::Tensor picture) {
///         return batcher_(std::move(picture));
///       }
///      private:
///       app::Network network_;
///       sinew::Batcher<at::Tensor, at::Tensor> batcher_{
///           [this](std::vector<at::Tensor> pictures) {
///             return network_->forward(at::stack(pictures)).unbind();
///           },
///           {/*max_batch=*/32}};
///     };
///
/// A batch goes when it is full, when its first call has waited for `max_wait`, or when all are in
/// who are expected, and `max_concurrent` allows it; its calls are in the order in which they came.
/// Calls whose caller has cancelled them or waits no longer (CallContext) leave before that, and
/// count for nothing.
///
/// Batches run on threads of the Batcher's own, `max_concurrent` at most, which are none of a
/// worker's: they run for no call in particular, so that there is no CallContext and no autograd
/// context in them.
///
/// Thread-safe. Its function must not use what is destroyed before the Batcher: let it be the last
/// member of its class. Does not survive fork().
template <class In, class Out>
class Batcher {
 public:
  /// `run` gets the inputs of a batch, as std::vector<In>, and returns as many outputs in the same
  /// order, as std::vector<Out> (void if Out is void), or a Future of that: then the thread is free
  /// and the batch ends when the future is done. When it throws, or its future fails, all calls of
  /// the batch get that error; when the number of outputs is another one, kInternal.
  ///
  /// Throws RpcError kInvalidArgument for options that make no sense, kResourceExhausted when
  /// threads cannot be started.
  template <class F>
  explicit Batcher(F run, const BatcherOptions& options = {})
      : runner_(internal::BatchRunner::make(options,
                                            internal::batch_function<In, Out>(std::move(run)))) {}
  /// Fails the calls that wait with kCancelled, and waits until no batch is being run; those whose
  /// function has returned a Future complete when that does. A batch that destroys its own Batcher
  /// is not waited for.
  ~Batcher() { internal::BatchRunner::stop(runner_); }
  Batcher(const Batcher&) = delete;
  Batcher& operator=(const Batcher&) = delete;

  /// The future output for `input`. Returns at once; each error is the future's. What fails before
  /// its batch begins is Rejected: the caller of a method that returns the future learns that it
  /// did not run. The codes are kResourceExhausted when `max_queued` calls wait, kCancelled and
  /// kDeadlineExceeded when the call that is being served is given up, kCancelled when the Batcher
  /// is destroyed. Otherwise what `run` throws.
  Future<Out> add(In input) {
    auto call = std::make_unique<internal::TypedBatchCall<In, Out>>(std::move(input));
    Future<Out> output = call->output.future();
    runner_->add(std::move(call));
    return output;
  }
  Future<Out> operator()(In input) { return add(std::move(input)); }

  /// Changes BatcherOptions::expected: callers have joined or left. Calls that wait may go now.
  void set_expected(std::size_t callers) { runner_->set_expected(callers); }

  BatcherStats stats() const { return runner_->stats(); }

 private:
  const std::shared_ptr<internal::BatchRunner> runner_;
};

}  // namespace sinew
