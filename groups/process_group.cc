#include "sinew/groups/process_group.h"

#include <utility>

#include "sinew/groups/internal/collectives.h"
#include "sinew/groups/internal/group_engine.h"
#include "sinew/groups/internal/group_runtime.h"
#include "sinew/rpc/base/error.h"

namespace sinew {
namespace {

using internal::GroupEngine;
using internal::Operation;
using Engine = std::shared_ptr<GroupEngine>;
using Tensors = std::vector<at::Tensor>;

void check_options(const GroupCallOptions& options) {
  if (!options.timeout || *options.timeout > std::chrono::nanoseconds(0)) return;
  throw RpcError(ErrorCode::kInvalidArgument,
                 "the timeout of a group's operation must be more than 0");
}

Future<void> run(const Engine& engine, Operation operation, const GroupCallOptions& options) {
  check_options(options);
  operation.timeout = options.timeout;
  const Promise<void> promise(&internal::GroupRuntime::get().executor());
  operation.done = [promise](const std::exception_ptr& error, int) {
    if (error != nullptr) {
      promise.try_set_error(error);
    } else {
      promise.try_set_value();
    }
  };
  engine->submit(std::move(operation));
  return promise.future();
}

Future<int> receive(const Engine& engine, Operation operation, std::optional<int> from) {
  const Promise<int> promise(&internal::GroupRuntime::get().executor());
  operation.done = [promise, from](const std::exception_ptr& error, int source) {
    if (error != nullptr) {
      promise.try_set_error(error);
    } else {
      promise.try_set_value(from.value_or(source));
    }
  };
  engine->submit(std::move(operation));
  return promise.future();
}

void run_and_wait(const Engine& engine, Operation operation, const GroupCallOptions& options) {
  check_options(options);
  operation.timeout = options.timeout;
  operation.caller.blocks = true;
  if (engine->run_in_place(operation)) return;
  run(engine, std::move(operation), options).wait();
}

}  // namespace

const Engine& ProcessGroup::engine() const {
  if (engine_ == nullptr) {
    throw RpcError(ErrorCode::kFailedPrecondition,
                   "this ProcessGroup is no group: this process is not among its ranks, or "
                   "init_process_group() was not called");
  }
  return engine_;
}

int ProcessGroup::rank() const { return engine()->rank(); }
int ProcessGroup::size() const { return engine()->size(); }
const std::string& ProcessGroup::name() const { return engine()->setup().name; }

void ProcessGroup::send(const at::Tensor& tensor, int to, int tag,
                        const GroupCallOptions& options) const {
  run_and_wait(engine(), internal::make_send(*engine(), tensor, to, tag), options);
}

int ProcessGroup::recv(const at::Tensor& tensor, std::optional<int> from, int tag,
                       const GroupCallOptions& options) const {
  check_options(options);
  Operation operation = internal::make_recv(*engine(), tensor, from, tag);
  operation.timeout = options.timeout;
  const std::optional<int> source = engine()->run_in_place(operation);
  if (source) return from.value_or(*source);
  return receive(engine(), std::move(operation), from).wait();
}

Future<void> ProcessGroup::isend(const at::Tensor& tensor, int to, int tag,
                                 const GroupCallOptions& options) const {
  return run(engine(), internal::make_send(*engine(), tensor, to, tag), options);
}

Future<int> ProcessGroup::irecv(const at::Tensor& tensor, std::optional<int> from, int tag,
                                const GroupCallOptions& options) const {
  check_options(options);
  Operation operation = internal::make_recv(*engine(), tensor, from, tag);
  operation.timeout = options.timeout;
  return receive(engine(), std::move(operation), from);
}

Future<void> ProcessGroup::broadcast_async(const at::Tensor& tensor, int root,
                                           const GroupCallOptions& options) const {
  return run(engine(), internal::make_broadcast(*engine(), tensor, root), options);
}

Future<void> ProcessGroup::all_reduce_async(const at::Tensor& tensor, ReduceOp op,
                                            const GroupCallOptions& options) const {
  return run(engine(), internal::make_all_reduce(*engine(), tensor, op), options);
}

Future<void> ProcessGroup::reduce_async(const at::Tensor& tensor, int root, ReduceOp op,
                                        const GroupCallOptions& options) const {
  return run(engine(), internal::make_reduce(*engine(), tensor, root, op), options);
}

Future<void> ProcessGroup::scatter_async(const at::Tensor& output, const Tensors& inputs, int root,
                                         const GroupCallOptions& options) const {
  return run(engine(), internal::make_scatter(*engine(), output, inputs, root), options);
}

Future<void> ProcessGroup::gather_async(const Tensors& outputs, const at::Tensor& input, int root,
                                        const GroupCallOptions& options) const {
  return run(engine(), internal::make_gather(*engine(), outputs, input, root), options);
}

Future<void> ProcessGroup::all_gather_async(const Tensors& outputs, const at::Tensor& input,
                                            const GroupCallOptions& options) const {
  return run(engine(), internal::make_all_gather(*engine(), outputs, input), options);
}

Future<void> ProcessGroup::reduce_scatter_async(const at::Tensor& output, const Tensors& inputs,
                                                ReduceOp op,
                                                const GroupCallOptions& options) const {
  return run(engine(), internal::make_reduce_scatter(*engine(), output, inputs, op), options);
}

Future<void> ProcessGroup::all_to_all_async(const Tensors& outputs, const Tensors& inputs,
                                            const GroupCallOptions& options) const {
  return run(engine(), internal::make_all_to_all(*engine(), outputs, inputs), options);
}

Future<void> ProcessGroup::barrier_async(const GroupCallOptions& options) const {
  return run(engine(), internal::make_barrier(*engine()), options);
}

void ProcessGroup::broadcast(const at::Tensor& tensor, int root,
                             const GroupCallOptions& options) const {
  run_and_wait(engine(), internal::make_broadcast(*engine(), tensor, root), options);
}

void ProcessGroup::all_reduce(const at::Tensor& tensor, ReduceOp op,
                              const GroupCallOptions& options) const {
  run_and_wait(engine(), internal::make_all_reduce(*engine(), tensor, op), options);
}

void ProcessGroup::reduce(const at::Tensor& tensor, int root, ReduceOp op,
                          const GroupCallOptions& options) const {
  run_and_wait(engine(), internal::make_reduce(*engine(), tensor, root, op), options);
}

void ProcessGroup::scatter(const at::Tensor& output, const Tensors& inputs, int root,
                           const GroupCallOptions& options) const {
  run_and_wait(engine(), internal::make_scatter(*engine(), output, inputs, root), options);
}

void ProcessGroup::gather(const Tensors& outputs, const at::Tensor& input, int root,
                          const GroupCallOptions& options) const {
  run_and_wait(engine(), internal::make_gather(*engine(), outputs, input, root), options);
}

void ProcessGroup::all_gather(const Tensors& outputs, const at::Tensor& input,
                              const GroupCallOptions& options) const {
  run_and_wait(engine(), internal::make_all_gather(*engine(), outputs, input), options);
}

void ProcessGroup::reduce_scatter(const at::Tensor& output, const Tensors& inputs, ReduceOp op,
                                  const GroupCallOptions& options) const {
  run_and_wait(engine(), internal::make_reduce_scatter(*engine(), output, inputs, op), options);
}

void ProcessGroup::all_to_all(const Tensors& outputs, const Tensors& inputs,
                              const GroupCallOptions& options) const {
  run_and_wait(engine(), internal::make_all_to_all(*engine(), outputs, inputs), options);
}

void ProcessGroup::barrier(const GroupCallOptions& options) const {
  run_and_wait(engine(), internal::make_barrier(*engine()), options);
}

void ProcessGroup::destroy() const { engine()->destroy(); }

}  // namespace sinew
