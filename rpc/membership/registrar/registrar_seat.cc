#include "sinew/rpc/membership/registrar/registrar_seat.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/worker_name.h"

namespace sinew::internal {
namespace {

constexpr absl::string_view kHeader = "sinew registrar 1";
constexpr std::size_t kMostBytes = 4096;

class AddressSeat final : public RegistrarSeat {
 public:
  AddressSeat(std::vector<std::string> addresses, bool is_own)
      : addresses_(std::move(addresses)), is_own_(is_own) {}

  Future<Found> look(bool may_take) override {
    Found found;
    found.is_own = is_own_ && may_take;
    for (const std::string& address : addresses_) found.others.push_back(Contact::at(address));
    return make_ready_future(std::move(found));
  }
  void give_back() override {}

 private:
  const std::vector<std::string> addresses_;
  const bool is_own_;
};

/// The file, open. For one thread at a time.
class LockedFile {
 public:
  explicit LockedFile(std::string path) : path_(std::move(path)) {}
  ~LockedFile() { close(); }
  LockedFile(const LockedFile&) = delete;
  LockedFile& operator=(const LockedFile&) = delete;

  absl::Status open() {
    if (fd_ >= 0) return absl::OkStatus();
    const int fd = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return failed("cannot be opened");
    struct stat about {};
    if (::fstat(fd, &about) != 0 || !S_ISREG(about.st_mode) || about.st_uid != ::geteuid()) {
      ::close(fd);
      return absl::PermissionDeniedError(absl::StrCat(
          "the rendezvous file ", path_, " is another user's, or no file: name another one"));
    }
    fd_ = fd;
    return absl::OkStatus();
  }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  /// False: another process, or another worker of this one, has it.
  absl::StatusOr<bool> lock() const {
    struct flock whole {};
    whole.l_type = F_WRLCK;
    whole.l_whence = SEEK_SET;
    if (::fcntl(fd_, F_OFD_SETLK, &whole) == 0) return true;
    if (errno == EAGAIN || errno == EACCES) return false;
    return failed("cannot be locked");
  }
  absl::StatusOr<std::string> read() const {
    std::array<char, kMostBytes> bytes{};
    const ssize_t count = ::pread(fd_, bytes.data(), bytes.size(), 0);
    if (count < 0) return failed("cannot be read");
    return std::string(bytes.data(), static_cast<std::size_t>(count));
  }
  absl::Status write(const std::string& text) const {
    const bool is_written =
        ::pwrite(fd_, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()) &&
        ::ftruncate(fd_, static_cast<off_t>(text.size())) == 0 && ::fsync(fd_) == 0;
    return is_written ? absl::OkStatus() : failed("cannot be written");
  }

 private:
  absl::Status failed(absl::string_view what) const {
    return absl::UnavailableError(
        absl::StrCat("the rendezvous file ", path_, " ", what, ": ", std::strerror(errno)));
  }

  const std::string path_;
  int fd_ = -1;
};

class FileSeat final : public RegistrarSeat {
 public:
  FileSeat(std::string path, std::string address, std::string name,
           std::shared_ptr<Executor> executor)
      : own_(absl::StrCat(kHeader, "\n", address, "\n", name, "\n")),
        executor_(std::move(executor)),
        file_(std::make_shared<Guarded>(std::move(path))) {}

  Future<Found> look(bool may_take) override {
    const Promise<Found> found(executor_.get());
    const bool is_taken = executor_->post([found, may_take, own = own_, file = file_] {
      const Executor::BlockingScope blocking;
      MutexLock lock(file->mutex);
      absl::StatusOr<Found> seen = look_at(file->file, may_take, own);
      seen.ok() ? found.try_set_value(*std::move(seen))
                : found.try_set_error(make_error(seen.status()));
    });
    if (!is_taken) {
      found.try_set_error(make_error(absl::UnavailableError("this worker shuts down")));
    }
    return found.future();
  }
  void give_back() override {
    MutexLock lock(file_->mutex);
    file_->file.close();
  }

 private:
  struct Guarded {
    explicit Guarded(std::string path) : file(std::move(path)) {}
    Mutex mutex;
    LockedFile file;
  };

  static absl::StatusOr<Found> look_at(LockedFile& file, bool may_take, const std::string& own) {
    if (absl::Status status = file.open(); !status.ok()) return status;
    const absl::StatusOr<std::string> text = file.read();
    if (!text.ok()) return text.status();
    Found found;
    if (may_take) {
      const absl::StatusOr<bool> is_own = file.lock();
      if (!is_own.ok()) return is_own.status();
      if (*is_own) {
        found.is_own = true;
        found.is_new = text->empty();
        if (absl::Status status = file.write(own); !status.ok()) return status;
        return found;
      }
    }
    const std::vector<std::string> lines = absl::StrSplit(*text, '\n');
    if (lines.size() == 4 && lines[0] == kHeader && validate_worker_name(lines[2]).ok()) {
      found.others.push_back({lines[1], lines[2]});
    }
    return found;
  }

  const std::string own_;
  const std::shared_ptr<Executor> executor_;
  const std::shared_ptr<Guarded> file_;
};

}  // namespace

std::unique_ptr<RegistrarSeat> make_address_seat(std::vector<std::string> addresses, bool is_own) {
  return std::make_unique<AddressSeat>(std::move(addresses), is_own);
}

std::unique_ptr<RegistrarSeat> make_file_seat(std::string path, std::string address,
                                              std::string name,
                                              std::shared_ptr<Executor> executor) {
  return std::make_unique<FileSeat>(std::move(path), std::move(address), std::move(name),
                                    std::move(executor));
}

}  // namespace sinew::internal
