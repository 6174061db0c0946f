#include "sinew/rpc/planes/same_host/copy_team.h"

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "sinew/rpc/base/host_limits.h"
#include "sinew/rpc/base/internal/mutex.h"

namespace sinew::internal {
namespace {

// For less, the copy is done before another core has woken up.
constexpr std::size_t kMinSharedBytes = std::size_t{8} << 20;
// So many that no thread waits long for the last one.
constexpr std::size_t kSharedPieces = 16;
constexpr std::size_t kMaxPieceBytes = std::size_t{4} << 20;
// A few cores use up what the memory can do.
constexpr std::size_t kMaxHelpers = 3;

Executor::Options executor_options(std::size_t helpers) {
  Executor::Options options;
  options.num_threads = std::max<std::size_t>(1, helpers);
  options.name = "sinew-copy";
  return options;
}

absl::Status copy_alone(std::size_t size_bytes, CopyTeam::CopyPiece copy_piece) {
  for (std::size_t at = 0; at < size_bytes; at += kMaxPieceBytes) {
    absl::Status one = copy_piece(at, std::min(kMaxPieceBytes, size_bytes - at));
    if (!one.ok()) return one;
  }
  return absl::OkStatus();
}

}  // namespace

/// Outlives the copy: a helper may look at it later.
struct CopyTeam::Job {
  Job(std::size_t size, std::size_t piece, CopyPiece copy_one)
      : size_bytes(size), piece_bytes(piece), copy_piece(copy_one) {}

  /// Copies pieces until none are left or one has failed.
  void work() {
    MutexLock lock(mutex);
    while (next < size_bytes) {
      const std::size_t offset = next;
      const std::size_t size = std::min(piece_bytes, size_bytes - offset);
      next += size;
      ++running;
      lock.unlock();
      absl::Status one = copy_piece(offset, size);
      lock.lock();
      if (--running == 0) none_runs.notify_all();
      if (one.ok()) continue;
      next = size_bytes;
      status.Update(std::move(one));
    }
  }

  absl::Status wait() {
    MutexLock lock(mutex);
    while (running > 0) none_runs.wait(mutex);
    return std::move(status);
  }

  const std::size_t size_bytes;
  const std::size_t piece_bytes;
  /// Not to be called once all pieces are taken: the caller may be gone.
  const CopyPiece copy_piece;
  Mutex mutex;
  CondVar none_runs;
  std::size_t next ABSL_GUARDED_BY(mutex) = 0;
  std::size_t running ABSL_GUARDED_BY(mutex) = 0;
  absl::Status status ABSL_GUARDED_BY(mutex);
};

CopyTeam::CopyTeam(std::size_t helpers) : helpers_(helpers), executor_(executor_options(helpers)) {}

std::shared_ptr<CopyTeam> CopyTeam::for_this_machine() {
  const auto cores = static_cast<std::size_t>(read_host_limits().cores());
  return std::make_shared<CopyTeam>(std::min(cores - 1, kMaxHelpers));
}

absl::Status CopyTeam::copy(std::size_t size_bytes, CopyPiece copy_piece) {
  const bool shared = size_bytes >= kMinSharedBytes && helpers_ > 0;
  // Each piece costs a system call: those of one thread are as large as can be.
  const std::size_t piece_bytes =
      shared ? std::min(size_bytes / kSharedPieces, kMaxPieceBytes) : kMaxPieceBytes;
  std::shared_ptr<Job> job;
  try {
    job = std::make_shared<Job>(size_bytes, piece_bytes, copy_piece);
    // Where the system starts no thread helpers would only be asked in vain.
    if (shared && !executor_.is_stalled()) {
      std::vector<Task> tasks;
      for (std::size_t i = 0; i < helpers_; ++i) tasks.emplace_back([job] { job->work(); });
      executor_.post_all(std::move(tasks));
    }
  } catch (const std::bad_alloc&) {
    // The caller copies alone: there is memory for what it copies, if for nothing else.
    if (job == nullptr) return copy_alone(size_bytes, copy_piece);
  }
  job->work();
  return job->wait();
}

}  // namespace sinew::internal
