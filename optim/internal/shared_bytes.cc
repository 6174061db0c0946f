#include "sinew/optim/internal/shared_bytes.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/base/internal/system_call.h"

namespace sinew::internal {
namespace {

// Of all such memory: nothing else is opened for a peer.
constexpr char kName[] = "sinew-weights-";
constexpr int kSeals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

absl::Status failed(const char* call) {
  return absl::ResourceExhaustedError(
      absl::StrCat("memory for a version of weights: ", call_failure(call, errno)));
}

std::string link_of(const std::string& path) {
  char text[256];
  const ssize_t size = ::readlink(path.c_str(), text, sizeof text);
  return size <= 0 ? "" : std::string(text, static_cast<std::size_t>(size));
}

absl::StatusOr<std::shared_ptr<char>> map_file(const FileDescriptor& file, std::size_t size,
                                               int protection, int flags) {
  void* const memory = ::mmap(nullptr, size, protection, flags, file.number(), 0);
  if (memory == MAP_FAILED) return failed("mmap");
  return std::shared_ptr<char>(static_cast<char*>(memory),
                               [size](char* mapped) { ::munmap(mapped, size); });
}

}  // namespace

absl::StatusOr<SharedBytes::Writer> SharedBytes::Writer::make(std::size_t size) {
  std::string name = absl::StrFormat("%s%016x%016x", kName, random_secret(), random_secret());
  FileDescriptor file(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid()) return failed("memfd_create");
  if (::ftruncate(file.number(), static_cast<off_t>(size)) != 0) return failed("ftruncate");
  return Writer(std::move(file), size, std::move(name));
}

// Not through a mapping: pages that are written to that way are zeroed before.
absl::Status SharedBytes::Writer::write(std::size_t offset, const void* bytes,
                                        std::size_t size) const {
  if (offset > size_ || size > size_ - offset) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%d bytes of weights at %d, and the version has %d", size, offset, size_));
  }
  const char* from = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t done = ::pwrite(file_.number(), from, size, static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return failed("pwrite");
    from += done;
    offset += static_cast<std::size_t>(done);
    size -= static_cast<std::size_t>(done);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<char>> SharedBytes::Writer::map() const {
  return map_file(file_, size_, PROT_READ | PROT_WRITE, MAP_SHARED);
}

absl::StatusOr<std::shared_ptr<const SharedBytes>> SharedBytes::Writer::seal() && {
  if (::fcntl(file_.number(), F_ADD_SEALS, kSeals) != 0) return failed("fcntl(F_ADD_SEALS)");
  return SharedBytes::map(std::move(file_), size_, std::move(name_));
}

absl::StatusOr<std::shared_ptr<const SharedBytes>> SharedBytes::map(FileDescriptor file,
                                                                    std::size_t size,
                                                                    std::string name) {
  // Private, though it is never written to: kernels before 6.7 refuse a shared mapping of what is
  // sealed. The pages are the same.
  void* const memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number(), 0);
  if (memory == MAP_FAILED) return failed("mmap");
  return std::shared_ptr<const SharedBytes>(
      new SharedBytes(std::move(file), size, std::move(name), static_cast<const char*>(memory)));
}

absl::StatusOr<std::shared_ptr<const SharedBytes>> SharedBytes::open(const SharedPlace& place,
                                                                     std::size_t size) {
  const std::string path = absl::StrCat("/proc/", place.process, "/fd/", place.descriptor);
  const std::string wanted = absl::StrCat("/memfd:", place.name, " (deleted)");
  const auto refused = [&](const std::string& why) {
    return absl::UnavailableError(
        absl::StrCat("the weights of process ", place.process, " cannot be mapped: ", why));
  };
  // Before it is opened, which does something to some files; and afterwards, since it may be
  // another one by then.
  if (!absl::StartsWith(place.name, kName) || link_of(path) != wanted) {
    return refused("they are not there");
  }
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file.valid()) return refused(call_failure("open", errno));
  if (link_of(absl::StrCat("/proc/self/fd/", file.number())) != wanted) {
    return refused("they are not there");
  }
  struct stat about = {};
  const int seals = ::fcntl(file.number(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || ::fstat(file.number(), &about) != 0 ||
      about.st_size < 0 || static_cast<std::size_t>(about.st_size) != size) {
    return refused("they are not what they should be");
  }
  return map(std::move(file), size, place.name);
}

SharedBytes::~SharedBytes() { ::munmap(const_cast<char*>(data_), size_); }

SharedPlace SharedBytes::place() const { return {::getpid(), file_.number(), name_}; }

absl::StatusOr<std::shared_ptr<char>> SharedBytes::map_private() const {
  return map_file(file_, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE);
}

std::string sharing_pod() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  const std::string processes = link_of("/proc/self/ns/pid");
  if (boot.empty() || processes.empty()) return "";
  return absl::StrCat(boot, " ", processes, " ", ::geteuid());
}

}  // namespace sinew::internal
