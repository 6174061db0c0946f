#include "sinew/rpc/membership/file_rendezvous.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <thread>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/internal/file_descriptor.h"
#include "sinew/rpc/base/worker_name.h"
#include "sinew/rpc/membership/rendezvous.h"

namespace sinew::internal {
namespace {

constexpr std::size_t kMostBytes = std::size_t{16} << 20;
// flock() itself knows no deadline; the lock is held for the time of a small write.
constexpr std::chrono::seconds kLockTimeout{10};
constexpr std::chrono::milliseconds kLockPoll{5};
constexpr absl::string_view kMagic = "sinew1";

absl::Status file_error(absl::string_view doing, const std::string& path, int error) {
  const std::string text = absl::StrCat("cannot ", doing, " the rendezvous file '", printable(path),
                                        "': ", std::strerror(error));
  if (error == EACCES || error == EPERM || error == EROFS) {
    return absl::PermissionDeniedError(text);
  }
  if (error == ENOENT || error == ENOTDIR || error == EISDIR || error == ELOOP) {
    return absl::InvalidArgumentError(absl::StrCat(text, "; name a file in a folder that exists"));
  }
  return absl::UnavailableError(text);
}

// Holds the lock until it is destroyed. The loop is for a lock file that its last user removed
// between our open() and our flock(): we would hold a lock that nobody else sees.
absl::StatusOr<FileDescriptor> lock_file(const std::string& path) {
  const std::string lock_path = absl::StrCat(path, ".lock");
  const auto deadline = std::chrono::steady_clock::now() + kLockTimeout;
  while (true) {
    FileDescriptor lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!lock.valid()) return file_error("lock", path, errno);
    while (::flock(lock.number(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EINTR && errno != EWOULDBLOCK) return file_error("lock", path, errno);
      if (std::chrono::steady_clock::now() >= deadline) {
        return absl::UnavailableError(
            absl::StrCat("the lock of the rendezvous file '", printable(path),
                         "' is held by another process for too long; find out who holds it: ",
                         printable(lock_path)));
      }
      std::this_thread::sleep_for(kLockPoll);
    }
    struct stat held = {};
    struct stat named = {};
    if (::fstat(lock.number(), &held) != 0) return file_error("lock", path, errno);
    const bool still_there = ::stat(lock_path.c_str(), &named) == 0;
    if (still_there && held.st_ino == named.st_ino && held.st_dev == named.st_dev) return lock;
  }
}

absl::StatusOr<std::string> read_all(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) {
    if (errno == ENOENT) return std::string();
    return file_error("read", path, errno);
  }
  struct stat about = {};
  if (::fstat(file.number(), &about) != 0) return file_error("read", path, errno);
  if (!S_ISREG(about.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat("the rendezvous file '", printable(path),
                                                   "' is no regular file; name another one"));
  }
  std::string text;
  char buffer[4096];
  while (true) {
    const ssize_t count = ::read(file.number(), buffer, sizeof(buffer));
    if (count == 0) return text;
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return file_error("read", path, errno);
    text.append(buffer, static_cast<std::size_t>(count));
    if (text.size() > kMostBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("the rendezvous file '", printable(path), "' has more than ", kMostBytes,
                       " bytes, so it is none of ours; name another one"));
    }
  }
}

absl::Status write_text(int fd, const std::string& path, absl::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return file_error("write", path, errno);
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return absl::OkStatus();
}

// The caller holds the lock, so the name of the temporary file is free but for what a dead worker
// left.
absl::Status replace_all(const std::string& path, const std::vector<std::string>& lines) {
  if (lines.empty()) {
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) return file_error("remove", path, errno);
    const std::string lock_path = absl::StrCat(path, ".lock");
    if (::unlink(lock_path.c_str()) != 0 && errno != ENOENT) {
      return file_error("remove", lock_path, errno);
    }
    return absl::OkStatus();
  }
  const std::string fresh_path = absl::StrCat(path, ".new");
  ::unlink(fresh_path.c_str());
  const FileDescriptor fresh(
      ::open(fresh_path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fresh.valid()) return file_error("write", path, errno);
  std::string text;
  for (const std::string& line : lines) absl::StrAppend(&text, line, "\n");
  absl::Status written = write_text(fresh.number(), path, text);
  if (written.ok() && ::fsync(fresh.number()) != 0) written = file_error("write", path, errno);
  if (written.ok() && ::rename(fresh_path.c_str(), path.c_str()) != 0) {
    written = file_error("write", path, errno);
  }
  if (!written.ok()) ::unlink(fresh_path.c_str());
  return written;
}

// "sinew1 job name rank incarnation address", job and address in C escapes without blanks.
std::string escaped(absl::string_view text) {
  std::string out;
  for (const char c : absl::CEscape(text)) {
    c == ' ' ? out.append("\\040") : out.append(1, c);
  }
  return out.empty() ? "\\e" : out;
}

std::optional<std::string> unescaped(absl::string_view text) {
  std::string out;
  if (text == "\\e") return out;
  if (!absl::CUnescape(text, &out)) return std::nullopt;
  return out;
}

std::string format_line(const std::string& job, const Member& member) {
  return absl::StrFormat("%s %s %s %d %016x %s", kMagic, escaped(job), member.worker.name,
                         member.worker.rank, member.worker.incarnation.value,
                         escaped(member.address));
}

struct Line {
  std::string job;
  Member member;
};

absl::StatusOr<Line> parse_line(absl::string_view text) {
  const std::vector<absl::string_view> fields = absl::StrSplit(text, ' ');
  if (fields.size() != 6 || fields[0] != kMagic) {
    return absl::InvalidArgumentError("it does not have the six fields of an entry");
  }
  const std::optional<std::string> job = unescaped(fields[1]);
  const std::optional<std::string> address = unescaped(fields[5]);
  if (!job || !address || address->empty() || printable(*address) != *address) {
    return absl::InvalidArgumentError("its job or its address cannot be understood");
  }
  Line line;
  line.job = *job;
  line.member.worker.name = std::string(fields[2]);
  line.member.address = *address;
  const absl::Status name = validate_worker_name(line.member.worker.name);
  if (!name.ok()) return name;
  WorkerInfo& worker = line.member.worker;
  if (!absl::SimpleAtoi(fields[3], &worker.rank) || worker.rank < 0) {
    return absl::InvalidArgumentError("its rank is no number from 0");
  }
  const bool is_hex = absl::SimpleHexAtoi(fields[4], &worker.incarnation.value);
  if (!is_hex || worker.incarnation.value == 0) {
    return absl::InvalidArgumentError("its incarnation is no hexadecimal number");
  }
  return line;
}

struct Parsed {
  FileRendezvous::Contents contents;
  // Lines of other jobs, as they are.
  std::vector<std::string> foreign;
};

Parsed parse_all(const std::string& path, const std::string& job, const std::string& text) {
  Parsed parsed;
  int number = 0;
  for (const absl::string_view each : absl::StrSplit(text, '\n')) {
    ++number;
    if (each.empty()) continue;
    const absl::StatusOr<Line> line = parse_line(each);
    if (!line.ok()) {
      parsed.contents.warnings.push_back(absl::StrCat("line ", number, " of the rendezvous file '",
                                                      printable(path),
                                                      "' is ignored: ", line.status().message()));
    } else if (line->job != job) {
      parsed.foreign.emplace_back(each);
    } else {
      parsed.contents.entries.push_back(line->member);
    }
  }
  return parsed;
}

absl::StatusOr<Parsed> load(const std::string& path, const std::string& job) {
  absl::StatusOr<std::string> text = read_all(path);
  if (!text.ok()) return text.status();
  return parse_all(path, job, *text);
}

absl::Status store(const std::string& path, const std::string& job, const Parsed& parsed) {
  std::vector<std::string> lines = parsed.foreign;
  for (const Member& entry : parsed.contents.entries) lines.push_back(format_line(job, entry));
  return replace_all(path, lines);
}

absl::Status check_absolute(const std::string& path) {
  if (!path.empty() && path.front() == '/') return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the rendezvous file '", printable(path),
                   "' is no absolute path; workers may run in different folders"));
}

void supersede(std::vector<Member>& entries, const Member& self) {
  const auto is_old = [&](const Member& entry) {
    return entry.worker.name == self.worker.name || entry.worker.rank == self.worker.rank;
  };
  entries.erase(std::remove_if(entries.begin(), entries.end(), is_old), entries.end());
  entries.push_back(self);
}

}  // namespace

absl::StatusOr<FileRendezvous::Contents> FileRendezvous::read() const {
  absl::Status absolute = check_absolute(path_);
  if (!absolute.ok()) return absolute;
  // No lock: a rename shows either the old or the new contents, and a reader leaves no lock file
  // behind.
  absl::StatusOr<Parsed> parsed = load(path_, job_);
  if (!parsed.ok()) return parsed.status();
  return std::move(parsed->contents);
}

absl::Status FileRendezvous::publish(const Member& self) const {
  absl::Status absolute = check_absolute(path_);
  if (!absolute.ok()) return absolute;
  const absl::StatusOr<FileDescriptor> lock = lock_file(path_);
  if (!lock.ok()) return lock.status();
  absl::StatusOr<Parsed> parsed = load(path_, job_);
  if (!parsed.ok()) return parsed.status();
  supersede(parsed->contents.entries, self);
  return store(path_, job_, *parsed);
}

absl::Status FileRendezvous::found(const Member& self, const std::vector<Member>& expected) const {
  absl::Status absolute = check_absolute(path_);
  if (!absolute.ok()) return absolute;
  const absl::StatusOr<FileDescriptor> lock = lock_file(path_);
  if (!lock.ok()) return lock.status();
  absl::StatusOr<Parsed> parsed = load(path_, job_);
  if (!parsed.ok()) return parsed.status();
  const std::vector<Member>& entries = parsed->contents.entries;
  const bool unchanged =
      std::equal(entries.begin(), entries.end(), expected.begin(), expected.end(),
                 [](const Member& a, const Member& b) { return a.worker == b.worker; });
  if (!unchanged) {
    return absl::AbortedError(
        absl::StrCat("another worker wrote the rendezvous file '", printable(path_), "' first"));
  }
  parsed->contents.entries = {self};
  return store(path_, job_, *parsed);
}

absl::Status FileRendezvous::remove(const WorkerInfo& worker) const {
  absl::Status absolute = check_absolute(path_);
  if (!absolute.ok()) return absolute;
  const absl::StatusOr<FileDescriptor> lock = lock_file(path_);
  if (!lock.ok()) return lock.status();
  absl::StatusOr<Parsed> parsed = load(path_, job_);
  if (!parsed.ok()) return parsed.status();
  std::vector<Member>& entries = parsed->contents.entries;
  const auto is_it = [&](const Member& entry) {
    return entry.worker.name == worker.name && entry.worker.incarnation == worker.incarnation;
  };
  entries.erase(std::remove_if(entries.begin(), entries.end(), is_it), entries.end());
  return store(path_, job_, *parsed);
}

}  // namespace sinew::internal
