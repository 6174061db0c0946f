#include "sinew/rpc/membership/file_rendezvous.h"

#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/internal/file_descriptor.h"
#include "sinew/rpc/membership/guarded_folder.h"
#include "sinew/rpc/membership/rendezvous_lines.h"

namespace sinew::internal {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::size_t kMostBytes = std::size_t{16} << 20;
// flock() itself knows no deadline; the lock is held for the time of a small write.
constexpr std::chrono::seconds kLockPatience{10};

class PatientWait final : public LockWait {
 public:
  Then pause(SteadyClock::time_point since) override {
    if (SteadyClock::now() - since >= kLockPatience) return Then::kGiveUp;
    std::this_thread::sleep_for(kLockPoll);
    return Then::kTryAgain;
  }
};

/// Where the file of one operation is.
struct Place {
  GuardedFolder folder;
  std::string name;

  std::string path() const { return folder.path_of(name); }
  std::string lock_name() const { return name + ".lock"; }
};

absl::Status file_error(absl::string_view doing, const Place& place, int error) {
  return absl::UnavailableError(absl::StrCat("cannot ", doing, " the rendezvous file '",
                                             printable(place.path()), "': ", std::strerror(error)));
}

/// Says what the file is for.
absl::Status of_rendezvous(const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("no rendezvous by file: ", status.message()));
}

absl::StatusOr<Place> find_place(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (path.empty() || path.front() != '/' || slash + 1 == path.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the rendezvous file '", printable(path),
                     "' is no absolute path; workers may run in different folders"));
  }
  absl::StatusOr<GuardedFolder> folder = GuardedFolder::open(path.substr(0, slash + 1));
  if (!folder.ok()) return of_rendezvous(folder.status());
  return Place{*std::move(folder), path.substr(slash + 1)};
}

/// For what changes the file: there is to be a folder.
absl::StatusOr<Place> require_place(const std::string& path) {
  absl::StatusOr<Place> place = find_place(path);
  if (!absl::IsNotFound(place.status())) return place;
  return absl::InvalidArgumentError(absl::StrCat(
      place.status().message(), "; name a file in a folder that exists for the rendezvous, not '",
      printable(path), "'"));
}

absl::Status not_locked(const Place& place, LockWait::Then why) {
  const std::string path = printable(place.path());
  if (why == LockWait::Then::kCancel) {
    return absl::CancelledError(
        absl::StrCat("the wait for the lock of the rendezvous file '", path, "' was broken off"));
  }
  return absl::UnavailableError(absl::StrCat(
      "the lock of the rendezvous file '", path,
      "' is held by another process for too long; find out who holds it: ", path, ".lock"));
}

// An invalid descriptor if it is to be tried again.
absl::StatusOr<FileDescriptor> try_lock(const Place& place) {
  absl::StatusOr<FileDescriptor> lock = place.folder.open_or_create(place.lock_name());
  if (!lock.ok()) return of_rendezvous(lock.status());
  if (::flock(lock->number(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EINTR && errno != EWOULDBLOCK) return file_error("lock", place, errno);
    return FileDescriptor();
  }
  // Its last user may have removed it between our open() and our flock(): we would hold a lock that
  // nobody else sees.
  if (!place.folder.is_named(place.lock_name(), *lock)) return FileDescriptor();
  return lock;
}

// Holds the lock until it is destroyed.
absl::StatusOr<FileDescriptor> lock_file(const Place& place, LockWait& wait) {
  const SteadyClock::time_point since = SteadyClock::now();
  while (true) {
    absl::StatusOr<FileDescriptor> lock = try_lock(place);
    if (!lock.ok() || lock->valid()) return lock;
    const LockWait::Then then = wait.pause(since);
    if (then != LockWait::Then::kTryAgain) return not_locked(place, then);
  }
}

absl::StatusOr<std::string> read_all(const Place& place) {
  const absl::StatusOr<FileDescriptor> file = place.folder.open_to_read(place.name);
  if (!file.ok()) return of_rendezvous(file.status());
  std::string text;
  if (!file->valid()) return text;
  char buffer[4096];
  while (true) {
    const ssize_t count = ::read(file->number(), buffer, sizeof(buffer));
    if (count == 0) return text;
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return file_error("read", place, errno);
    text.append(buffer, static_cast<std::size_t>(count));
    if (text.size() > kMostBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("the rendezvous file '", printable(place.path()), "' has more than ",
                       kMostBytes, " bytes, so it is none of ours; name another one"));
    }
  }
}

absl::Status write_text(const Place& place, int fd, absl::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return file_error("write", place, errno);
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return ::fsync(fd) == 0 ? absl::OkStatus() : file_error("write", place, errno);
}

// The caller holds the lock, so the name of the temporary file is free but for what a dead worker
// left.
absl::Status replace_all(const Place& place, absl::string_view text) {
  const GuardedFolder& folder = place.folder;
  if (text.empty()) {
    absl::Status removed = folder.remove(place.name);
    if (removed.ok()) removed = folder.remove(place.lock_name());
    return of_rendezvous(removed);
  }
  const std::string fresh_name = place.name + ".new";
  const absl::StatusOr<FileDescriptor> fresh = folder.create_anew(fresh_name);
  if (!fresh.ok()) return of_rendezvous(fresh.status());
  absl::Status written = write_text(place, fresh->number(), text);
  if (written.ok()) written = of_rendezvous(folder.rename(fresh_name, place.name));
  if (!written.ok()) folder.remove(fresh_name).IgnoreError();
  return written;
}

/// Lets `change` work on the job's entries while it holds the lock, and writes what it leaves,
/// unless it fails.
absl::Status change_file(const std::string& path, const std::string& job, LockWait& wait,
                         absl::FunctionRef<absl::Status(std::vector<RendezvousEntry>&)> change) {
  const absl::StatusOr<Place> place = require_place(path);
  if (!place.ok()) return place.status();
  const absl::StatusOr<FileDescriptor> lock = lock_file(*place, wait);
  if (!lock.ok()) return lock.status();
  const absl::StatusOr<std::string> text = read_all(*place);
  if (!text.ok()) return text.status();
  RendezvousLines lines = parse_rendezvous_lines(path, job, *text);
  if (absl::Status status = change(lines.entries); !status.ok()) return status;
  return replace_all(*place, format_rendezvous_lines(job, lines));
}

FileRendezvous::Contents contents_of(std::vector<RendezvousEntry> entries) {
  FileRendezvous::Contents contents;
  for (RendezvousEntry& entry : entries) {
    contents.instance = std::max(contents.instance, entry.instance);
    contents.entries.push_back(std::move(entry.member));
  }
  return contents;
}

bool are_same(const FileRendezvous::Contents& a, const FileRendezvous::Contents& b) {
  return a.instance == b.instance &&
         std::equal(
             a.entries.begin(), a.entries.end(), b.entries.begin(), b.entries.end(),
             [](const Member& left, const Member& right) { return left.worker == right.worker; });
}

}  // namespace

LockWait& LockWait::patient() {
  // Never destroyed: threads look at it until the process is gone.
  static auto& patient = *new PatientWait();
  return patient;
}

absl::StatusOr<FileRendezvous::Contents> FileRendezvous::read() const {
  const absl::StatusOr<Place> place = find_place(path_);
  // Somebody who founds may make it yet.
  if (absl::IsNotFound(place.status())) return Contents();
  if (!place.ok()) return place.status();
  // No lock: a rename shows either the old or the new contents, and a reader leaves no lock file
  // behind.
  const absl::StatusOr<std::string> text = read_all(*place);
  if (!text.ok()) return text.status();
  RendezvousLines lines = parse_rendezvous_lines(path_, job_, *text);
  Contents contents = contents_of(std::move(lines.entries));
  contents.warnings = std::move(lines.warnings);
  return contents;
}

absl::Status FileRendezvous::publish(const Member& self, const JobInstance& instance) const {
  const auto add = [&](std::vector<RendezvousEntry>& entries) {
    for (const RendezvousEntry& each : entries) {
      if (each.instance == instance) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "the rendezvous file '", printable(path_), "' is of instance ", to_string(each.instance),
          " of the job, and worker '", self.worker.name, "' of instance ", to_string(instance),
          "; only who founds a job replaces it"));
    }
    const auto is_old = [&](const RendezvousEntry& entry) {
      const WorkerInfo& worker = entry.member.worker;
      return worker.name == self.worker.name || worker.rank == self.worker.rank;
    };
    entries.erase(std::remove_if(entries.begin(), entries.end(), is_old), entries.end());
    entries.push_back({self, instance});
    return absl::OkStatus();
  };
  return change_file(path_, job_, wait_, add);
}

absl::Status FileRendezvous::found(const Member& self, const Contents& expected,
                                   const JobInstance& instance) const {
  const auto replace = [&](std::vector<RendezvousEntry>& entries) {
    if (!are_same(contents_of(entries), expected)) {
      return absl::AbortedError(
          absl::StrCat("another worker wrote the rendezvous file '", printable(path_), "' first"));
    }
    entries = {{self, instance}};
    return absl::OkStatus();
  };
  return change_file(path_, job_, wait_, replace);
}

absl::Status FileRendezvous::remove(const WorkerInfo& worker) const {
  const auto drop = [&](std::vector<RendezvousEntry>& entries) {
    const auto is_it = [&](const RendezvousEntry& entry) {
      const WorkerInfo& other = entry.member.worker;
      return other.name == worker.name && other.incarnation == worker.incarnation;
    };
    entries.erase(std::remove_if(entries.begin(), entries.end(), is_it), entries.end());
    return absl::OkStatus();
  };
  return change_file(path_, job_, wait_, drop);
}

}  // namespace sinew::internal
