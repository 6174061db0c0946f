#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "sinew/optim/internal/parameter_gate.h"
#include "sinew/optim/internal/step_numbers.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/calls/extension.h"

namespace sinew::internal {

/// The optimizer layer of one worker: serves LocalOptimizer, and has what those of the worker
/// share. Thread-safe.
class OptimManager final : public Extension, public std::enable_shared_from_this<OptimManager> {
 public:
  static std::shared_ptr<OptimManager> make(WorkerServices& services);
  /// That of a worker; throws kFailedPrecondition when it was started without this layer.
  static std::shared_ptr<OptimManager> of(const WorkerServices& services);

  const std::shared_ptr<ParameterGate>& gate() const { return gate_; }
  /// Counts a step.
  void add_step() { ++applied_; }
  /// A number for a step, greater than all before, from 1.
  std::uint64_t next_order() { return ++order_; }
  /// Numbers are greater than this one from now on.
  void raise_order(std::uint64_t order);
  void add_optimizers(int count) { optimizers_ += count; }
  void add_step_answers(std::int64_t count) { step_answers_ += count; }
  StepNumbersTable& step_numbers() { return step_numbers_; }

  void set_checkpoint_root(std::string root);
  /// Throws kFailedPrecondition when there is none.
  std::string checkpoint_root() const;
  /// A number for the next checkpoint in a folder, at least this one: never the same twice, as long
  /// as the worker lives and few folders are used.
  std::uint64_t next_checkpoint(const std::string& folder, std::uint64_t at_least);

  // --- Extension
  std::string_view layer() const override { return "optim"; }
  void on_note(const WorkerInfo&, std::string) override {}
  void on_worker_fenced(const WorkerInfo&) override {}
  void on_worker_lost(const WorkerInfo&) override {}
  /// optim.optimizers: those that live here; optim.steps: steps applied so far; optim.answers: of
  /// how many it is remembered what became of them.
  void add_counters(Counters& counters) const override;
  std::vector<Method> methods() const override;
  Future<std::vector<std::string>> drain_async(DrainScope, Clock::TimePoint) override;
  void stop() override {}

 private:
  explicit OptimManager(WorkerServices& services);

  const std::string worker_;
  const std::shared_ptr<ParameterGate> gate_;
  std::atomic<std::uint64_t> applied_{0};
  std::atomic<std::uint64_t> order_{0};
  std::atomic<int> optimizers_{0};
  std::atomic<std::int64_t> step_answers_{0};
  StepNumbersTable step_numbers_;
  mutable Mutex mutex_;
  std::string root_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, std::uint64_t> numbered_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
