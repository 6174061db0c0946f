#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/membership/directory.h"

namespace sinew::internal {

/// A file by which the workers of a job find each other: one line for each worker that can be
/// reached. Held under flock() while it is read or changed; a change replaces the file's contents
/// in one rename, so that a worker that dies half-way leaves the old contents. The lock is on a
/// second file beside it (`path` + ".lock"), since the first one is replaced; the last leaver
/// removes both.
///
/// Lines that make no sense are skipped and reported by `warnings`, never fatal: the folder may be
/// shared. Lines of other jobs are kept as they are.
///
/// Functions block for as long as another worker holds the lock, at most 10 s, and use the file
/// system: call them from an executor, never from an on_...() function. Thread-safe; has no state.
class FileRendezvous {
 public:
  struct Contents {
    /// Of the job, oldest first.
    std::vector<Member> entries;
    /// One for each line that makes no sense, with its number and what is wrong with it.
    std::vector<std::string> warnings;
  };

  /// `path` must be absolute.
  FileRendezvous(std::string path, std::string job)
      : path_(std::move(path)), job_(std::move(job)) {}

  /// A file that does not exist has no entries. kPermissionDenied, kUnavailable (lock),
  /// kInvalidArgument (path).
  absl::StatusOr<Contents> read() const;
  /// Adds `self` as the newest entry. Whoever had its name or its rank is dropped.
  absl::Status publish(const Member& self) const;
  /// Publishes `self` if the entries still are `expected`, in one step: of several workers that
  /// found the file empty (or full of dead workers, which are dropped) one wins. kAborted with the
  /// entries changed.
  absl::Status found(const Member& self, const std::vector<Member>& expected) const;
  /// Removes the entry of that incarnation, and the file when no line of any job is left. No error
  /// if it is not there.
  absl::Status remove(const WorkerInfo& worker) const;

  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  const std::string job_;
};

}  // namespace sinew::internal
