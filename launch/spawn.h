#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "sinew/launch/internal/spawn_message.h"
#include "sinew/launch/process_context.h"
#include "sinew/launch/spawn_error.h"
#include "sinew/launch/spawn_options.h"
#include "sinew/rpc/wire/codec.h"

/// Runs a function in several new processes of this program, as torch.multiprocessing.spawn does:
///
///     void train(int rank, const app::Settings& settings);
///
///     int main(int argc, char** argv) {
///       sinew::init_launch(argc, argv);
///       sinew::spawn(&train, 4, {}, app::Settings());
///     }
///
/// Each executes the program anew, so that it does not matter which threads this process has, or
/// what it has done with CUDA. Each finds its place in its environment (RANK, WORLD_SIZE,
/// LOCAL_RANK, MASTER_ADDR, MASTER_PORT and torchrun's others), where "env://" looks for it. None
/// outlives this process, however that ends. docs/launch.md has the rules.
namespace sinew {

/// To be called first in main(): in a process that was spawned it runs the function and exits, with
/// 0 or, if that throws, with 1; otherwise it returns. What stands before it in main() runs in
/// spawned processes too.
void init_launch(int argc, char** argv);

namespace internal {

/// Reads the arguments and calls the function.
using SpawnTrampoline = void (*)(std::uintptr_t function, int rank, SpawnMessageReader& message);

/// Values of a message before the arguments.
inline constexpr std::size_t kSpawnHeadValues = 1;

template <class... P>
struct SpawnCall {
  template <std::size_t... I>
  static std::tuple<std::decay_t<P>...> read(SpawnMessageReader& message,
                                             std::index_sequence<I...>) {
    // Braces, so that arguments are read in order.
    return {
        Codec<std::decay_t<P>>::decode(message.value(kSpawnHeadValues + I, "argument", I + 1))...};
  }
  static void run(std::uintptr_t function, int rank, SpawnMessageReader& message) {
    auto values = read(message, std::index_sequence_for<P...>());
    std::apply(
        [&](std::decay_t<P>&... value) {
          reinterpret_cast<void (*)(int, P...)>(function)(rank, std::forward<P>(value)...);
        },
        values);
  }
};

SpawnMessageWriter begin_spawn(std::uintptr_t function, SpawnTrampoline trampoline);
ProcessContext start_spawn(const SpawnMessageWriter& message, int nprocs,
                           const SpawnOptions& options);

template <class P, class A>
void write_spawn_argument(SpawnMessageWriter& message, A&& argument) {
  using Value = std::decay_t<P>;
  ValueWriter writer = message.next();
  if constexpr (std::is_same_v<std::decay_t<A>, Value>) {
    Codec<Value>::encode(writer, argument);
  } else {
    Codec<Value>::encode(writer, static_cast<Value>(std::forward<A>(argument)));
  }
}

template <class P>
constexpr bool is_spawn_parameter() {
  constexpr bool fits = is_wire_type_v<std::decay_t<P>>;
  constexpr bool is_changed =
      std::is_lvalue_reference_v<P> && !std::is_const_v<std::remove_reference_t<P>>;
  static_assert(fits,
                "Sinew: a parameter of this function has a type that cannot travel to another "
                "process: if it is a struct of yours, list its fields with SINEW_STRUCT before its "
                "first use; otherwise specialise sinew::Codec for it");
  static_assert(!is_changed,
                "Sinew: a function that is spawned cannot take a non-const reference: memory is "
                "not shared between processes");
  return fits && !is_changed;
}

}  // namespace internal

/// Starts `nprocs` processes (1 to 4096) that call fn(rank, arguments...), with ranks from 0, and
/// returns once all have been started. What the function takes behind the rank are values as remote
/// methods take them (docs/values.md), tensors in host memory; changes do not come back.
///
/// Throws RpcError: kFailedPrecondition unless init_launch() was called, in processes of the kind
/// kDaemon, and in those that ignore SIGCHLD; kInvalidArgument for a bad number, option or value;
/// kResourceExhausted. What becomes of the processes, also that one cannot be started, is told by
/// the result. Thread-safe.
template <class... P, class... A>
[[nodiscard]] ProcessContext start_processes(void (*fn)(int, P...), int nprocs,
                                             const SpawnOptions& options, A&&... arguments) {
  static_assert(sizeof...(P) == sizeof...(A),
                "Sinew: wrong number of arguments for this function (the rank is not one of them)");
  static_assert((std::is_convertible_v<A, std::decay_t<P>> && ...),
                "Sinew: an argument cannot be converted to the type of the function's parameter");
  if constexpr ((internal::is_spawn_parameter<P>() && ...)) {
    internal::SpawnMessageWriter message = internal::begin_spawn(
        reinterpret_cast<std::uintptr_t>(fn), &internal::SpawnCall<P...>::run);
    (internal::write_spawn_argument<P>(message, std::forward<A>(arguments)), ...);
    return internal::start_spawn(message, nprocs, options);
  }
}
template <class... P>
[[nodiscard]] ProcessContext start_processes(void (*fn)(int, P...), int nprocs) {
  return start_processes(fn, nprocs, SpawnOptions());
}

/// The same, and waits for the end. Throws a SpawnError when one has failed: it threw, exited with
/// another code than 0, or was ended by a signal. The first failure ends the others.
template <class... P, class... A>
void spawn(void (*fn)(int, P...), int nprocs, const SpawnOptions& options, A&&... arguments) {
  static_cast<void>(start_processes(fn, nprocs, options, std::forward<A>(arguments)...).join());
}
template <class... P>
void spawn(void (*fn)(int, P...), int nprocs) {
  spawn(fn, nprocs, SpawnOptions());
}

}  // namespace sinew
