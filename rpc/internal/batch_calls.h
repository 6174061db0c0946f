#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "sinew/rpc/base/future.h"
#include "sinew/rpc/internal/batch_runner.h"

// The typed half of a Batcher: inputs out of calls, outputs into their promises.
namespace sinew::internal {

template <class In, class Out>
struct TypedBatchCall final : BatchCall {
  explicit TypedBatchCall(In with_input) : input(std::move(with_input)) {}
  void fail(std::exception_ptr error) override { output.try_set_error(std::move(error)); }

  In input;
  const Promise<Out> output;
};

/// RpcError kInternal: the function of a batch has returned another number of outputs, or a Future
/// that is not valid().
std::exception_ptr wrong_number_of_outputs(std::size_t outputs, std::size_t calls);
std::exception_ptr invalid_future_of_outputs();

void fail_all(const BatchRunner::Calls& calls, const std::exception_ptr& error);

template <class In, class Out>
void complete_all(const BatchRunner::Calls& calls, std::vector<Out> outputs) {
  if (outputs.size() != calls.size()) {
    return fail_all(calls, wrong_number_of_outputs(outputs.size(), calls.size()));
  }
  const WakeBatch together;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    static_cast<TypedBatchCall<In, Out>&>(*calls[i]).output.try_set_value(std::move(outputs[i]));
  }
}

template <class In>
void complete_all(const BatchRunner::Calls& calls) {
  const WakeBatch together;
  for (const auto& call : calls) {
    static_cast<TypedBatchCall<In, void>&>(*call).output.try_set_value();
  }
}

template <class In, class Out>
std::vector<In> take_inputs(const BatchRunner::Calls& calls) {
  std::vector<In> inputs;
  inputs.reserve(calls.size());
  for (const auto& call : calls) {
    inputs.push_back(std::move(static_cast<TypedBatchCall<In, Out>&>(*call).input));
  }
  return inputs;
}

/// Completes `calls` with what the function of a batch returns in `produce`, or throws.
template <class In, class Out, class Produce>
void complete_with(const BatchRunner::Calls& calls, Produce produce) {
  try {
    if constexpr (std::is_void_v<Out>) {
      produce();
      complete_all<In>(calls);
    } else {
      complete_all<In, Out>(calls, produce());
    }
  } catch (...) {
    fail_all(calls, std::current_exception());
  }
}

template <class In, class Out, class F>
void run_batch(F& run, BatchRunner::Calls calls, BatchRunner::Slot slot) {
  using Returned = std::decay_t<std::invoke_result_t<F&, std::vector<In>>>;
  if constexpr (Flattened<Returned>::is_future) {
    Returned outputs;
    try {
      outputs = std::invoke(run, take_inputs<In, Out>(calls));
    } catch (...) {
      return fail_all(calls, std::current_exception());
    }
    if (!outputs.valid()) return fail_all(calls, invalid_future_of_outputs());
    // No name keeps the future, so that its value can be moved out.
    std::exchange(outputs, Returned())
        .then([calls = std::move(calls), slot = std::move(slot)](Returned done) {
          complete_with<In, Out>(calls, [&done] { return done.take(); });
        });
  } else {
    complete_with<In, Out>(calls, [&] { return std::invoke(run, take_inputs<In, Out>(calls)); });
  }
}

template <class In, class Out, class F>
BatchRunner::Run batch_function(F run) {
  constexpr bool takes_inputs = std::is_invocable_v<F&, std::vector<In>>;
  static_assert(takes_inputs,
                "Sinew: the function of a Batcher<In, Out> takes the inputs of a batch as "
                "std::vector<In>");
  if constexpr (takes_inputs) {
    using Returned = std::decay_t<std::invoke_result_t<F&, std::vector<In>>>;
    using Outputs = typename Flattened<Returned>::type;
    constexpr bool returns_outputs =
        std::is_same_v<Outputs,
                       std::conditional_t<std::is_void_v<Out>, void, std::vector<Stored<Out>>>>;
    static_assert(returns_outputs,
                  "Sinew: the function of a Batcher<In, Out> returns the outputs of a batch as "
                  "std::vector<Out> (nothing if Out is void), or a Future of that");
    if constexpr (returns_outputs) {
      return [run = std::move(run)](BatchRunner::Calls calls, BatchRunner::Slot slot) mutable {
        run_batch<In, Out>(run, std::move(calls), std::move(slot));
      };
    }
  }
  return nullptr;
}

}  // namespace sinew::internal
