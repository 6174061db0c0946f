#include "sinew/rpc/membership/registrar/registrar_seat.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/threads/timer_queue.h"
#include "sinew/rpc/base/worker_name.h"
#include "sinew/rpc/membership/guarded_folder.h"

namespace sinew::internal {
namespace {

constexpr absl::string_view kHeader = "sinew registrar 1";
constexpr std::size_t kMostBytes = 4096;

class AddressSeat final : public RegistrarSeat {
 public:
  AddressSeat(std::vector<std::string> addresses, std::optional<OwnAddress> own,
              ResolveAddress resolve)
      : addresses_(std::move(addresses)), own_(std::move(own)), resolve_(std::move(resolve)) {}

  Future<Found> look(bool may_take) override {
    Found found;
    found.is_own = own_.has_value() && may_take;
    if (found.is_own || resolve_ == nullptr) {
      for (const std::string& address : addresses_) found.others.push_back(Contact::at(address));
      return make_ready_future(std::move(found));
    }
    const auto search = std::make_shared<Search>(addresses_.size());
    for (const std::string& address : addresses_) {
      resolve_(address).on_done([search](const Future<std::vector<Contact>>& resolved) {
        Found all;
        {
          MutexLock lock(search->mutex);
          if (resolved.error() == nullptr) {
            for (const Contact& each : resolved.value()) search->found.others.push_back(each);
          }
          if (--search->left > 0) return;
          all = std::move(search->found);
        }
        search->done.set_value(std::move(all));
      });
    }
    return search->done.future();
  }

  // A registrar that was stopped may have been replaced on another host.
  Future<bool> holds() override {
    const Clock::TimePoint now = Clock::system().now();
    if (!own_.has_value() || now < next_) return make_ready_future(own_.has_value());
    next_ = now + own_->period;
    if (answers_->are_of_others()) own_.reset();
    answers_ = std::make_shared<Answers>();
    if (own_.has_value()) ask();
    return make_ready_future(own_.has_value());
  }
  void give_back() override {}

 private:
  struct Search {
    explicit Search(std::size_t questions) : left(questions) {}
    Mutex mutex;
    std::size_t left ABSL_GUARDED_BY(mutex);
    Found found ABSL_GUARDED_BY(mutex);
    Promise<Found> done;
  };
  /// Who has answered at the address. A name may stand for several hosts.
  struct Answers {
    Mutex mutex;
    bool own ABSL_GUARDED_BY(mutex) = false;
    bool other ABSL_GUARDED_BY(mutex) = false;

    bool are_of_others() {
      MutexLock lock(mutex);
      return other && !own;
    }
  };

  void ask() {
    const auto on_answer = [answers = answers_, self = own_->self](Incarnation answerer) {
      MutexLock lock(answers->mutex);
      (answerer == self ? answers->own : answers->other) |= answerer.value != 0;
    };
    const auto on_resolved = [ask = own_->ask,
                              on_answer](const Future<std::vector<Contact>>& resolved) {
      if (resolved.error() != nullptr) return;
      for (const Contact& each : resolved.value()) ask(each, on_answer);
    };
    const std::string& address = addresses_.front();
    resolve_ == nullptr ? own_->ask(Contact::at(address), on_answer)
                        : resolve_(address).on_done(on_resolved);
  }

  const std::vector<std::string> addresses_;
  std::optional<OwnAddress> own_;
  const ResolveAddress resolve_;
  Clock::TimePoint next_{};
  std::shared_ptr<Answers> answers_ = std::make_shared<Answers>();
};

class ProcessSeat final : public RegistrarSeat {
 public:
  ProcessSeat(std::shared_ptr<InprocNetwork> network, std::string name, std::string address)
      : network_(std::move(network)), name_(std::move(name)), address_(std::move(address)) {}

  Future<Found> look(bool may_take) override {
    const InprocNetwork::Seat seat = network_->take_seat(name_, may_take ? address_ : "");
    Found found;
    found.is_own = seat.address == address_;
    found.is_new = !seat.was_taken;
    if (!found.is_own && !seat.address.empty()) found.others.push_back(Contact::at(seat.address));
    return make_ready_future(std::move(found));
  }
  Future<bool> holds() override { return make_ready_future(true); }
  void give_back() override { network_->leave_seat(name_, address_); }

 private:
  const std::shared_ptr<InprocNetwork> network_;
  const std::string name_;
  const std::string address_;
};

/// The file, open. For one thread at a time.
class LockedFile {
 public:
  explicit LockedFile(const std::string& path)
      : folder_(path.substr(0, path.rfind('/') + 1)), name_(path.substr(path.rfind('/') + 1)) {}

  /// Anew if it is not the one any more that the path names.
  absl::Status open() {
    if (is_named()) return absl::OkStatus();
    close();
    absl::StatusOr<GuardedFolder> folder = GuardedFolder::open(folder_);
    if (!folder.ok()) return folder.status();
    absl::StatusOr<FileDescriptor> file = folder->open_or_create(name_);
    if (!file.ok()) return file.status();
    open_.emplace(Open{*std::move(folder), *std::move(file)});
    return absl::OkStatus();
  }
  std::string path() const { return folder_ + name_; }
  bool is_named() const { return open_.has_value() && open_->folder.is_named(name_, open_->file); }
  void close() { open_.reset(); }
  /// False: another process, or another worker of this one, has it.
  absl::StatusOr<bool> lock() const {
    struct flock whole {};
    whole.l_type = F_WRLCK;
    whole.l_whence = SEEK_SET;
    if (::fcntl(fd(), F_OFD_SETLK, &whole) == 0) return true;
    if (errno == EAGAIN || errno == EACCES) return false;
    return failed("cannot be locked");
  }
  absl::StatusOr<std::string> read() const {
    std::array<char, kMostBytes> bytes{};
    const ssize_t count = ::pread(fd(), bytes.data(), bytes.size(), 0);
    if (count < 0) return failed("cannot be read");
    return std::string(bytes.data(), static_cast<std::size_t>(count));
  }
  absl::Status write(const std::string& text) const {
    const bool is_written =
        ::pwrite(fd(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()) &&
        ::ftruncate(fd(), static_cast<off_t>(text.size())) == 0 && ::fsync(fd()) == 0;
    return is_written ? absl::OkStatus() : failed("cannot be written");
  }

 private:
  struct Open {
    GuardedFolder folder;
    FileDescriptor file;
  };
  int fd() const { return open_->file.number(); }
  absl::Status failed(absl::string_view what) const {
    return absl::UnavailableError(absl::StrCat("the rendezvous file ", folder_, name_, " ", what,
                                               ": ", std::strerror(errno)));
  }

  const std::string folder_;
  const std::string name_;
  std::optional<Open> open_;
};

class FileSeat final : public RegistrarSeat {
 public:
  FileSeat(const std::string& path, const std::string& address, const std::string& name,
           std::shared_ptr<Executor> executor)
      : own_(absl::StrCat(kHeader, "\n", address, "\n", name, "\n")),
        executor_(std::move(executor)),
        file_(std::make_shared<Guarded>(path)) {}

  Future<Found> look(bool may_take) override {
    return on_file<Found>(
        [may_take, own = own_](LockedFile& file) { return look_at(file, may_take, own); });
  }
  // Who has removed the file may have begun another job there.
  Future<bool> holds() override {
    return on_file<bool>(
        [](const LockedFile& file) { return absl::StatusOr<bool>(file.is_named()); });
  }
  void give_back() override {
    MutexLock lock(file_->mutex);
    file_->file.close();
  }

 private:
  struct Guarded {
    explicit Guarded(const std::string& path) : file(path) {}
    Mutex mutex;
    LockedFile file;
  };

  template <class Result, class Work>
  Future<Result> on_file(Work work) {
    const Promise<Result> promise(executor_.get());
    const bool is_taken = executor_->post([promise, work = std::move(work), file = file_] {
      const Executor::BlockingScope blocking;
      MutexLock lock(file->mutex);
      absl::StatusOr<Result> result = work(file->file);
      result.ok() ? promise.try_set_value(*std::move(result))
                  : promise.try_set_error(make_error(result.status()));
    });
    if (!is_taken) {
      promise.try_set_error(make_error(absl::UnavailableError("this worker shuts down")));
    }
    return promise.future();
  }

  static absl::StatusOr<Found> look_at(LockedFile& file, bool may_take, const std::string& own) {
    if (absl::Status status = file.open(); !status.ok()) return status;
    const absl::StatusOr<std::string> text = file.read();
    if (!text.ok()) return text.status();
    if (!text->empty() && !absl::StartsWith(*text, kHeader)) {
      return absl::InvalidArgumentError(absl::StrCat(
          file.path(), " is not a rendezvous file, and stays as it is: name another path"));
    }
    Found found;
    if (may_take) {
      const absl::StatusOr<bool> is_own = file.lock();
      if (!is_own.ok()) return is_own.status();
      // It may have been removed before it was locked.
      if (*is_own && !file.is_named()) return absl::UnavailableError("the file was removed");
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

std::unique_ptr<RegistrarSeat> make_address_seat(std::vector<std::string> addresses,
                                                 std::optional<OwnAddress> own,
                                                 ResolveAddress resolve) {
  return std::make_unique<AddressSeat>(std::move(addresses), std::move(own), std::move(resolve));
}

std::unique_ptr<RegistrarSeat> make_process_seat(std::shared_ptr<InprocNetwork> network,
                                                 std::string name, std::string address) {
  return std::make_unique<ProcessSeat>(std::move(network), std::move(name), std::move(address));
}

std::unique_ptr<RegistrarSeat> make_file_seat(std::string path, std::string address,
                                              std::string name,
                                              std::shared_ptr<Executor> executor) {
  return std::make_unique<FileSeat>(path, address, name, std::move(executor));
}

}  // namespace sinew::internal
