#include "sinew/optim/internal/durable_file.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/base/internal/mutex.h"

namespace sinew::internal {
namespace {

/// Paths of files that are being written. Never destroyed: threads may write until the process is
/// gone.
struct UnderWay {
  static UnderWay& get() {
    static auto* const only = new UnderWay;
    return *only;
  }
  Mutex mutex;
  // Two may write a file of the same name; one of them will not get it.
  std::multiset<std::string> paths ABSL_GUARDED_BY(mutex);
};

/// A descriptor that is closed.
class OpenFile {
 public:
  OpenFile(const std::string& path, int flags, mode_t mode = 0)
      : number_(::open(path.c_str(), flags | O_CLOEXEC, mode)) {}
  ~OpenFile() {
    if (number_ >= 0) ::close(number_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int number() const { return number_; }
  bool is_open() const { return number_ >= 0; }

 private:
  const int number_;
};

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    if (context_ == nullptr || EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) != 1) {
      throw RpcError(ErrorCode::kInternal, "OpenSSL offers no SHA-256");
    }
  }
  void add(const char* bytes, std::size_t size) { EVP_DigestUpdate(context_.get(), bytes, size); }
  std::string digits() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned int size = 0;
    EVP_DigestFinal_ex(context_.get(), digest.data(), &size);
    return absl::BytesToHexString({reinterpret_cast<const char*>(digest.data()), size});
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

/// Renames unless the new name is taken: 0, or errno.
int rename_if_free(const std::string& from, const std::string& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  // A file system that does not know how.
  struct stat other {};
  if (::lstat(to.c_str(), &other) == 0) return EEXIST;
  return ::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
}

}  // namespace

void throw_file_error(const std::string& doing, const std::string& path, int error) {
  ErrorCode code = ErrorCode::kInternal;
  switch (error) {
    case ENOENT:
      code = ErrorCode::kNotFound;
      break;
    case EACCES:
    case EPERM:
    case EROFS:
      code = ErrorCode::kPermissionDenied;
      break;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      code = ErrorCode::kResourceExhausted;
      break;
    case EEXIST:
      code = ErrorCode::kAlreadyExists;
      break;
    default:
      break;
  }
  throw RpcError(code, absl::StrFormat("cannot %s '%s': %s", doing, path, std::strerror(error)));
}

void flush_file(const std::string& path) {
  const OpenFile file(path, O_RDONLY);
  if (!file.is_open()) throw_file_error("open", path, errno);
  if (::fsync(file.number()) != 0) throw_file_error("flush", path, errno);
}

std::string sha256(std::string_view bytes) {
  Sha256 sum;
  sum.add(bytes.data(), bytes.size());
  return sum.digits();
}

std::string sha256_of_file(const std::string& path) {
  const OpenFile file(path, O_RDONLY);
  if (!file.is_open()) throw_file_error("open", path, errno);
  // Of no effect on pages that are not written yet, and no loss where it has none.
  static_cast<void>(::posix_fadvise(file.number(), 0, 0, POSIX_FADV_DONTNEED));
  std::vector<char> piece(std::size_t{1} << 20);
  Sha256 sum;
  for (;;) {
    const ssize_t size = ::read(file.number(), piece.data(), piece.size());
    if (size == 0) return sum.digits();
    if (size > 0) {
      sum.add(piece.data(), static_cast<std::size_t>(size));
    } else if (errno != EINTR) {
      throw_file_error("read", path, errno);
    }
  }
}

DurableFile::DurableFile(std::string path, std::string_view bytes)
    : path_(std::move(path)),
      unfinished_(absl::StrFormat("%s.%016x%s", path_, random_secret(), kUnfinished)) {
  {
    UnderWay& under_way = UnderWay::get();
    MutexLock lock(under_way.mutex);
    under_way.paths.insert({path_, unfinished_});
  }
  try {
    write(bytes);
  } catch (...) {
    end();
    throw;
  }
}

DurableFile::~DurableFile() { end(); }

void DurableFile::end() noexcept {
  if (!is_published_) ::unlink(unfinished_.c_str());
  UnderWay& under_way = UnderWay::get();
  MutexLock lock(under_way.mutex);
  for (const std::string* path : {&path_, &unfinished_}) {
    under_way.paths.erase(under_way.paths.find(*path));
  }
}

void DurableFile::write(std::string_view bytes) const {
  // A file or link that is already there is not written to, nor what it leads to.
  const OpenFile file(unfinished_, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0666);
  if (!file.is_open()) throw_file_error("create", unfinished_, errno);
  while (!bytes.empty()) {
    const ssize_t size = ::write(file.number(), bytes.data(), bytes.size());
    if (size >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(size));
    } else if (errno != EINTR) {
      throw_file_error("write", unfinished_, errno);
    }
  }
  if (::fsync(file.number()) != 0) throw_file_error("flush", unfinished_, errno);
}

void DurableFile::publish() {
  const int error = rename_if_free(unfinished_, path_);
  if (error != 0) throw_file_error(absl::StrCat("rename '", unfinished_, "' to"), path_, error);
  is_published_ = true;
}

void DurableFile::withdraw() noexcept { ::unlink(path_.c_str()); }

bool DurableFile::is_under_way(const std::string& path) {
  UnderWay& under_way = UnderWay::get();
  MutexLock lock(under_way.mutex);
  return under_way.paths.count(path) > 0;
}

}  // namespace sinew::internal
