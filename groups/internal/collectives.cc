#include "sinew/groups/internal/collectives.h"

#include <algorithm>
#include <string>
#include <utility>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sinew/groups/internal/overlap.h"
#include "sinew/groups/internal/reduction.h"
#include "sinew/groups/internal/staging.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {
namespace {

using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

[[noreturn]] void refuse(std::string text) {
  throw RpcError(ErrorCode::kInvalidArgument, std::move(text));
}

void check_rank(const GroupEngine& group, int rank, std::string_view what) {
  if (rank >= 0 && rank < group.size()) return;
  refuse(absl::StrCat(std::string(what), " is ", rank, "; the group '", group.setup().name,
                      "' has the ranks 0 to ", group.size() - 1));
}

void check_list(const GroupEngine& group, const Tensors& list, std::string_view what) {
  if (list.size() == static_cast<std::size_t>(group.size())) return;
  refuse(absl::StrCat(std::string(what), " has ", list.size(),
                      " tensors; it needs one for each of ", group.size(), " ranks"));
}

void check_empty(const Tensors& list, std::string_view what, int root) {
  if (list.empty()) return;
  refuse(absl::StrCat(std::string(what), " has ", list.size(), " tensors; only rank ", root,
                      ", the root, gives some"));
}

/// All of one type, device and (if `shape` is set) shape.
void check_alike(const at::Tensor& tensor, const at::Tensor& like, std::string_view what,
                 std::size_t at, TensorUse use) {
  check_tensor(tensor, what, use, at);
  if (tensor.scalar_type() != like.scalar_type() || tensor.device() != like.device()) {
    refuse(absl::StrCat("tensor ", at, " of ", std::string(what), " is of ",
                        std::string(c10::toString(tensor.scalar_type())), " on ",
                        tensor.device().str(), "; it must be of ",
                        std::string(c10::toString(like.scalar_type())), " on ", like.device().str(),
                        " like the others"));
  }
}

void check_same_size(const at::Tensor& tensor, const at::Tensor& like, std::string_view what,
                     std::size_t at, TensorUse use) {
  check_alike(tensor, like, what, at, use);
  if (tensor.sizes() == like.sizes()) return;
  refuse(absl::StrCat("tensor ", at, " of ", std::string(what), " has the sizes [",
                      absl::StrJoin(tensor.sizes(), ", "), "]; it must have [",
                      absl::StrJoin(like.sizes(), ", "), "] like the others"));
}

Operation begin(const GroupEngine& group, Function function, const at::Tensor& tensor) {
  Operation operation;
  operation.signature.function = function;
  operation.signature.type = tensor.scalar_type();
  operation.signature.shape = tensor.sizes().vec();
  operation.device = tensor.device();
  group.backend_for(operation.device.type());
  return operation;
}

void check_function(const GroupEngine& group, const Operation& operation) {
  const Backend& backend = group.backend_for(operation.device.type());
  if (backend.can(operation.signature.function)) return;
  throw RpcError(ErrorCode::kUnimplemented,
                 absl::StrCat("the backend ", std::string(backend.name()), " has no ",
                              std::string(name_of(operation.signature.function)),
                              operation.signature.function == Function::kRecvAnySource
                                  ? " from any source: name the sender"
                                  : ""));
}

/// Backends divide by the number of elements, or wait for messages that no rank sends. Where no
/// rank has any elements, the operation is only a barrier.
Operation without_elements(Operation operation) {
  operation.start = [](C10dBackend& backend) { return backend.barrier(); };
  operation.finish = nullptr;
  return operation;
}

template <class Options>
Options with_root(int root) {
  Options options;
  options.rootRank = root;
  return options;
}

std::vector<Staged> stage_all(const Tensors& tensors) {
  std::vector<Staged> staged;
  staged.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) staged.emplace_back(tensor);
  return staged;
}

/// What is read while outputs are written: a copy where they share memory. Most programs pass an
/// output as input for the rank's own part.
Staged stage_input(const at::Tensor& input, const Tensors& outputs) {
  for (const at::Tensor& output : outputs) {
    if (share_memory(input, output)) return Staged(input.detach().clone());
  }
  return Staged(input);
}

std::vector<Staged> stage_inputs(const Tensors& inputs, const Tensors& outputs) {
  std::vector<Staged> staged;
  staged.reserve(inputs.size());
  for (const at::Tensor& input : inputs) staged.push_back(stage_input(input, outputs));
  return staged;
}

Tensors bytes_of(const std::vector<Staged>& staged) {
  Tensors bytes;
  bytes.reserve(staged.size());
  for (const Staged& each : staged) bytes.push_back(each.bytes());
  return bytes;
}

std::function<void()> write_back_all(std::vector<Staged> staged) {
  return [staged = std::move(staged)] {
    for (const Staged& each : staged) each.write_back();
  };
}

std::vector<std::int64_t> element_counts(const Tensors& tensors) {
  std::vector<std::int64_t> counts;
  for (const at::Tensor& tensor : tensors) counts.push_back(tensor.numel());
  return counts;
}

std::function<WorkPtr(C10dBackend&)> exchange(Tensors into, Tensors from) {
  return [into = std::move(into), from = std::move(from)](C10dBackend& backend) mutable {
    return backend.alltoall(into, from);
  };
}

}  // namespace

Operation make_send(const GroupEngine& group, const at::Tensor& tensor, int to, int tag) {
  check_tensor(tensor, "the tensor to send", TensorUse::kRead);
  check_rank(group, to, "the receiver of send");
  if (to == group.rank()) refuse("a rank cannot send to itself");
  if (tag < 0) refuse(absl::StrCat("the tag is ", tag, "; it must not be negative"));
  Operation operation = begin(group, Function::kSend, tensor);
  check_function(group, operation);
  operation.peer = to;
  operation.start = [bytes = Staged(tensor).bytes(), to, tag](C10dBackend& backend) {
    Tensors tensors{bytes};
    return backend.send(tensors, to, tag);
  };
  return operation;
}

Operation make_recv(const GroupEngine& group, const at::Tensor& tensor, std::optional<int> from,
                    int tag) {
  check_tensor(tensor, "the tensor to receive into", TensorUse::kWritten);
  if (from) check_rank(group, *from, "the sender of recv");
  if (from == group.rank()) refuse("a rank cannot receive from itself");
  if (tag < 0) refuse(absl::StrCat("the tag is ", tag, "; it must not be negative"));
  Operation operation = begin(group, from ? Function::kRecv : Function::kRecvAnySource, tensor);
  check_function(group, operation);
  operation.peer = from.value_or(-1);
  Staged staged(tensor);
  operation.start = [bytes = staged.bytes(), from, tag](C10dBackend& backend) {
    Tensors tensors{bytes};
    return from ? backend.recv(tensors, *from, tag) : backend.recvAnysource(tensors, tag);
  };
  operation.finish = write_back_all({std::move(staged)});
  return operation;
}

Operation make_broadcast(const GroupEngine& group, const at::Tensor& tensor, int root) {
  check_rank(group, root, "the root of broadcast");
  check_tensor(tensor, "the tensor of broadcast",
               group.rank() == root ? TensorUse::kRead : TensorUse::kWritten);
  Operation operation = begin(group, Function::kBroadcast, tensor);
  operation.signature.root = root;
  check_function(group, operation);
  if (tensor.numel() == 0) return without_elements(std::move(operation));
  Staged staged(tensor);
  operation.start = [bytes = staged.bytes(), root](C10dBackend& backend) {
    Tensors tensors{bytes};
    return backend.broadcast(tensors, with_root<c10d::BroadcastOptions>(root));
  };
  if (group.rank() != root) operation.finish = write_back_all({std::move(staged)});
  return operation;
}

Operation make_all_reduce(const GroupEngine& group, const at::Tensor& tensor, ReduceOp op) {
  check_tensor(tensor, "the tensor of all_reduce", TensorUse::kReadAndWritten);
  Operation operation = begin(group, Function::kAllReduce, tensor);
  operation.signature.op = op;
  check_function(group, operation);
  if (tensor.numel() == 0) return without_elements(std::move(operation));
  Staged staged(tensor);
  Reduction reduction =
      plan_reduction(group.backend_for(operation.device.type()), staged.contiguous(), op);
  operation.start = [buffer = reduction.buffer, op = reduction.op](C10dBackend& backend) {
    Tensors tensors{buffer};
    c10d::AllreduceOptions options;
    options.reduceOp = c10d_op(op);
    return backend.allreduce(tensors, options);
  };
  operation.finish = [reduction = std::move(reduction), staged = std::move(staged),
                      size = group.size()] {
    store_reduced(reduction, size, staged.contiguous());
    staged.write_back();
  };
  return operation;
}

Operation make_reduce(const GroupEngine& group, const at::Tensor& tensor, int root, ReduceOp op) {
  check_rank(group, root, "the root of reduce");
  const bool is_root = group.rank() == root;
  check_tensor(tensor, "the tensor of reduce",
               is_root ? TensorUse::kReadAndWritten : TensorUse::kRead);
  Operation operation = begin(group, Function::kReduce, tensor);
  operation.signature.op = op;
  operation.signature.root = root;
  check_function(group, operation);
  if (tensor.numel() == 0) return without_elements(std::move(operation));
  // Backends use the tensors of the others as scratch memory.
  Staged staged(is_root ? tensor : tensor.detach().clone(at::MemoryFormat::Contiguous));
  Reduction reduction =
      plan_reduction(group.backend_for(operation.device.type()), staged.contiguous(), op);
  operation.start = [buffer = reduction.buffer, op = reduction.op, root](C10dBackend& backend) {
    Tensors tensors{buffer};
    auto options = with_root<c10d::ReduceOptions>(root);
    options.reduceOp = c10d_op(op);
    return backend.reduce(tensors, options);
  };
  if (is_root) {
    operation.finish = [reduction = std::move(reduction), staged = std::move(staged),
                        size = group.size()] {
      store_reduced(reduction, size, staged.contiguous());
      staged.write_back();
    };
  }
  return operation;
}

Operation make_scatter(const GroupEngine& group, const at::Tensor& output, const Tensors& inputs,
                       int root) {
  check_tensor(output, "the output of scatter", TensorUse::kWritten);
  check_rank(group, root, "the root of scatter");
  const bool is_root = group.rank() == root;
  if (is_root) {
    check_list(group, inputs, "the inputs of scatter");
  } else {
    check_empty(inputs, "the inputs of scatter", root);
  }
  for (std::size_t at = 0; at < inputs.size(); ++at) {
    check_same_size(inputs[at], output, "the inputs of scatter", at, TensorUse::kRead);
  }
  Operation operation = begin(group, Function::kScatter, output);
  operation.signature.root = root;
  check_function(group, operation);
  if (output.numel() == 0) return without_elements(std::move(operation));
  Staged staged(output);
  operation.start = [into = staged.bytes(), from = bytes_of(stage_inputs(inputs, {output})),
                     root](C10dBackend& backend) {
    Tensors outputs{into};
    std::vector<Tensors> lists;
    if (!from.empty()) lists.push_back(from);
    return backend.scatter(outputs, lists, with_root<c10d::ScatterOptions>(root));
  };
  operation.finish = write_back_all({std::move(staged)});
  return operation;
}

Operation make_gather(const GroupEngine& group, const Tensors& outputs, const at::Tensor& input,
                      int root) {
  check_tensor(input, "the input of gather", TensorUse::kRead);
  check_rank(group, root, "the root of gather");
  if (group.rank() == root) {
    check_list(group, outputs, "the outputs of gather");
  } else {
    check_empty(outputs, "the outputs of gather", root);
  }
  for (std::size_t at = 0; at < outputs.size(); ++at) {
    check_same_size(outputs[at], input, "the outputs of gather", at, TensorUse::kWritten);
  }
  check_apart(outputs, "the outputs of gather");
  Operation operation = begin(group, Function::kGather, input);
  operation.signature.root = root;
  check_function(group, operation);
  if (input.numel() == 0) return without_elements(std::move(operation));
  std::vector<Staged> staged = stage_all(outputs);
  operation.start = [into = bytes_of(staged), from = stage_input(input, outputs).bytes(),
                     root](C10dBackend& backend) {
    std::vector<Tensors> lists;
    if (!into.empty()) lists.push_back(into);
    Tensors inputs{from};
    return backend.gather(lists, inputs, with_root<c10d::GatherOptions>(root));
  };
  operation.finish = write_back_all(std::move(staged));
  return operation;
}

Operation make_all_gather(const GroupEngine& group, const Tensors& outputs,
                          const at::Tensor& input) {
  check_tensor(input, "the input of all_gather", TensorUse::kRead);
  check_list(group, outputs, "the outputs of all_gather");
  for (std::size_t at = 0; at < outputs.size(); ++at) {
    check_same_size(outputs[at], input, "the outputs of all_gather", at, TensorUse::kWritten);
  }
  check_apart(outputs, "the outputs of all_gather");
  Operation operation = begin(group, Function::kAllGather, input);
  check_function(group, operation);
  if (input.numel() == 0) return without_elements(std::move(operation));
  std::vector<Staged> staged = stage_all(outputs);
  operation.start = [into = bytes_of(staged),
                     from = stage_input(input, outputs).bytes()](C10dBackend& backend) {
    std::vector<Tensors> lists{into};
    Tensors inputs{from};
    return backend.allgather(lists, inputs);
  };
  operation.finish = write_back_all(std::move(staged));
  return operation;
}

Operation make_reduce_scatter(const GroupEngine& group, const at::Tensor& output,
                              const Tensors& inputs, ReduceOp op) {
  check_tensor(output, "the output of reduce_scatter", TensorUse::kWritten);
  check_list(group, inputs, "the inputs of reduce_scatter");
  for (std::size_t at = 0; at < inputs.size(); ++at) {
    check_alike(inputs[at], output, "the inputs of reduce_scatter", at, TensorUse::kRead);
  }
  check_same_size(inputs[static_cast<std::size_t>(group.rank())], output,
                  "the inputs of reduce_scatter", static_cast<std::size_t>(group.rank()),
                  TensorUse::kRead);
  Operation operation = begin(group, Function::kReduceScatter, output);
  operation.signature.op = op;
  operation.signature.shape.clear();
  operation.signature.sent = element_counts(inputs);
  operation.signature.received.assign(static_cast<std::size_t>(group.size()), output.numel());
  Backend& backend = group.backend_for(operation.device.type());
  check_reducible(output.scalar_type(), op);
  // By what all ranks agree about: shapes may differ between them.
  const bool is_even = operation.signature.sent == operation.signature.received;
  if (backend.reduces_parts(output.scalar_type(), op, is_even)) {
    Tensors from;
    for (const Staged& each : stage_inputs(inputs, {output}))
      from.push_back(each.contiguous().view({-1}));
    Staged into(output);
    operation.start = [into = into.contiguous().view({-1}), from, op](C10dBackend& c10d) {
      Tensors outputs{into};
      std::vector<Tensors> lists{from};
      c10d::ReduceScatterOptions options;
      options.reduceOp = c10d_op(op);
      return c10d.reduce_scatter(outputs, lists, options);
    };
    operation.finish = write_back_all({std::move(into)});
    return operation;
  }
  // Everybody gets its parts and adds them up: each byte crosses the network once, and the order of
  // the sum is that of the ranks.
  std::vector<Staged> parts;
  for (int rank = 0; rank < group.size(); ++rank) {
    parts.emplace_back(at::empty({output.numel()}, output.options()));
  }
  operation.start = exchange(bytes_of(parts), bytes_of(stage_inputs(inputs, {output})));
  operation.finish = [parts = std::move(parts), output = output.detach(), op] {
    if (output.numel() == 0) return;
    Tensors received;
    for (const Staged& part : parts) received.push_back(part.contiguous());
    reduce_here(received, op, output);
  };
  return operation;
}

Operation make_all_to_all(const GroupEngine& group, const Tensors& outputs, const Tensors& inputs) {
  check_list(group, inputs, "the inputs of all_to_all");
  check_list(group, outputs, "the outputs of all_to_all");
  check_tensor(inputs.front(), "the inputs of all_to_all", TensorUse::kRead);
  for (std::size_t at = 0; at < inputs.size(); ++at) {
    check_alike(inputs[at], inputs.front(), "the inputs of all_to_all", at, TensorUse::kRead);
    check_alike(outputs[at], inputs.front(), "the outputs of all_to_all", at, TensorUse::kWritten);
  }
  check_apart(outputs, "the outputs of all_to_all");
  Operation operation = begin(group, Function::kAllToAll, inputs.front());
  operation.signature.shape.clear();
  operation.signature.sent = element_counts(inputs);
  operation.signature.received = element_counts(outputs);
  std::vector<Staged> staged = stage_all(outputs);
  operation.start = exchange(bytes_of(staged), bytes_of(stage_inputs(inputs, outputs)));
  operation.finish = write_back_all(std::move(staged));
  return operation;
}

Operation make_barrier(const GroupEngine& group) {
  Operation operation;
  operation.signature.function = Function::kBarrier;
  operation.device = c10::Device(group.any_device());
  operation.start = [](C10dBackend& backend) { return backend.barrier(); };
  return operation;
}

}  // namespace sinew::internal
