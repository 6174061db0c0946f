#include "sinew/rpc/membership/guarded_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {
namespace {

// What is no regular file must not make us wait (a FIFO without a writer), nor become this
// process's terminal, before it has been looked at.
constexpr int kCarefully = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
constexpr mode_t kOwnerOnly = 0600;

absl::Status error_of(const std::string& text, int error) {
  if (error == EACCES || error == EPERM || error == EROFS) {
    return absl::PermissionDeniedError(text);
  }
  if (error == ENOENT || error == ENOTDIR || error == EISDIR || error == ELOOP) {
    return absl::InvalidArgumentError(absl::StrCat(text, "; name a file in a folder that exists"));
  }
  return absl::UnavailableError(text);
}

absl::string_view kind_of(mode_t mode) {
  if (S_ISLNK(mode)) return "a symbolic link, which is not followed";
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

absl::Status check_file(const std::string& path, const struct stat& about) {
  const std::string subject = absl::StrCat("'", printable(path), "' ");
  if (!S_ISREG(about.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(
        subject, "is no regular file but ", kind_of(about.st_mode), "; remove it, or name another",
        S_ISLNK(about.st_mode) ? " (the one that it leads to)" : ""));
  }
  if (about.st_uid != ::geteuid() && about.st_uid != 0) {
    // An NFS server may map root's files to an anonymous user.
    return absl::PermissionDeniedError(absl::StrCat(
        subject, "belongs to user ", about.st_uid, ", and this process runs as user ", ::geteuid(),
        "; name another file, in a folder where what this process creates is its own"));
  }
  if ((about.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return absl::PermissionDeniedError(absl::StrCat(
        subject, "may be written by its group or by all (mode ",
        absl::StrFormat("%04o", about.st_mode & 07777),
        "), who could lead workers anywhere; remove it, or, if its contents are to be trusted, "
        "take that away: chmod go-w"));
  }
  return absl::OkStatus();
}

// Group-writable folders are taken, of whichever group: jobs of several hosts and users share a
// folder by a group, and where each user has a group of his own all folders are made so. The owner
// of the folder trusts the group. Its members could remove files, or put their own in the place.
// Those are refused as files of another user, so a job may fail to start, but its workers are not
// misled. Folders that all users may write are refused, except those like /tmp, where the sticky
// bit keeps files to their owners.
absl::Status check_folder(const std::string& path, const struct stat& about) {
  if ((about.st_mode & S_IWOTH) == 0 || (about.st_mode & S_ISVTX) != 0) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("everybody may remove and replace files in the folder '", printable(path),
                   "' (mode ", absl::StrFormat("%04o", about.st_mode & 07777),
                   "); name a file in another one, or take that away: chmod o-w, or chmod +t"));
}

}  // namespace

absl::StatusOr<GuardedFolder> GuardedFolder::open(std::string path) {
  FileDescriptor folder(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  struct stat about = {};
  if (!folder.valid() || ::fstat(folder.number(), &about) != 0) {
    const int error = errno;
    const std::string text =
        absl::StrCat("cannot open the folder '", printable(path), "': ", std::strerror(error));
    return error == ENOENT ? absl::NotFoundError(text) : error_of(text, error);
  }
  if (absl::Status status = check_folder(path, about); !status.ok()) return status;
  return GuardedFolder(std::move(path), std::move(folder));
}

absl::StatusOr<FileDescriptor> GuardedFolder::checked(FileDescriptor file,
                                                      const std::string& name) const {
  struct stat about = {};
  if (::fstat(file.number(), &about) != 0) return failure("look at", name, errno);
  if (absl::Status status = check_file(path_of(name), about); !status.ok()) return status;
  return file;
}

// The system says little about what it does not open ("too many levels of symbolic links" of one
// link), so what has the name is looked at without opening it.
absl::Status GuardedFolder::failure(const char* doing, const std::string& name, int error) const {
  struct stat about = {};
  if (::fstatat(folder_.number(), name.c_str(), &about, AT_SYMLINK_NOFOLLOW) == 0) {
    if (absl::Status status = check_file(path_of(name), about); !status.ok()) return status;
  }
  return error_of(
      absl::StrCat("cannot ", doing, " '", printable(path_of(name)), "': ", std::strerror(error)),
      error);
}

absl::StatusOr<FileDescriptor> GuardedFolder::open_or_create(const std::string& name) const {
  FileDescriptor file(
      ::openat(folder_.number(), name.c_str(), O_RDWR | O_CREAT | kCarefully, kOwnerOnly));
  if (file.valid()) return checked(std::move(file), name);
  return failure("open", name, errno);
}

bool GuardedFolder::is_named(const std::string& name, const FileDescriptor& file) const {
  struct stat held = {};
  struct stat named = {};
  return ::fstat(file.number(), &held) == 0 &&
         ::fstatat(folder_.number(), name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         held.st_ino == named.st_ino && held.st_dev == named.st_dev;
}

}  // namespace sinew::internal
