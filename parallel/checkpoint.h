#pragma once

#include <cstddef>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "sinew/parallel/checkpoint_options.h"
#include "sinew/parallel/internal/checkpointed.h"

namespace sinew::parallel {

/// Does a part of a forward pass without keeping what its backward pass needs, and computes it
/// again there: the part is computed twice, and only its inputs and outputs are kept. Chen et al.,
/// "Training Deep Nets with Sublinear Memory Cost" (2016).
///
///     using namespace sinew::parallel;
///     x = checkpoint(block1, x);  // a module
///     x = checkpoint([](const at::Tensor& a) { return at::gelu(a); }, x);
///     const at::Tensor weight = layer->weight;
///     CheckpointOptions uses;
///     uses.parameters = {weight};  // what a function captures
///     x = checkpoint(uses, [weight](const at::Tensor& a) { return a.matmul(weight); }, x);
///
/// `part`: a std::shared_ptr of a module, a module holder of LibTorch (torch::nn::Linear,
/// Sequential, ...), or a function. `inputs` are tensors; a function captures all else. It returns
/// a tensor, a vector, or a tuple or pair of tensors, and changes nothing but buffers: it is called
/// twice. What it captures lives as long as the graph.
///
/// Gradients are those of a plain call, to the bit where the part alone decides the order of a sum:
/// a tensor that it uses several times, and that others use too, may get a sum of another order.
/// Draws from LibTorch's default generators are repeated, settings of autocast too. Buffers, such
/// as running means, have in the second run the values of the first one, and are left as they were
/// before it, so they count a batch once. Parameters and buffers of a module need not be named.
///
/// It works in autograd contexts and under a DistributedDataParallel, whose module calls it in
/// forward(). There all parameters of the part count as used. It may be nested. Without gradients
/// (NoGradGuard, or nothing that requires them) it is a plain call.
///
/// The second run is on the thread that runs the backward pass there: on the CPU, the one that
/// calls backward(). No other thread draws from the default generators or uses the module
/// meanwhile.
///
/// Throws what the part throws, in forward and in backward, and RpcError: kInvalidArgument when it
/// changes an input or a parameter in place; and from backward(), where gradients would be wrong
/// or missing, kFailedPrecondition:
/// - it uses a tensor that requires gradients and was not named, or the result of a remote call
///   that it makes itself;
/// - it computes other outputs (their number, sizes or types), or draws other random numbers, in
///   the second run;
/// - a parameter has hooks (Tensor::register_hook()), with LibTorch from 2.0 on, where they would
///   run twice.
/// and kUnimplemented for gradients of gradients. An input or parameter that was changed in place
/// since is LibTorch's own error.
template <class Part, class... Inputs>
auto checkpoint(CheckpointOptions options, const Part& part, const Inputs&... inputs) {
  static_assert((std::is_same_v<std::decay_t<Inputs>, at::Tensor> && ...),
                "the inputs of a checkpointed part are tensors: let a function capture all else");
  const auto call = internal::callable_of(part, options);
  using Result = std::decay_t<decltype(call(inputs...))>;
  const auto run = [call](const std::vector<at::Tensor>& given) {
    return internal::ResultTensors<Result>::to_list(
        internal::call_with(call, given, std::make_index_sequence<sizeof...(Inputs)>()));
  };
  return internal::ResultTensors<Result>::from_list(
      internal::run_checkpointed(run, {inputs...}, std::move(options)));
}

template <class Part, class... Inputs,
          class = std::enable_if_t<!std::is_same_v<std::decay_t<Part>, CheckpointOptions>>>
auto checkpoint(const Part& part, const Inputs&... inputs) {
  return checkpoint(CheckpointOptions(), part, inputs...);
}

}  // namespace sinew::parallel
