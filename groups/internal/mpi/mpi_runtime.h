#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sinew/groups/internal/mpi/mpi_patience.h"
#include "sinew/groups/internal/mpi/mpi_types.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/process_life.h"

namespace sinew::internal {

struct MpiOperation;
struct MpiOutcome;

/// MPI in this process, and the thread that begins it, asks for the ends of operations that no
/// thread waits for, and ends it. Thread-safe; never destroyed.
///
/// MPI begins once, with MPI_THREAD_MULTIPLE, unless the program has begun it, and ends while the
/// process does: when exit() is called with 0, it waits there until all other ranks are as far.
/// mpirun ends the whole job when a rank goes without that, so a rank does go without when exit()
/// is called with anything else, or when an operation does not end: others may wait for it for
/// good.
class MpiRuntime {
 public:
  using Clock = std::chrono::steady_clock;

  /// Begins MPI, the first time. kDeadlineExceeded if that is not done by then.
  static absl::StatusOr<MpiRuntime*> start(Clock::time_point deadline);

  /// Whether MPI was begun in this process. Then mpirun need not have started the process.
  static bool has_begun();

  /// Of this process in MPI_COMM_WORLD.
  int rank() const { return world_.rank; }
  int size() const { return world_.size; }
  int most_tag() const { return world_.most_tag; }
  const MpiTypes& types() const { return world_.types; }

  /// Not OK once MPI is about to end, and in a process that was forked from one with MPI.
  absl::Status check() const;

  /// MPI does not end while there is one. Code that calls MPI has one, and calls check() after
  /// that.
  class Use {
   public:
    explicit Use(MpiRuntime& runtime) : runtime_(&runtime) { runtime_->uses_.fetch_add(1); }
    Use(Use&& other) noexcept : runtime_(std::exchange(other.runtime_, nullptr)) {}
    Use& operator=(Use&& other) noexcept {
      std::swap(runtime_, other.runtime_);
      return *this;
    }
    ~Use() {
      if (runtime_ != nullptr) runtime_->uses_.fetch_sub(1);
    }

   private:
    MpiRuntime* runtime_;
  };

  /// Sees to the end of an operation; `done` runs on the runtime's thread then, and must not block.
  /// It may be null.
  using Done = absl::AnyInvocable<void(MpiOutcome)>;
  void adopt(MpiOperation operation, Done done);

  /// Keeps an operation that was given up for good: MPI may still use its memory.
  void keep(MpiOperation operation);

 private:
  enum class Stage { kBeginning, kWorking, kEnding, kEnded };
  struct World {
    int rank = 0;
    int size = 1;
    int most_tag = 0;
    MpiTypes types;
  };
  struct Adopted;

  MpiRuntime();
  void run();
  absl::StatusOr<World> begin();
  absl::Status begin_as_first();
  absl::Status watch_end();
  void work();
  bool take_adopted(std::vector<Adopted>& running);
  bool is_to_end_locked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void pause(const MpiPatience& patience);
  void end();
  static void on_exit(int status, void* runtime);
  void on_process_exit(int status);
  void on_others_end();

  void end_by(Clock::time_point when) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ProcessBound process_;
  // Written by the thread before kWorking, constant from then on.
  World world_;
  bool is_first_ = false;
  std::atomic<bool> is_ending_{false};
  std::atomic<std::int64_t> uses_{0};

  Mutex mutex_;
  CondVar changed_;
  Stage stage_ ABSL_GUARDED_BY(mutex_) = Stage::kBeginning;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  std::optional<Clock::time_point> ends_by_ ABSL_GUARDED_BY(mutex_);
  std::vector<Adopted> arrived_ ABSL_GUARDED_BY(mutex_);
  std::vector<MpiOperation> kept_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
