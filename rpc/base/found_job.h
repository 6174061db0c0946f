#pragma once

namespace sinew {

/// Whether a worker begins the job when it finds none, and may hold its list of members from the
/// first on; see WorkerOptions::found_job.
enum class FoundJob {
  /// If its rank is 0, and was given.
  kRankZero,
  kAlways,
  /// It waits for others to.
  kNever,
};

}  // namespace sinew
