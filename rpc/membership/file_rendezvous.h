#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/membership/directory.h"
#include "sinew/rpc/membership/job_instance.h"

namespace sinew::internal {

/// How often the lock of a rendezvous file that another process has is tried.
inline constexpr std::chrono::milliseconds kLockPoll{5};

/// How those who want the lock of a rendezvous file spend the time until they have it.
class LockWait {
 public:
  enum class Then { kTryAgain, kGiveUp, kCancel };

  virtual ~LockWait() = default;
  /// Another process has the lock. Sleeps for a moment, and says whether to try again. `since`:
  /// when the lock was wanted first.
  virtual Then pause(std::chrono::steady_clock::time_point since) = 0;

  /// Tries for 10 s, in short sleeps.
  static LockWait& patient();
};

/// A file by which the workers of a job find each other: one line for each worker that can be
/// reached. Held under flock() while it is read or changed; a change replaces the file's contents
/// in one rename, so that a worker that dies half-way leaves the old contents. The lock is on a
/// second file beside it (`path` + ".lock"), since the first one is replaced; the last leaver
/// removes both.
///
/// The lines of a job are of one instance of it: publish() adds to that one only, and found()
/// replaces it.
///
/// Lines that make no sense are skipped and reported by `warnings`, never fatal: the folder may be
/// shared. Lines of other jobs are kept as they are. What is at the path, or at that of the lock,
/// is read only if it is a file of this user or of root that nobody else may write (GuardedFolder),
/// and is not a link.
///
/// Functions block for as long as another worker holds the lock, as `wait` will have it, and use
/// the file system: call them from no thread that others wait for (FileRendezvousThread has one of
/// its own). Thread-safe as far as `wait` is; has no state.
///
/// Errors of all functions, which name the path: kInvalidArgument (it is not absolute, there is no
/// such folder, or something else than a file has the name), kPermissionDenied (also: others may
/// write there), kUnavailable (others hold the lock for too long, or the file system fails),
/// kCancelled (`wait` says so).
class FileRendezvous {
 public:
  struct Contents {
    /// Of the job, oldest first.
    std::vector<Member> entries;
    /// The highest of the entries.
    JobInstance instance;
    /// One for each line that makes no sense, with its number and what is wrong with it.
    std::vector<std::string> warnings;
  };

  /// `path` must be absolute. `wait` must outlive this.
  FileRendezvous(std::string path, std::string job, LockWait& wait = LockWait::patient())
      : path_(std::move(path)), job_(std::move(job)), wait_(wait) {}

  /// A file that does not exist has no entries. Does not wait for the lock.
  absl::StatusOr<Contents> read() const;
  /// Adds `self` as the newest entry. Whoever had its name or its rank is dropped.
  /// kFailedPrecondition if there are entries of another instance than `instance`: the text has
  /// both.
  absl::Status publish(const Member& self, const JobInstance& instance) const;
  /// Publishes `self` as the only entry, and with it `instance`, if the workers and the instance
  /// still are those of `expected`, in one step: of several workers that found the file empty (or
  /// full of dead workers, which are dropped) one wins. kAborted with the entries changed.
  absl::Status found(const Member& self, const Contents& expected,
                     const JobInstance& instance) const;
  /// Removes the entry of that incarnation, and the file when no line of any job is left. No error
  /// if it is not there.
  absl::Status remove(const WorkerInfo& worker) const;

  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  const std::string job_;
  LockWait& wait_;
};

}  // namespace sinew::internal
