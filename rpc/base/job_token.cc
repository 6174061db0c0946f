#include "sinew/rpc/base/job_token.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/base/internal/file_descriptor.h"

namespace sinew::internal {
namespace {

constexpr std::size_t kLeast = 16;
constexpr std::size_t kMost = 1024;

absl::Status unusable(const std::string& path, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat(kJobTokenFile, ": ", printable(path, 512), " ", why));
}

absl::StatusOr<std::string> read_file(const std::string& path) {
  // A pipe without a writer does not hold it up.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat about {};
  if (!file.valid() || ::fstat(file.number(), &about) != 0) {
    return unusable(path, absl::StrCat("cannot be read: ", std::strerror(errno)));
  }
  if (about.st_uid != ::geteuid() && about.st_uid != 0) {
    return unusable(path, "belongs to another user: who can write it can let anybody in");
  }
  if ((about.st_mode & (S_IROTH | S_IWOTH | S_IWGRP)) != 0) {
    return unusable(path, absl::StrFormat("has mode %04o: others can read or change it; chmod 600",
                                          about.st_mode & 07777));
  }
  std::array<char, kMost + 2> text{};
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(file.number(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return unusable(path, absl::StrCat("cannot be read: ", std::strerror(errno)));
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  return std::string(absl::StripAsciiWhitespace(absl::string_view(text.data(), size)));
}

}  // namespace

bool says_job_token(const EnvironmentReader& environment) {
  return environment(kJobToken).has_value() || environment(kJobTokenFile).has_value();
}

absl::StatusOr<std::string> read_job_token(const EnvironmentReader& environment) {
  const std::string token = environment(kJobToken).value_or("");
  const std::string path = environment(kJobTokenFile).value_or("");
  if (!token.empty() && !path.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("both ", kJobToken, " and ", kJobTokenFile, " are set: unset one of them"));
  }
  if (path.empty()) {
    if (token.empty()) return token;
    if (absl::Status status = check_job_token(token, kJobToken); !status.ok()) return status;
    return token;
  }
  absl::StatusOr<std::string> read = read_file(path);
  if (!read.ok()) return read;
  const absl::Status status = check_job_token(*read, absl::StrCat(kJobTokenFile, " ", path));
  return status.ok() ? read : status;
}

absl::Status check_job_token(absl::string_view token, absl::string_view where) {
  const bool is_one = token.size() >= kLeast && token.size() <= kMost &&
                      std::all_of(token.begin(), token.end(), absl::ascii_isgraph);
  if (is_one) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s has no token of a job: %d to %d ASCII characters without blanks, such as those of "
      "'openssl rand -hex 16'",
      where, kLeast, kMost));
}

std::string draw_job_token() {
  return absl::StrFormat("%016x%016x", random_secret(), random_secret());
}

}  // namespace sinew::internal
