#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"

namespace sinew::internal {

/// What fork() and exit() make of the threads that work for workers.
///
/// *fork()*: the child has none of them, and may find any of their locks held permanently. What
/// belongs to the parent says so there at once, and is never destroyed.
///
/// *exit()* destroys what is static while other threads run, and these crash when they use it. So
/// from the beginning of exit() the threads of executors, timers and transports stop before their
/// next piece of work, and other threads when they call or wait. They stop until the process is
/// gone, or until the exiting thread itself needs them (e.g. the destructor of something static
/// shuts a worker down), or for two seconds, since a destructor may wait for them.
///
/// Then what belongs to shared libraries is destroyed (LibTorch's operators, which take long). If
/// there are still threads of workers, the process ends before that, with the status that exit()
/// was called with. If there are none, only the exiting thread can start any: others wait for the
/// end.
///
/// Functions are thread-safe.
class ProcessLife {
 public:
  /// Sees to that from here on, for what has become static until now. Called when a worker starts.
  static void watch();

  /// kFailedPrecondition in a process that was forked from one with workers, or after
  /// let_no_child_start_workers(): nothing of gRPC's works there.
  static absl::Status may_start_worker();
  /// For good: gRPC keeps threads and descriptors when all that uses it is gone.
  static void let_no_child_start_workers();

  /// Which of a line of forked processes this is; grows from parent to child.
  static std::uint32_t generation() {
    return state_.load(std::memory_order_relaxed) / kGenerationStep;
  }

  /// To be called before each piece of work. Returns when the calling thread may go on: nearly
  /// always at once, for the price of a load.
  static void stand_still_at_exit() {
    if (is_standstill()) stand_still();
  }
  static bool is_standstill() {
    return (state_.load(std::memory_order_relaxed) & kStandstill) != 0;
  }
  /// exit() has begun.
  static bool is_ending() { return (state_.load(std::memory_order_relaxed) & kEnding) != 0; }

  /// Lets all go on if the calling thread is the exiting one, which needs them.
  static void move_on_if_exiting();

  /// Something with threads. Registered for as long as these exist, so its functions are called
  /// until remove() returns, and must not call add() and remove() then. add() waits when exit() has
  /// begun: two seconds at most (a destructor may wait for the calling thread), and for good once
  /// what belongs to libraries is being destroyed.
  class Busy {
   public:
    virtual ~Busy() = default;
    /// The process ends: makes threads that wait for work outside of Sinew look up.
    virtual void look_up() {}
    /// None of its threads works but the calling one.
    virtual bool stands_still() = 0;
  };
  static void add(Busy* busy);
  static void remove(Busy* busy);

 private:
  friend struct ProcessHooks;
  static constexpr std::uint32_t kEnding = 1;
  static constexpr std::uint32_t kStandstill = 2;
  static constexpr std::uint32_t kGenerationStep = 4;
  static void stand_still();

  /// The generation, times kGenerationStep, and the flags.
  static std::atomic<std::uint32_t> state_;
};

/// For members of what does not survive fork().
class ProcessBound {
 public:
  ProcessBound() : generation_(ProcessLife::generation()) {}
  /// True in a process that was forked since this was made.
  bool is_orphan() const { return generation_ != ProcessLife::generation(); }
  /// kFailedPrecondition if it is: the text says what the child is to do.
  absl::Status check() const { return is_orphan() ? orphaned() : absl::OkStatus(); }
  /// Throws that as an RpcError.
  void require() const {
    if (is_orphan()) fail();
  }
  [[noreturn]] static void fail();

 private:
  static absl::Status orphaned();

  const std::uint32_t generation_;
};

}  // namespace sinew::internal
